"""The SQLite file of a run: transactions, which go on in memory while the file cannot be written."""

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mhc.files import Held, hold, refuse_links

LOCK = "campaign.lock"
_AGAIN = 30.0  # seconds between tries to write a file that could not be written
_LOOK = 5.0  # seconds between looks whether the file is still there


class StoreError(Exception):
    """A file that is no campaign's, or of another version, or that another process has."""


class Database(ABC):
    """An open SQLite file. Writes outside of a `batch` are transactions of their own.

    Where the file cannot be written any more (the disk is full, say), the run goes on in memory, and is written once it can
    be.

    Attributes:
        trouble: why the file could not be written, while it cannot.
    """

    @abstractmethod
    def flush(self) -> None:
        """Write what the open batch has kept in memory, with `_logged`."""

    @abstractmethod
    def discard(self) -> None:
        """Forget what the open batch has kept in memory."""

    def _open(self, path: Path) -> None:
        self.discard()
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
            # readers do not wait, and a killed writer corrupts nothing
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"{path}: is not a campaign's file ({error})") from error

    def claim(self) -> None:
        """Keep other processes from resuming the run, until `close` or the end of this one.

        Raises:
            StoreError: another one does.
        """
        try:
            self._lock = hold(self._path.with_name(LOCK))
        except Held as error:
            raise StoreError(f"{self._path.parent}: its campaign is still running") from error

    def close(self) -> None:
        """Write what is not in the file yet, if it can be, and let go of it."""
        if self._lock is not None:  # only the campaign itself writes a removed file again
            self.save()
        else:
            self._back_to_the_file()
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save(self) -> str | None:
        """Check that the file still exists, and write it again if not, or if it could not be written before.

        Returns:
            why it could not be written until now; `trouble` says whether it still cannot.
        """
        self._looked = -_LOOK
        with self.batch():
            trouble = self.trouble
        self._back_to_the_file()
        return trouble

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Write what the block writes in one transaction: all of it or nothing."""
        if self._batched:
            yield
            return
        self._batched = True
        try:
            self._look()
            yield
            self.flush()
            if self._connection.in_transaction:
                self._run("COMMIT")
            self._log.clear()
        except BaseException:
            self.discard()
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
        """Check from time to time that the file still exists: writes to a removed file are lost without an error."""
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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._hold_again()
        except (OSError, Held):  # another campaign may have the folder's name by now
            return
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

    def _hold_again(self) -> None:
        """Lock the folder's new lock file, if the one that is locked was removed with the folder."""
        path = self._path.with_name(LOCK)
        if self._lock is not None and os.fstat(self._lock).st_ino != _inode(path):
            held = hold(path)
            os.close(self._lock)
            self._lock = held

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        if self._batched:
            self.flush()
        return list(self._connection.execute(statement))


def refuse_others(path: Path) -> None:
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


def _inode(path: Path) -> int | None:
    """Return which file is at a path; None where there is none."""
    with suppress(OSError):
        return path.stat().st_ino
    return None
