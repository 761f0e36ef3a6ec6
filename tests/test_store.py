"""The campaign's file: what a batch is, and what is read in the middle of one."""

import sqlite3
from pathlib import Path

import pytest

from mhc.fuzz.messages import Checked, Failure
from mhc.fuzz.store import FILE, Store

FAILURE = Failure(oracle="bound", subject="dx", symptom="value", message="dx[0] = 1")
FIRST = Checked(case="a", regions=frozenset({"n = 1", "gamma"}), ratios={"dx": 0.5}, seconds={"running": 0.25}, compiled=2)
SECOND = Checked(case="b", regions=frozenset({"gamma"}), ratios={"dx": 0.75}, seconds={"running": 0.5}, failures=(FAILURE,))
THIRD = Checked(case="c", ratios={"dx": 0.75, "h_in": 3.0}, refused=True, compared=("compared with golden",))
PROBE = Checked(case="d", probe=True, regions=frozenset({"n = 1"}), ratios={"dx": 9.0}, seconds={"running": 1.0})


def seen(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What somebody else reads in the file."""
    other = sqlite3.connect(path)
    names = ("hand", "counts", "regions", "ratios", "worst", "timeline", "restarts")
    rows = {name: list(other.execute(f"SELECT * FROM {name}")) for name in names}
    other.close()
    return rows


def play(store: Store) -> None:
    for slot, checked in ((0, FIRST), (1, SECOND), (0, THIRD), (1, PROBE)):
        store.begin(slot, "manual", checked.case, 1.0)
        store.end(slot, "manual", checked, 12.0)
    store.begin(1, "manual", "e", 13.0)
    store.begin(2, "manual", "f", 14.0)
    store.drop(2)
    store.restart("manual", "hang")
    store.count("manual", "drawing", 0.125)


def test_many_in_one_batch_are_the_same_rows_as_each_on_its_own(tmp_path: Path) -> None:
    together, apart = Store(tmp_path / "together.sqlite"), Store(tmp_path / "apart.sqlite")
    with together.batch():
        play(together)
    play(apart)
    rows = seen(tmp_path / "together.sqlite")
    assert rows == seen(tmp_path / "apart.sqlite")
    assert rows == {
        "hand": [(1, "manual", "e", 13.0)],
        "counts": [
            ("manual", "checked", 2.0),
            ("manual", "compared with golden", 1.0),
            ("manual", "compiled", 2.0),
            ("manual", "drawing", 0.125),
            ("manual", "failing", 1.0),
            ("manual", "probes", 1.0),
            ("manual", "refused", 1.0),
            ("manual", "running", 1.75),
        ],
        "regions": [("manual", "gamma", 2), ("manual", "n = 1", 1)],
        "ratios": [("manual", "dx", -1, 1), ("manual", "dx", 0, 2), ("manual", "h_in", 2, 1)],
        "worst": [("manual", "dx", 0.75, "b"), ("manual", "h_in", 3.0, "c")],
        "timeline": [("manual", 1, 3)],
        "restarts": [("manual", "hang", 1)],
    }


def test_a_batch_that_fails_leaves_nothing_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / FILE
    store = Store(path)
    play(store)
    before = seen(path)

    def interrupted() -> None:
        with store.batch():
            play(store)
            store.keep("1f3a90c2", {}, "raw", 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen(path) == before
    assert store.findings() == {}
    with store.batch():
        store.restart("manual", "hang")
    assert seen(path)["restarts"] == [("manual", "hang", 2)]


def test_what_a_batch_has_kept_so_far_is_read_in_it_and_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / FILE
    store = Store(path)
    with store.batch():
        store.begin(0, "manual", "a", 1.0)
        assert store.in_hand() == [(0, "manual", "a")]
        store.end(0, "manual", FIRST, 1.0)
        assert store.counts() == {"manual": {"running": 0.25, "compiled": 2, "checked": 1}}
        assert store.table("regions") == [("manual", "gamma", 1), ("manual", "n = 1", 1)]
        assert store.in_hand() == []
        assert not any(seen(path).values())
        store.end(0, "manual", FIRST, 1.0)
    assert store.counts()["manual"]["checked"] == 2
    assert store.table("regions") == [("manual", "gamma", 2), ("manual", "n = 1", 2)]
