"""A campaign's memory on disk: one SQLite file in the run's folder.

Everything that a campaign knows goes through here, so that a run that was killed goes on where it stopped. A case is written
down before it runs (`hand`) and taken off when its result is counted, in one transaction with the counts: whatever ends the
main process, no more than the cases in hand are lost. Only counts grow with the campaign, and their keys are bounded; cases
are kept where they are in hand, in a finding, or the worst of an output.
"""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mhc.fuzz.messages import Checked

FILE = "campaign.sqlite"
VERSION = 1
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
CREATE TABLE timeline
    (implementation TEXT, tick INTEGER, n INTEGER NOT NULL, PRIMARY KEY (implementation, tick)) WITHOUT ROWID;
CREATE TABLE findings
    (id TEXT PRIMARY KEY, document TEXT NOT NULL, seen INTEGER NOT NULL, state TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE restarts
    (implementation TEXT, reason TEXT, n INTEGER NOT NULL, PRIMARY KEY (implementation, reason)) WITHOUT ROWID;
CREATE TABLE legs (number INTEGER PRIMARY KEY, started REAL NOT NULL, seconds REAL NOT NULL, ended TEXT NOT NULL);
"""


class StoreError(Exception):
    """A file that is no campaign's, or of another version."""


class Store:
    """An open campaign. Writes outside of a `batch` are transactions of their own.

    Counts are by implementation and word: `checked` and `refused` cases, `failing` ones, `probes` of shrinking, `compiled`
    programs, seconds in `running`, `reference`, `checking`, `comparing`, `compiling`, `drawing`, `starting`; `checking` has
    the two before it and `comparing` in it, `compiling` is the part of it on cases for which something was compiled. And who
    was `compared with` whom.
    """

    def __init__(self, path: Path) -> None:
        new = not path.exists()
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            self._connection.execute(
                "PRAGMA journal_mode = WAL"
            )  # readers do not wait, and a killed writer corrupts nothing
            self._connection.execute("PRAGMA synchronous = NORMAL")
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if new or (found == 0 and not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()):
                with self.batch():
                    for statement in _SCHEMA.strip().split(";\n"):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version = {VERSION}")
                found = VERSION
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"{path}: is not a campaign's file ({error})") from error
        if found != VERSION:
            self._connection.close()
            raise StoreError(f"{path}: is of version {found}; this one reads version {VERSION}")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction for what is written in the block: all of it or nothing."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def set_meta(self, **values: Any) -> None:
        with self.batch():
            for key, value in values.items():
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def meta(self) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self._connection.execute("SELECT key, value FROM meta")}

    def begin(self, slot: int, implementation: str, case: str, at: float) -> None:
        """Write a case down before it runs."""
        self._connection.execute("INSERT OR REPLACE INTO hand VALUES (?, ?, ?, ?)", (slot, implementation, case, at))

    def drop(self, slot: int) -> None:
        """Take a slot's case off without counting it."""
        self._connection.execute("DELETE FROM hand WHERE slot = ?", (slot,))

    def end(self, slot: int, implementation: str, checked: Checked, at: float) -> None:
        """Count a case that ran, and take it off the slot's hand. Probes of shrinking count as such and as nothing else."""
        with self.batch():
            self.drop(slot)
            for what, seconds in checked.seconds.items():
                self.count(implementation, what, seconds)
            self.count(implementation, "compiled", checked.compiled)
            if checked.probe:
                self.count(implementation, "probes", 1)
                return
            self.count(implementation, "refused" if checked.refused else "checked", 1)
            self.count(implementation, "failing", bool(checked.failures))
            for words in checked.compared:
                self.count(implementation, words, 1)
            self._add("timeline", (implementation, int(at / TICK)))
            for label in checked.regions:
                self._add("regions", (implementation, label))
            for subject, ratio in checked.ratios.items():
                self._add("ratios", (implementation, subject, ratio_bin(ratio)))
                self._connection.execute(
                    'INSERT INTO worst VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET ratio = excluded.ratio, "case" ='
                    ' excluded."case" WHERE excluded.ratio > ratio',
                    (implementation, subject, ratio, checked.case),
                )

    def count(self, implementation: str, what: str, n: float) -> None:
        if n:
            self._connection.execute(
                "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n", (implementation, what, n)
            )

    def restart(self, implementation: str, reason: str) -> None:
        """Count a worker that had to be replaced."""
        self._add("restarts", (implementation, reason))

    def _add(self, table: str, key: tuple[str | int, ...]) -> None:
        marks = ", ".join("?" * len(key))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks}, 1) ON CONFLICT DO UPDATE SET n = n + 1", key)

    def keep(self, id_: str, document: Mapping[str, Any], state: str, at: float) -> None:
        """Write a finding down, or replace it by a smaller one. States: raw, shrunk, minimal."""
        self._connection.execute(
            "INSERT INTO findings VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET document = excluded.document, state ="
            " excluded.state",
            (id_, json.dumps(document), state, at),
        )

    def seen(self, id_: str) -> None:
        """Count a finding that is known already."""
        self._connection.execute("UPDATE findings SET seen = seen + 1 WHERE id = ?", (id_,))

    def findings(self) -> dict[str, dict[str, Any]]:
        """By id: `document`, `seen`, `state`, and `at`, seconds of campaign time when it was first met."""
        rows = self._connection.execute("SELECT id, document, seen, state, at FROM findings ORDER BY at, id")
        return {
            id_: {"document": json.loads(document), "seen": seen, "state": state, "at": at}
            for id_, document, seen, state, at in rows
        }

    def in_hand(self) -> list[tuple[int, str, str]]:
        """(slot, implementation, case) of what was begun and not counted."""
        return list(self._connection.execute('SELECT slot, implementation, "case" FROM hand ORDER BY slot'))

    def counts(self) -> dict[str, dict[str, float]]:
        """By implementation and word."""
        found: dict[str, dict[str, float]] = {}
        for implementation, what, n in self._connection.execute("SELECT implementation, what, n FROM counts"):
            found.setdefault(implementation, {})[what] = n
        return found

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of regions, ratios, worst, timeline, restarts or legs, in the order of their keys."""
        assert name in {"regions", "ratios", "worst", "timeline", "restarts", "legs"}, name
        return list(self._connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3"))

    def begin_leg(self, started: float) -> int:
        """A leg is one process's part of a campaign; `started` is the time of day. Its number."""
        cursor = self._connection.execute("INSERT INTO legs (started, seconds, ended) VALUES (?, 0, 'killed')", (started,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def tell_leg(self, number: int, seconds: float, ended: str = "killed") -> None:
        """How long a leg has run, now and then, and in the end how it ended."""
        self._connection.execute("UPDATE legs SET seconds = ?, ended = ? WHERE number = ?", (seconds, ended, number))

    def seconds(self) -> float:
        """Campaign time of all legs."""
        return float(self._connection.execute("SELECT COALESCE(SUM(seconds), 0) FROM legs").fetchone()[0])


def ratio_bin(ratio: float) -> int:
    """The bin of an |error| / bound: its binary exponent, at most 4; -40 and less, and 0, in one."""
    return -40 if ratio <= 2.0**-40 else min(4, math.ceil(math.log2(ratio))) if math.isfinite(ratio) else 4
