"""A campaign's memory on disk: one SQLite file in the run's folder.

Everything that a campaign knows goes through here, so that a run that was killed goes on where it stopped. A case is written
down before it runs (`hand`) and taken off when its result is counted, in one transaction with the counts: whatever ends the
main process, no more than the cases in hand are lost. A transaction keeps its sums here and writes them at its end: a case
counts in some fifty rows, and many that arrive together count in the same ones. Only counts grow with the campaign, and
their keys are bounded; cases are kept where they are in hand, in a finding, or the worst of an output.

Where the file cannot be written any more (the disk is full, say), the run goes on in memory, and is written once it can be.
"""

import json
import math
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from mhc.files import Held, hold, refuse_links
from mhc.fuzz.worker.protocol import Checked

FILE = "campaign.sqlite"
LOCK = "campaign.lock"
VERSION = 2
_AGAIN = 30.0  # seconds between tries to write a file that could not be written
_LOOK = 5.0  # seconds between looks whether the file is still there
TICK = 10.0
"""Seconds of campaign time in one point of the timeline."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE hand (slot INTEGER PRIMARY KEY, implementation TEXT NOT NULL, "case" TEXT NOT NULL, begun REAL NOT NULL);
CREATE TABLE counts
    (implementation TEXT, what TEXT, n REAL NOT NULL, PRIMARY KEY (implementation, what)) WITHOUT ROWID;
CREATE TABLE regions
    (implementation TEXT, label TEXT, n INTEGER NOT NULL, PRIMARY KEY (implementation, label)) WITHOUT ROWID;
CREATE TABLE ratios
    (implementation TEXT, subject TEXT, bin INTEGER, n INTEGER NOT NULL, PRIMARY KEY (implementation, subject, bin))
    WITHOUT ROWID;
CREATE TABLE worst
    (implementation TEXT, subject TEXT, ratio REAL NOT NULL, "case" TEXT NOT NULL, PRIMARY KEY (implementation, subject))
    WITHOUT ROWID;
CREATE TABLE reached
    (implementation TEXT, symbol TEXT, size INTEGER NOT NULL, PRIMARY KEY (implementation, symbol)) WITHOUT ROWID;
CREATE TABLE timeline
    (implementation TEXT, tick INTEGER, n INTEGER NOT NULL, PRIMARY KEY (implementation, tick)) WITHOUT ROWID;
CREATE TABLE findings
    (id TEXT PRIMARY KEY, document TEXT NOT NULL, seen INTEGER NOT NULL, state TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE restarts
    (implementation TEXT, reason TEXT, n INTEGER NOT NULL, PRIMARY KEY (implementation, reason)) WITHOUT ROWID;
CREATE TABLE legs (number INTEGER PRIMARY KEY, started REAL NOT NULL, seconds REAL NOT NULL, ended TEXT NOT NULL);
"""


# How sums are added to their tables.
_SUMS = {
    "counts": "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
    "regions": "INSERT INTO regions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
    "ratios": "INSERT INTO ratios VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
    "timeline": "INSERT INTO timeline VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
    "restarts": "INSERT INTO restarts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
}


class StoreError(Exception):
    """A file that is no campaign's, or of another version, or that another process has."""


