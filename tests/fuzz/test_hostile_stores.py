"""Stores of anybody: each is reported, or refused with one line and status 2, and what was written before stays."""

import importlib
import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mhc import default_case, operator
from mhc.fuzz.campaign.store import FILE, Store, StoreError
from mhc.fuzz.campaign.store_validation import check_to_go_on
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.settings import Settings
from mhc.fuzz.report import Run, markdown, read
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.page import page
from mhc.fuzz.worker.protocol import Checked
from mhc.operator import register
from tests.support.mutated import mutated
from tests.support.report_stores import document, night, reduction

TABLES = ("meta", "hand", "counts", "regions", "ratios", "worst", "reached", "timeline", "findings", "restarts", "legs")
REPORTS = ("summary.md", "report.html", "junit.xml")


def made(folder: Path) -> Path:
    """A store with a row in each table, and reports of it, which say `old`."""
    folder.mkdir(exist_ok=True)
    night(folder, cases=3).close()
    with closing(Store(folder / FILE)) as store:
        store.set_meta(seconds=1.0, cases=None, seeds={"manual": 7}, fault=None, chosen=False, max_elements=None, known=[])
        store.end(5, "manual", Checked(case=default_case().json, sizes={"B": 3}), 1.0)
        assert all(map(store.rows, TABLES))
    for name in REPORTS:
        (folder / name).write_text("old", encoding="utf-8")
    return folder / FILE


def fuzz(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def refused(folder: Path, *, resume: bool = True) -> str:
    """What is said of a run that can neither be reported nor resumed; its reports are as they were."""
    names = sorted(path.name for path in folder.iterdir())
    report = fuzz("report", folder)
    assert (report.exit_code, report.stdout) == (2, ""), report.output
    told = [report.stderr]
    if resume:
        again = fuzz("--resume", folder)
        assert (again.exit_code, again.stdout) == (2, ""), again.output
        told.append(again.stderr)
    for text in told:
        assert "Traceback" not in text
        assert text.count("Error: ") == 1
        assert len(text) < 1500
    for name in REPORTS:
        assert (folder / name).read_text(encoding="utf-8") == "old"
    assert {path.name for path in folder.iterdir()} - {f"{FILE}-wal", f"{FILE}-shm"} <= set(names)
    return report.stderr


def edited(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement, values)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text(json.dumps({"no": "database"}) * 100, encoding="utf-8")


def cut_short(path: Path) -> None:
    edited(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[: 3 * 4096 + 100])


def overwritten(path: Path) -> None:
    edited(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole = bytearray(path.read_bytes())
    whole[2 * 4096 : 4 * 4096] = bytes(range(256)) * 32
    path.write_bytes(whole)


SCHEMAS: dict[str, Callable[[Path], None]] = {
    "empty": empty,
    "no database": text,
    "cut short": cut_short,
    "overwritten": overwritten,
    "another version": lambda path: edited(path, "PRAGMA user_version = 1"),
    "a version to come": lambda path: edited(path, "PRAGMA user_version = 99"),
    "no tables": lambda path: edited(path, *(f"DROP TABLE {name}" for name in TABLES)),
    "a table less": lambda path: edited(path, "DROP TABLE counts"),
    "a table more": lambda path: edited(path, "CREATE TABLE more (a)"),
    "a view": lambda path: edited(
        path, "DROP TABLE counts", "CREATE VIEW counts AS SELECT 'manual' AS implementation, 'checked' AS what, 1 AS n"
    ),
    "a trigger": lambda path: edited(path, "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM findings; END"),
    "an index": lambda path: edited(path, "CREATE INDEX i ON meta (lower(value))"),
    "other columns": lambda path: edited(path, "ALTER TABLE legs ADD COLUMN more TEXT"),
}


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_store_that_is_not_ours_is_refused(what: str, tmp_path: Path) -> None:
    path = made(tmp_path)
    SCHEMAS[what](path)
    before = path.read_bytes()
    refused(tmp_path)
    assert path.read_bytes() == before, "and not made into one"


def test_only_a_new_run_makes_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no file"):
        Store(tmp_path / FILE)
    assert list(tmp_path.iterdir()) == []
    Store.create(tmp_path / FILE).close()
    Store(tmp_path / FILE).close()
    with pytest.raises(FileExistsError):
        Store.create(tmp_path / FILE)


def journal(path: Path, deleted: Path) -> None:
    """A journal that is to be rolled back, and names a file which is deleted then."""
    magic = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    pages = path.stat().st_size // 4096
    head = magic + struct.pack(">5I", 0, 0, pages, 512, 4096)
    name = str(deleted).encode()
    end = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    path.with_name(f"{FILE}-journal").write_bytes(head.ljust(512, b"\0") + end)


def test_a_store_with_a_journal_deletes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "run")
    edited(path, "PRAGMA journal_mode = DELETE")
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="utf-8")
    journal(path, precious)
    assert "has a journal beside it" in refused(tmp_path / "run")
    assert precious.exists()
    with closing(sqlite3.connect(path)) as connection:  # the reason: this is all that it takes
        connection.execute("SELECT * FROM meta").fetchone()
    assert not precious.exists()


