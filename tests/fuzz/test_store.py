"""The campaign's file: what a batch is, and what is read in the middle of one."""

import hashlib
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mhc.fuzz.campaign import database
from mhc.fuzz.campaign import store as store_tables
from mhc.fuzz.campaign.store import FILE, Store, StoreError, ratio_bin
from mhc.fuzz.worker.protocol import Checked
from tests.fuzz.test_minimise import WRONG, found

FINDING = found(WRONG)
FIRST = Checked(
    case="a",
    regions=frozenset({"n = 1", "gamma"}),
    ratios={"dx": 0.5},
    seconds={"running": 0.25},
    compiled=2,
    sizes={"n": 3, "D": 40},
)
SECOND = Checked(
    case="b",
    regions=frozenset({"gamma"}),
    ratios={"dx": 0.75},
    seconds={"running": 0.5},
    findings=(FINDING,),
    sizes={"n": 2, "D": 41},
)
THIRD = Checked(case="c", ratios={"dx": 0.75, "h_in": 3.0}, refused="odd D", compared=("compared with golden",))
FOURTH = Checked(case="d", sizes={"S": 1}, regions=frozenset({"n = 1"}), ratios={"dx": 0.25}, findings=(FINDING, FINDING))


def seen(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What somebody else reads in the file."""
    other = sqlite3.connect(path)
    names = ("hand", "counts", "regions", "ratios", "worst", "reached", "timeline", "restarts")
    rows = {name: list(other.execute(f"SELECT * FROM {name}")) for name in names}
    other.close()
    return rows


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(tmp_path / FILE)
    store.set_meta(a=1)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(100):
        with store.batch():
            store.set_meta(**{f"key {number}": "x" * 500})
            store.count("manual", f"word {number}", 1)
            assert len(store.counts()["manual"]) == number + 1
    assert store.trouble == f"{FILE} cannot be written (database or disk is full)"
    written = len(seen(tmp_path / FILE)["counts"])
    assert written < 100
    play(store)
    monkeypatch.setattr(database, "_AGAIN", 0.0)
    store.count("manual", "after", 1)
    assert not store.trouble, "there is room again"
    assert len(seen(tmp_path / FILE)["counts"]) > 100
    store.count("manual", "later", 1)
    store.close()
    again = Store(tmp_path / FILE)
    assert {"word 99", "after", "later", "checked"} <= set(again.counts()["manual"])
    assert len(again.meta()) == 101
    again.close()


def test_a_file_that_is_removed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    store = Store.create(folder / FILE)
    store.count("manual", "before", 1)
    monkeypatch.setattr(database, "_LOOK", 0.0)
    shutil.rmtree(folder)
    store.count("manual", "after", 1)
    assert store.trouble == f"{FILE} cannot be written (it was removed)"
    monkeypatch.setattr(database, "_AGAIN", 0.0)
    store.count("manual", "later", 1)
    assert not store.trouble
    store.count("manual", "last", 1)
    assert not store.trouble
    assert len(seen(folder / FILE)["counts"]) == 4
    store.close()


def test_a_file_that_is_removed_shortly_before_the_end_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    store = Store.create(folder / FILE)
    store.claim()
    store.count("manual", "before", 1)
    shutil.rmtree(folder)
    assert store.save() == f"{FILE} cannot be written (it was removed)"
    assert (store.trouble, store.save()) == (None, None)
    assert len(seen(folder / FILE)["counts"]) == 1
    with closing(Store(folder / FILE)) as other, pytest.raises(StoreError, match="still running"):
        other.claim()
    store.count("manual", "after", 1)
    shutil.rmtree(folder)
    store.close()
    assert len(seen(folder / FILE)["counts"]) == 2
    with closing(Store(folder / FILE)) as other:
        other.claim()
    reader = Store(folder / FILE)
    shutil.rmtree(folder)
    reader.close()
    assert not folder.exists(), "who only reads writes nothing"


def test_the_file_of_another_campaign_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    store = Store.create(tmp_path / "run" / FILE)
    store.claim()
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    with closing(Store.create(tmp_path / "run" / FILE)) as other:
        other.claim()
        other.count("golden", "checked", 1)
        store.count("manual", "checked", 1)
        store.close()
        assert other.counts() == {"golden": {"checked": 1}}
    assert seen(tmp_path / "run" / FILE)["counts"] == [("golden", "checked", 1)]


def test_in_trouble_it_is_not_looked_for_the_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOOK", 0.0)
    monkeypatch.setattr(database, "_AGAIN", 1e9)
    store = Store.create(tmp_path / FILE)
    store.trouble = "the disk is full"
    (tmp_path / FILE).unlink()
    store.count("manual", "after", 1)
    assert store.trouble == "the disk is full"


def test_a_batch_without_anything_to_write_is_no_transaction(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)
    said: list[str] = []
    store._connection.set_trace_callback(said.append)
    with store.batch(), store.batch():
        pass
    assert (said, store.trouble) == ([], None)
    with store.batch():
        store.count("manual", "checked", 1)
    assert (said[0], said[-1], store.trouble) == ("BEGIN IMMEDIATE", "COMMIT", None)

    def fail() -> None:
        with store.batch():
            raise KeyError("before anything is written")

    said.clear()
    with pytest.raises(KeyError):
        fail()
    assert (said, store.trouble) == ([], None)


def test_a_batch_that_fails_for_another_reason_is_undone(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)

    def fail() -> None:
        with store.batch():
            store.set_meta(a=1)
            store.count("manual", "checked", 1 / 0)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.meta(), store.counts(), store.trouble) == ({}, {}, None)


def play(store: Store) -> None:
    for slot, checked in ((0, FIRST), (1, SECOND), (0, THIRD), (1, FOURTH)):
        store.begin(slot, "manual", checked.case, 1.0)
        store.end(slot, "manual", checked, 12.0)
    store.begin(1, "manual", "e", 13.0)
    store.begin(2, "manual", "f", 14.0)
    store.drop(2)
    store.restart("manual", "hang")
    store.count("manual", "drawing", 0.125)


def test_many_in_one_batch_are_the_same_rows_as_each_on_its_own(tmp_path: Path) -> None:
    together, apart = Store.create(tmp_path / "together.sqlite"), Store.create(tmp_path / "apart.sqlite")
    with together.batch():
        play(together)
    play(apart)
    rows = seen(tmp_path / "together.sqlite")
    assert rows == seen(tmp_path / "apart.sqlite")
    assert rows == {
        "hand": [(1, "manual", "e", 13.0)],
        "counts": [
            ("manual", "checked", 3.0),
            ("manual", "compared with golden", 1.0),
            ("manual", "compiled", 2.0),
            ("manual", "drawing", 0.125),
            ("manual", "failing", 2.0),
            ("manual", "refused", 1.0),
            ("manual", "refused because odd D", 1.0),
            ("manual", "running", 0.75),
        ],
        "regions": [("manual", "gamma", 2), ("manual", "n = 1", 2)],
        "ratios": [("manual", "dx", -2, 1), ("manual", "dx", -1, 1), ("manual", "dx", 0, 2), ("manual", "h_in", 2, 1)],
        "worst": [("manual", "dx", 0.75, "b"), ("manual", "h_in", 3.0, "c")],
        "reached": [("manual", "D", 41), ("manual", "S", 1), ("manual", "n", 3)],
        "timeline": [("manual", 1, 4)],
        "restarts": [("manual", "hang", 1)],
    }


def test_what_a_full_disk_takes_of_a_batch_and_what_not_is_kept_together(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)
    with store.batch():
        play(store)
        assert store.counts()["manual"]["checked"] == 3, "which writes what there is so far"
        store._connection.execute(f"PRAGMA max_page_count = {store._connection.execute('PRAGMA page_count').fetchone()[0]}")
        store.set_meta(small=1)
        store.set_meta(large="x" * 100_000)
        store.count("manual", "checked", 1)
    assert store.trouble
    assert store.counts()["manual"]["checked"] == 4
    assert {name: len(str(value)) for name, value in store.meta().items()} == {"small": 1, "large": 100_000}
    assert store.in_hand() == [(1, "manual", "e")]


def test_the_largest_sizes_and_the_worst_ratios_stay_over_batches(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)
    for checked in (SECOND, FIRST, SECOND):
        store.end(0, "manual", checked, 1.0)
    assert store.table("reached") == [("manual", "D", 41), ("manual", "n", 3)]
    assert store.table("worst") == [("manual", "dx", 0.75, "b")]


@pytest.mark.parametrize(
    ("ratio", "wanted"),
    [
        *[(0.0, -40), (2.0**-60, -40), (2.0**-40, -40), (2.0**-40 * 1.01, -39), (2.0**-39, -39)],
        *[(0.5, -1), (0.51, 0), (1.0, 0), (1.01, 1), (2.0, 1), (8.5, 4), (16.0, 4), (17.0, 4), (1e300, 4), (math.inf, 4)],
    ],
)
def test_a_ratio_is_counted_by_its_exponent(ratio: float, wanted: int) -> None:
    assert ratio_bin(ratio) == wanted


def test_a_batch_that_fails_leaves_nothing_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / FILE
    store = Store.create(path)
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
    store = Store.create(path)
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


def test_a_change_of_the_tables_needs_another_version() -> None:
    """A run of an earlier version is refused by its number, and must not be by chance."""
    digest = hashlib.sha256(store_tables._SCHEMA.encode()).hexdigest()[:8]
    assert (store_tables.VERSION, digest) == (2, "2f6202c1")
