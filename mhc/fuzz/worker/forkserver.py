"""Starts fresh processes, and ends what they leave running.

A process is forked from a server that has imported PyTorch but no DSL and has run no kernel. A start takes hundredths of a
second instead of three seconds, and a crash costs one process. The variables of an implementation are set before anything
imports a DSL. The server adopts what a process leaves running (`preload`), so that `end_orphans` can find and end it.
"""

import fcntl
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

UNKNOWN = 1 << 16
"""Exit status of a process whose server was killed."""

_STARTING = threading.Lock()
_live: set[int] = set()  # processes that were started and have not ended, as far as is known
_GENERATIONS = 50  # times to look for children of killed processes, which the server adopts
_PAUSE = 0.01  # seconds between two looks
_YOUNG = 60.0  # seconds since a folder for sockets was changed, before it may be removed
_LAST = 1.0  # seconds to wait for a process that is being started

FORKSERVER: Any
if "forkserver" in multiprocessing.get_all_start_methods():
    from multiprocessing import context, forkserver, popen_forkserver, util

    class _Popen(popen_forkserver.Popen):
        """A process whose exit status one thread at a time reads.

        Starting a process polls all others. If two threads poll an ended process, the second finds the pipe empty and would
        report exit 255, whatever the status was.
        """

        def __init__(self, process_obj: Any) -> None:
            self._reading = threading.Lock()
            super().__init__(process_obj)

        def _launch(self, process_obj: Any) -> None:
            with _STARTING:
                _keep_sockets_apart()
                _continue_server()
                super()._launch(process_obj)  # type: ignore[misc]
                _live.add(self.pid)

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            if self.returncode is None and flag != os.WNOHANG:
                multiprocessing.connection.wait([self.sentinel])
            with self._reading:
                status = self.returncode
                if status is None and multiprocessing.connection.wait([self.sentinel], 0):
                    try:
                        status = forkserver.read_signed(self.sentinel)
                    except (OSError, EOFError):  # the server is gone, and with it the exit status
                        status = UNKNOWN
                    self.returncode = status
            if status is not None:
                _live.discard(self.pid)
            return status

    def _keep_sockets_apart() -> None:
        """Let the server listen in a folder outside TMPDIR, which a kernel may delete, or whose name may be too long."""
        own: Any = multiprocessing.current_process()
        if "tempdir" not in own._config:
            there = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = own._config["tempdir"] = tempfile.mkdtemp(prefix="mhc-", dir=there)
            if there is not None:
                fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends
                _remove_left(Path(there))
            util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-100)  # after everything that uses it

    def _remove_left(place: Path) -> None:
        """Remove the folders of killed processes: those without a lock, and without a socket that listens (older versions).

        The system tells what listens: a server that is connected to without a request ends.
        """
        with suppress(OSError):
            listening = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
            for folder in place.glob("mhc-????????"):
                with suppress(OSError):
                    _remove_unless_used(folder, listening)

    def _remove_unless_used(folder: Path, listening: str) -> None:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            about = os.fstat(number)
            young = time.time() - about.st_mtime < _YOUNG  # it may not be locked yet
            if young or about.st_uid != os.getuid() or f"{folder}/" in listening:
                return
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.iterdir():
                if path.is_socket():
                    path.unlink()
            folder.rmdir()
        finally:
            os.close(number)

    def _continue_server() -> None:
        """Continue the server if something has stopped it: a request to a stopped server would wait forever."""
        server = getattr(forkserver._forkserver, "_forkserver_pid", None)
        with suppress(OSError):
            if server is not None and status(server)[0] == "T":
                os.kill(server, signal.SIGCONT)

    class _Process(context.ForkServerProcess):
        @staticmethod
        def _Popen(process_obj: Any) -> Any:
            return _Popen(process_obj)

        def run(self) -> None:
            # as in a process that was not forked: otherwise locks of progress bars leak, with a warning, when it is killed
            multiprocessing.set_start_method(None, force=True)
            super().run()

    class _Context(context.ForkServerContext):
        Process = _Process

    FORKSERVER = _Context()
    FORKSERVER.set_forkserver_preload(["mhc.fuzz.worker.preload"])

    def start_server() -> None:
        """Start the server that processes are forked from, unless it runs."""
        with _STARTING:
            _keep_sockets_apart()
            forkserver.ensure_running()

    def end_orphans() -> None:
        """Kill what ended processes left running, and the children of that."""
        server = getattr(forkserver._forkserver, "_forkserver_pid", None)
        if server is None:
            return
        with _STARTING:  # a process that is being started is a child of the server too, and not in `_live` yet
            for _ in range(_GENERATIONS):
                orphans = [pid for pid in children(server) if pid not in _live]
                if not orphans:
                    return
                for pid in orphans:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(_PAUSE)

    def stop_starting() -> None:
        """Let no thread start another process: one that is half started would print an error when this process ends."""
        _STARTING.acquire(timeout=_LAST)  # never released

else:
    FORKSERVER = multiprocessing.get_context("spawn")

    def start_server() -> None:
        """Do nothing: there is no server."""

    def stop_starting() -> None:
        """Do nothing: a spawned process prints no error when this one ends."""

    def end_orphans() -> None:
        """Do nothing: there is no server that adopts what a process leaves running."""


def status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name; the first is the state: R running, T stopped.

    Raises:
        OSError: the process has ended, or the system has no such file.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, also where the one that started it has not waited for it."""
    try:
        return status(pid)[0] == "Z"
    except OSError:
        return True


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, with all that those have started."""
    found = children(pid)
    for one in found:  # the list grows in this loop
        found += children(one)
    return found


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and not waited for, as far as /proc lists them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(one) for one in (thread / "children").read_text(encoding="ascii").split()]
    return found