def _of_a_finding(key: str, value: object) -> tuple[str, tuple[Any, ...]]:
    _, one = document("manual", "dx", "value", "m", reduction=reduction(4, 2, 1))
    return "UPDATE findings SET document = ?", (json.dumps({**one, key: value}),)


def _of_meta(key: str, value: str) -> tuple[str, tuple[Any, ...]]:
    return f"INSERT OR REPLACE INTO meta VALUES ('{key}', ?)", (value,)


ROWS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "meta that is not JSON": _of_meta("seed", "{"),
    "meta nested deeply": _of_meta("anything", "[" * 100_000),
    "a number of 5,000 digits": _of_meta("seed", "9" * 5000),
    "a seed that is text": _of_meta("seed", '"1"'),
    "a seed that is NaN": _of_meta("seed", "NaN"),
    "seconds that are infinite": _of_meta("seconds", "1e999"),
    "a device that is a command": _of_meta("device", '"cpu; touch X"'),
    "implementations that are text": _of_meta("implementations", '"manual"'),
    "implementations without a name": _of_meta("implementations", '[{"spec": "manual"}]'),
    "an implementation named by a number": _of_meta("implementations", '[{"name": 1, "spec": "manual"}]'),
    "partners that are a number": _of_meta("partners", "1"),
    "an environment that is a list": _of_meta("environment", "[]"),
    "packages that are a list": _of_meta("environment", '{"packages": [1]}'),
    "fixtures that are a list": _of_meta("fixtures", "[]"),
    "seeds that are text": _of_meta("seeds", '{"manual": "1"}'),
    "a finding that is not JSON": ("UPDATE findings SET document = 'no'", ()),
    "a finding that is a list": ("UPDATE findings SET document = '[]'", ()),
    "a finding without a case": _of_a_finding("case", None),
    "a finding whose fingerprint is text": _of_a_finding("fingerprint", "text"),
    "a finding whose reduction is text": _of_a_finding("reduction", "text"),
    "a finding whose variables are text": _of_a_finding("environment", {"variables": "text"}),
    "an id that is a path": ("UPDATE findings SET id = '../../ESCAPED' WHERE rowid = 1", ()),
    "an id of another finding": ("UPDATE findings SET id = '01234567' WHERE rowid = 1", ()),
    "an id that is a blob": ("UPDATE findings SET id = x'00' WHERE rowid = 1", ()),
    "a state that is none": ("UPDATE findings SET state = 'lost'", ()),
    "a count that is text": ("UPDATE counts SET n = 'many'", ()),
    "a count that is infinite": ("UPDATE counts SET n = 9e999", ()),
    "a count that is negative": ("UPDATE regions SET n = -1", ()),
    "a name that is a blob": ("UPDATE restarts SET reason = x'ff'", ()),
    "text that is not UTF-8": ("UPDATE restarts SET reason = CAST(x'ff' AS TEXT)", ()),
    "a bin that there is none of": ("UPDATE ratios SET bin = 100", ()),
    "a worst case that is none": ("UPDATE worst SET \"case\" = '[]'", ()),
    "a worst case of an operator that is a list": ('UPDATE worst SET "case" = \'{"operator": []}\'', ()),
    "a tick past all time": (
        "UPDATE timeline SET tick = 9223372036854775807 WHERE tick = (SELECT min(tick) FROM timeline)",
        (),
    ),
    "a leg that began never": ("UPDATE legs SET started = 1e300", ()),
    "a leg of text": ("UPDATE legs SET seconds = 'long'", ()),
    "a time that is infinite": ("UPDATE findings SET at = 9e999", ()),
}


@pytest.mark.parametrize("what", ROWS)
def test_a_value_that_no_campaign_writes_is_refused(what: str, tmp_path: Path) -> None:
    path = made(tmp_path)
    statement, values = ROWS[what]
    edited(path, statement.replace("UPDATE ", "UPDATE OR REPLACE "), values=values)
    refused(tmp_path)
    assert not (tmp_path.parent.parent / "ESCAPED.json").exists()


@pytest.mark.parametrize("key", ["implementations", "device", "seed", "seconds", "cases"])
def test_a_run_that_had_not_begun_is_reported_and_not_gone_on_with(key: str, tmp_path: Path) -> None:
    path = made(tmp_path)
    edited(path, "DELETE FROM meta WHERE key = ?", values=(key,))
    assert fuzz("report", tmp_path).exit_code == 1
    done = fuzz("--resume", tmp_path)
    assert done.exit_code == 2
    assert f"meta: {key} is missing" in done.stderr


