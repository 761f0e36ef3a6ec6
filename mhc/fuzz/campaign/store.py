"""A campaign's memory on disk: one SQLite file in the run's folder.

Everything that a campaign knows goes through here, so that a run that was killed goes on where it stopped. A case is written
down before it runs (`hand`) and taken off when its result is counted, in one transaction with the counts: whatever ends the
main process, no more than the cases in hand are lost. A transaction keeps its sums here and writes them at its end: a case
counts in some fifty rows, and many that arrive together count in the same ones. Only counts grow with the campaign, and
their keys are bounded; cases are kept where they are in hand, in a finding, or the worst of an output.
"""

import json
import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from mhc.fuzz.campaign.database import LOCK, Database, StoreError, refuse_others
from mhc.fuzz.worker.protocol import Checked

__all__ = ["FILE", "LOCK", "TICK", "VERSION", "Store", "StoreError", "ratio_bin"]

FILE = "campaign.sqlite"
VERSION = 2
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


REFUSED = "refused because "
"""Begins the word by which cases are counted that were refused for a reason."""
_REASON = 200  # characters of it that are kept


class Store(Database):
    """An open campaign. Writes outside of a `batch` are transactions of their own.

    Counts are by implementation and word: `checked` and `refused` cases, `failing` ones, `compiled` programs, and seconds in
    `running`, `reference`, `checking`, `comparing`, `compiling`, `drawing`, `starting`. `checking` includes `running`,
    `reference` and `comparing`; `compiling` is its part on cases for which something was compiled. There are counts of
    comparisons (`compared with golden`), of refusals (`refused because it is odd`), and of what was judged of each output
    (`judged: dx`, see `unjudged`).
    """

    def __init__(self, path: Path) -> None:
        """Open the store that a campaign has made; it may be another person's.

        Raises:
            StoreError: it is none of this version.
        """
        refuse_others(path)
        self._open(path)
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found != VERSION:
                raise StoreError(f"{path}: is of version {found}; this one reads version {VERSION}")
            with closing(sqlite3.connect(":memory:")) as memory:
                wanted = _schema(_made(memory))
            if _schema(self._connection) != wanted:
                raise StoreError(f"{path}: is not a campaign's file (it has other tables)")
            (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise StoreError(f"{path}: is damaged ({answer})")
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

    def discard(self) -> None:
        self._sums: dict[str, defaultdict[tuple[str | int, ...], float]] = {table: defaultdict(int) for table in _SUMS}
        self._worst: dict[tuple[str, str], tuple[float, str]] = {}
        self._reached: dict[tuple[str, str], int] = {}
        self._hand: dict[int, tuple[str, str, float] | None] = {}

    def flush(self) -> None:
        """Write down what the batch has kept here so far."""
        if not (self._hand or any(self._sums.values())):  # without which there is nothing else
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
        self.discard()

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
            if checked.refused:
                counts[implementation, f"{REFUSED}{checked.refused[:_REASON]}"] += 1
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

    def forget(self, id_: str) -> None:
        """Remove a finding."""
        self._execute("DELETE FROM findings WHERE id = ?", (id_,))

    def seen(self, id_: str) -> None:
        """Count a finding that is known already."""
        self._execute("UPDATE findings SET seen = seen + 1 WHERE id = ?", (id_,))

    def findings(self) -> dict[str, dict[str, Any]]:
        """Return the findings by id: `document`, `seen`, `state`, and `at`, the campaign time when it was first met."""
        rows = self._read("SELECT id, document, seen, state, at FROM findings ORDER BY at, id")
        return {
            id_: {"document": json.loads(document), "seen": seen, "state": state, "at": at}
            for id_, document, seen, state, at in rows
        }

    def in_hand(self) -> list[tuple[int, str, str]]:
        """Return the cases that were begun and not counted, as (slot, implementation, case)."""
        return [
            (slot, name, case)
            for slot, name, case in self._read('SELECT slot, implementation, "case" FROM hand ORDER BY slot')
        ]

    def counts(self) -> dict[str, dict[str, float]]:
        """Return the counts by implementation and word."""
        found: dict[str, dict[str, float]] = {}
        for implementation, what, n in self._read("SELECT implementation, what, n FROM counts"):
            found.setdefault(implementation, {})[what] = n
        return found

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of regions, ratios, worst, reached, timeline, restarts or legs, in the order of their keys."""
        assert name in {"regions", "ratios", "worst", "reached", "timeline", "restarts", "legs"}, name
        return self._read(f"SELECT * FROM {name} ORDER BY 1, 2, 3")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return all rows of any table, as they are."""
        assert name.isidentifier(), name
        return self._read(f"SELECT * FROM {name}")

    def begin_leg(self, started: float) -> int:
        """Begin a leg, one process's part of a campaign, and return its number; `started` is the time of day."""
        cursor = self._execute("INSERT INTO legs (started, seconds, ended) VALUES (?, 0, 'killed')", (started,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def tell_leg(self, number: int, seconds: float, ended: str = "killed") -> None:
        """Record how long a leg has run, and at its end how it ended."""
        self._execute("UPDATE legs SET seconds = ?, ended = ? WHERE number = ?", (seconds, ended, number))

    def seconds(self) -> float:
        """Return the campaign time of all legs."""
        return float(self._connection.execute("SELECT COALESCE(SUM(seconds), 0) FROM legs").fetchone()[0])


def _made(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return `connection` with the tables of a new store."""
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}; PRAGMA user_version = {VERSION}; COMMIT")
    return connection


def _schema(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return list(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"))


def ratio_bin(ratio: float) -> int:
    """Return the bin of an |error| / bound: its binary exponent, at most 4; -40 and less, and 0, in one."""
    return -40 if ratio <= 2.0**-40 else min(4, math.ceil(math.log2(ratio))) if math.isfinite(ratio) else 4