class Store:
    """An open campaign. Writes outside of a `batch` are transactions of their own.

    Counts are by implementation and word: `checked` and `refused` cases, `failing` ones, `compiled` programs, and seconds in
    `running`, `reference`, `checking`, `comparing`, `compiling`, `drawing`, `starting`. `checking` includes `running`,
    `reference` and `comparing`; `compiling` is its part on cases for which something was compiled. There are counts of
    comparisons (`compared with golden`) and of what was judged of each output (`judged: dx`, see `unjudged`).

    Attributes:
        trouble: why the file could not be written, while it cannot.
    """

    def __init__(self, path: Path) -> None:
        """Open the store that a campaign has made; it may be another person's.

        Raises:
            StoreError: it is none of this version.
        """
        _refuse_others(path)
        self._open(path)
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found != VERSION:
                raise StoreError(f"{path}: is of version {found}; this one reads version {VERSION}")
            if _schema(self._connection) != _schema(_made(sqlite3.connect(":memory:"))):
                raise StoreError(f"{path}: is not a campaign's file (it has other tables)")
            (told,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if told != "ok":
                raise StoreError(f"{path}: is damaged ({told})")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"{path}: is not a campaign's file ({error})") from error
        except StoreError:
            self._connection.close()
            raise

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the store of a new campaign.

        Raises:
            FileExistsError: there is something at `path`.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
        store = cls.__new__(cls)
        store._open(path)
        _made(store._connection)
        return store

    def _open(self, path: Path) -> None:
        self._clear()
        self._batched = False
        self._path = path
        self._lock: int | None = None
        self._log: list[tuple[str, Sequence[Any], bool]] = []  # what the open transaction has written
        self._tried = self._looked = 0.0
        self.trouble: str | None = None
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._inode = _inode(path)
        try:
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._connection.execute(
                "PRAGMA journal_mode = WAL"
            )  # readers do not wait, and a killed writer corrupts nothing
            self._connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"{path}: is not a campaign's file ({error})") from error

    def claim(self) -> None:
        """Keep other processes from going on with the run, until `close` or the end of this one.

        Raises:
            StoreError: another one does.
        """
        try:
            self._lock = hold(self._path.with_name(LOCK))
        except Held as error:
            raise StoreError(f"{self._path.parent}: its campaign is still running") from error

    def close(self) -> None:
        """Write what is not in the file yet, if it can be, and let go of it."""
        self._back_to_the_file()
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction for what is written in the block: all of it or nothing."""
        if self._batched:
            yield
            return
        self._batched = True
        try:
            self._look()
            yield
            self._write()
            if self._connection.in_transaction:
                self._run("COMMIT")
            self._log.clear()
        except BaseException:
            self._clear()
            self._log.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._batched = False
        if self.trouble is not None and time.monotonic() - self._tried > _AGAIN:
            self._back_to_the_file()

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Write at once, in the transaction that is open, if there is one."""
        with self.batch():
            self._begin()
            return self._logged(statement, values)

    def _begin(self) -> None:
        if not self._connection.in_transaction:  # most batches of a busy campaign have nothing to write
            self._run("BEGIN IMMEDIATE")

    def _logged(self, statement: str, values: Sequence[Any], *, many: bool = False) -> sqlite3.Cursor:
        """Run a statement that writes, and remember it until the transaction is on disk."""
        cursor = self._run(statement, values, many=many)
        self._log.append((statement, values, many))
        return cursor

    def _run(self, statement: str, values: Sequence[Any] = (), *, many: bool = False) -> sqlite3.Cursor:
        """Run a statement, in memory from now on where the file cannot be written."""
        try:
            return (self._connection.executemany if many else self._connection.execute)(statement, values)
        except sqlite3.OperationalError as error:
            if self.trouble is not None:
                raise
            self._go_on_in_memory(error)
            return self._run(statement, values, many=many)

    def _look(self) -> None:
        """See now and then whether the file is still there: what is written to one that was removed is lost unsaid."""
        if self.trouble is None and time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            if _inode(self._path) != self._inode:
                self._go_on_in_memory(sqlite3.OperationalError("it was removed"))

    def _go_on_in_memory(self, error: sqlite3.OperationalError) -> None:
        """Copy what is in the file, and repeat there what the open transaction has written."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        memory = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.backup(memory)
        self._connection.close()
        self._connection, self._tried = memory, time.monotonic()
        self.trouble = f"{self._path.name} cannot be written ({error})"
        memory.execute("BEGIN")
        for statement, values, many in self._log:
            (memory.executemany if many else memory.execute)(statement, values)

    def _back_to_the_file(self) -> None:
        """Write what is in memory to the file, if that can be done by now."""
        if self.trouble is None:
            return
        self._tried = time.monotonic()
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = sqlite3.connect(self._path, isolation_level=None)
        except sqlite3.OperationalError:
            return
        try:
            self._connection.backup(file)
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.OperationalError:
            file.close()
            return
        self._connection.close()
        self._connection, self.trouble, self._inode = file, None, _inode(self._path)

    def _clear(self) -> None:
        self._sums: dict[str, defaultdict[tuple[str | int, ...], float]] = {table: defaultdict(int) for table in _SUMS}
        self._worst: dict[tuple[str, str], tuple[float, str]] = {}
        self._reached: dict[tuple[str, str], int] = {}
        self._hand: dict[int, tuple[str, str, float] | None] = {}

    def _write(self) -> None:
        """Write down what the batch has kept here so far."""
        if not (self._hand or self._worst or self._reached or any(self._sums.values())):
            return
        self._begin()

        def write(statement: str, rows: Sequence[Sequence[Any]]) -> None:
            self._logged(statement, rows, many=True)

        for table, sums in self._sums.items():
            if sums:
                write(_SUMS[table], [(*key, n) for key, n in sums.items() if n])
        if self._worst:
            write(
                'INSERT INTO worst VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET ratio = excluded.ratio, "case" ='
                ' excluded."case" WHERE excluded.ratio > ratio',
                [(*key, *found) for key, found in self._worst.items()],
            )
        if self._reached:
            write(
                "INSERT INTO reached VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET size = excluded.size WHERE excluded.size > size",
                [(*key, size) for key, size in self._reached.items()],
            )
        if self._hand:
            write("DELETE FROM hand WHERE slot = ?", [(slot,) for slot in self._hand])
            held = [(slot, *row) for slot, row in self._hand.items() if row is not None]
            write("INSERT INTO hand VALUES (?, ?, ?, ?)", held)
        self._clear()

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        if self._batched:
            self._write()
        return list(self._connection.execute(statement))

    def set_meta(self, **values: Any) -> None:
        with self.batch():
            for key, value in values.items():
                self._execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def meta(self) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self._connection.execute("SELECT key, value FROM meta")}

    def begin(self, slot: int, implementation: str, case: str, at: float) -> None:
        """Write a case down before it runs."""
        with self.batch():
            self._hand[slot] = (implementation, case, at)

    def drop(self, slot: int) -> None:
        """Take a slot's case off without counting it."""
        with self.batch():
            self._hand[slot] = None

    def end(self, slot: int, implementation: str, checked: Checked, at: float) -> None:
        """Count a case that ran, and take it off the slot's hand."""
        with self.batch():
            self._hand[slot] = None
            counts = self._sums["counts"]
            for what, seconds in checked.seconds.items():
                counts[implementation, what] += max(0.0, seconds)  # a kernel may have changed its process's clocks
            counts[implementation, "compiled"] += max(0, checked.compiled)  # it counts for itself
            counts[implementation, "refused" if checked.refused else "checked"] += 1
            counts[implementation, "failing"] += bool(checked.findings)
            for words in checked.compared:
                counts[implementation, words] += 1
            for subject, outcome in checked.outcomes.items():
                counts[implementation, f"{outcome}: {subject}"] += 1
            self._sums["timeline"][implementation, int(at / TICK)] += 1
            for label in checked.regions:
                self._sums["regions"][implementation, label] += 1
            for symbol, size in checked.sizes.items():
                key = implementation, symbol
                self._reached[key] = max(self._reached.get(key, 0), size)
            for subject, ratio in checked.ratios.items():
                if math.isnan(ratio):
                    continue
                self._sums["ratios"][implementation, subject, ratio_bin(ratio)] += 1
                before = self._worst.get((implementation, subject))
                if before is None or ratio > before[0]:
                    self._worst[implementation, subject] = (ratio, checked.case)

    def count(self, implementation: str, what: str, n: float) -> None:
        with self.batch():
            self._sums["counts"][implementation, what] += max(0.0, n)

    def restart(self, implementation: str, reason: str) -> None:
        """Count a worker that had to be replaced."""
        with self.batch():
            self._sums["restarts"][implementation, reason] += 1

    def keep(self, id_: str, document: Mapping[str, Any], state: str, at: float) -> None:
        """Write a finding down, or replace it by a smaller one. state: raw or minimal."""
        self._execute(
            "INSERT INTO findings VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET document = excluded.document, state ="
            " excluded.state",
            (id_, json.dumps(document), state, at),
        )

    def seen(self, id_: str) -> None:
        """Count a finding that is known already."""
        self._execute("UPDATE findings SET seen = seen + 1 WHERE id = ?", (id_,))

    def findings(self) -> dict[str, dict[str, Any]]:
        """By id: `document`, `seen`, `state`, and `at`, seconds of campaign time when it was first met."""
        rows = self._read("SELECT id, document, seen, state, at FROM findings ORDER BY at, id")
        return {
            id_: {"document": json.loads(document), "seen": seen, "state": state, "at": at}
            for id_, document, seen, state, at in rows
        }

    def in_hand(self) -> list[tuple[int, str, str]]:
        """(slot, implementation, case) of what was begun and not counted."""
        return [
            (slot, name, case)
            for slot, name, case in self._read('SELECT slot, implementation, "case" FROM hand ORDER BY slot')
        ]

    def counts(self) -> dict[str, dict[str, float]]:
        """By implementation and word."""
        found: dict[str, dict[str, float]] = {}
        for implementation, what, n in self._read("SELECT implementation, what, n FROM counts"):
            found.setdefault(implementation, {})[what] = n
        return found

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of regions, ratios, worst, reached, timeline, restarts or legs, in the order of their keys."""
        assert name in {"regions", "ratios", "worst", "reached", "timeline", "restarts", "legs"}, name
        return self._read(f"SELECT * FROM {name} ORDER BY 1, 2, 3")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """All rows of any table, as they are."""
        assert name.isidentifier(), name
        return self._read(f"SELECT * FROM {name}")

    def begin_leg(self, started: float) -> int:
        """A leg is one process's part of a campaign; `started` is the time of day. Its number."""
        cursor = self._execute("INSERT INTO legs (started, seconds, ended) VALUES (?, 0, 'killed')", (started,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def tell_leg(self, number: int, seconds: float, ended: str = "killed") -> None:
        """How long a leg has run, now and then, and in the end how it ended."""
        self._execute("UPDATE legs SET seconds = ?, ended = ? WHERE number = ?", (seconds, ended, number))

    def seconds(self) -> float:
        """Campaign time of all legs."""
        return float(self._connection.execute("SELECT COALESCE(SUM(seconds), 0) FROM legs").fetchone()[0])


def _made(connection: sqlite3.Connection) -> sqlite3.Connection:
    """`connection` with the tables of a new store."""
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}; PRAGMA user_version = {VERSION}; COMMIT")
    return connection


def _schema(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return list(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"))


def _refuse_others(path: Path) -> None:
    """Refuse what SQLite would follow out of the folder, or create.

    A journal of the kind that is rolled back can name a file to delete; a store has the other kind, a write-ahead log.
    """
    try:
        refuse_links(path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")))
        if not path.is_file() or not path.stat().st_size:
            raise StoreError(f"{path}: is {'empty' if path.is_file() else 'no file'}; there is no campaign in it")
    except OSError as error:
        raise StoreError(str(error)) from error
    if path.with_name(f"{path.name}-journal").exists():
        raise StoreError(f"{path}: has a journal beside it, {path.name}-journal, which no campaign leaves")


def ratio_bin(ratio: float) -> int:
    """The bin of an |error| / bound: its binary exponent, at most 4; -40 and less, and 0, in one."""
    return -40 if ratio <= 2.0**-40 else min(4, math.ceil(math.log2(ratio))) if math.isfinite(ratio) else 4


def _inode(path: Path) -> int | None:
    """Which file is at a path; None where there is none."""
    with suppress(OSError):
        return path.stat().st_ino
    return None