@pytest.mark.parametrize("case", ["[" * 100_000, '{"B": ' + "[" * 900 + "]" * 900 + "}", "9" * 5000, "[]", "no case"])
def test_what_is_in_hand_is_shown_whatever_it_is(case: str, tmp_path: Path) -> None:
    """It may be what ended the process."""
    path = made(tmp_path)
    edited(path, 'UPDATE hand SET "case" = ?', values=(case,))
    assert fuzz("report", tmp_path).exit_code == 1


@operator(x="[T]", T=(1, 40))
def declared_before(x: Tensor) -> Tensor:
    return x * 2


def test_a_case_that_is_declared_otherwise_now_is_shown(tmp_path: Path) -> None:
    """A file was changed while its kernels were tested: a worker that started later has drawn the case of a fault."""
    register(declared_before)
    case = default_case(operator="declared_before").json.replace('"most":40', '"most":50')
    made(tmp_path)
    fault = {"implementation": "manual", "message": "CaseError", "trace": "", "case": case, "seen": 2, "at": 1.0}
    unfinished = {"implementation": "manual", "doing": "judging", "seconds": 1.0, "case": case}
    with closing(Store(tmp_path / FILE)) as store:
        store.set_meta(faults=[fault], unfinished=[unfinished])
    told = fuzz("report", tmp_path)
    assert told.exit_code == 3
    what = "a case that cannot be read (case: operator: 'declared_before' is declared otherwise now)"
    shown = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert f"- manual: CaseError; {what}; 2 times" in shown
    assert f"- manual: judging {what} for 1 s" in shown


def test_a_finding_on_what_the_run_does_not_check_is_not_made_smaller(tmp_path: Path) -> None:
    """It would be loaded for that."""
    path = made(tmp_path)
    with closing(Store(path)) as store:
        check_to_go_on(store)
        id_, one = document("manual", "dx", "value", "m", against="theirs.py:IMPL")
        store.keep(id_, one, "raw", 1.0)
        with pytest.raises(StoreError, match="is on what the run does not check"):
            check_to_go_on(store)


def test_a_report_that_cannot_be_made_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Run) -> str:
        raise ZeroDivisionError

    made(tmp_path)
    module = importlib.import_module("mhc.fuzz.report.write")  # of that name the package has a function too
    monkeypatch.setattr(module, "page", broken)  # the last of the three
    names = sorted(path.name for path in tmp_path.iterdir())
    assert fuzz("report", tmp_path).exit_code == 3
    assert [(tmp_path / name).read_text(encoding="utf-8") for name in REPORTS] == ["old"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_what_is_right_is_reported_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def run(settings: Settings) -> int:
        assert settings.seed == 1
        raise Reached

    made(tmp_path)
    monkeypatch.setattr("mhc.fuzz.cli.main.run_campaign", run)
    assert isinstance(CliRunner().invoke(main, ["--resume", str(tmp_path), "--trust"]).exception, SystemExit)
    assert fuzz("report", tmp_path).exit_code == 1
    assert "old" not in {(tmp_path / name).read_text(encoding="utf-8") for name in REPORTS}


ANY = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 0.5, 1e300, -1e300, float("inf"), float("nan")]),
    st.binary(max_size=3),
    st.text(st.characters(codec="utf-8"), max_size=4),
    st.sampled_from([default_case().json, "{}", "[]", "null", "1", "minimal", "manual", "checked"]),
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = made(tmp_path_factory.mktemp("template"))
    edited(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_store_is_a_run_or_a_store_error(data: st.DataObject, template: bytes, tmp_path: Path) -> None:
    """What is read is rendered too."""
    for old in tmp_path.iterdir():
        old.unlink()
    path = tmp_path / FILE
    path.write_bytes(template)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        table = data.draw(st.sampled_from(TABLES))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = data.draw(st.sampled_from(columns))
        rows = connection.execute(f'SELECT DISTINCT "{column}" FROM {table} ORDER BY 1').fetchall()
        (before,) = data.draw(st.sampled_from(rows))
        value = data.draw(ANY)
        if column in {"document", "value"} and data.draw(st.integers(0, 3)):
            value = json.dumps(data.draw(mutated(json.loads(before))))
        try:
            connection.execute(f'UPDATE OR REPLACE {table} SET "{column}" = ? WHERE "{column}" IS ?', (value, before))
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            return
    try:
        with closing(Store(path)) as store:
            run = read(tmp_path, store)
    except StoreError:
        return
    for render in (markdown, junit, page):
        assert render(run)
