"""How processes are made in which nothing was run, and what is left of them when they have ended.

A new one is forked from a server that has loaded PyTorch and no DSL, and has run no kernel: hundredths of a second instead
of three, and a crash costs one process. The variables of an implementation are set before anything imports a DSL. The server
adopts what such a process leaves running (`mhc.fuzz.worker.preload`), so that it can be found and ended: `end_orphans`.
"""

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
"""The exit status of a process whose server was killed."""

_STARTING = threading.Lock()
_live: set[int] = set()  # processes that were started and not seen to end
_GENERATIONS = 50  # looks for children of what was killed, which the server adopts then
_PAUSE = 0.01  # seconds between them
_LAST = 1.0  # seconds that a process which is being started may take

FRESH: Any
if "forkserver" in multiprocessing.get_all_start_methods():
    from multiprocessing import context, forkserver, popen_forkserver, util

    class _Popen(popen_forkserver.Popen):
        """An end that one thread at a time reads.

        Starting a process polls all others. Of two threads that poll one at its end, the second would find the pipe empty
        and say exit 255, whatever the status was.
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
                    except (OSError, EOFError):  # the server is gone, and nobody knows how the process ended
                        status = UNKNOWN
                    self.returncode = status
            if status is not None:
                _live.discard(self.pid)
            return status

    def _keep_sockets_apart() -> None:
        """Let the server listen in a folder that is not below TMPDIR, which a kernel may delete, or whose name is long."""
        own: Any = multiprocessing.current_process()
        if "tempdir" not in own._config:
            there = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = own._config["tempdir"] = tempfile.mkdtemp(prefix="mhc-", dir=there)
            util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=-100)  # behind those who use it

    def _continue_server() -> None:
        """Wake the server where something has stopped it: nobody would answer, and whoever asks waits for good."""
        server = getattr(forkserver._forkserver, "_forkserver_pid", None)
        with suppress(OSError):
            if server is not None and status(server)[0] == "T":
                os.kill(server, signal.SIGCONT)

    class _Process(context.ForkServerProcess):
        @staticmethod
        def _Popen(process_obj: Any) -> Any:
            return _Popen(process_obj)

        def run(self) -> None:
            # as in a process that nobody forked: locks of progress bars would stay behind when it is killed, and be told of
            multiprocessing.set_start_method(None, force=True)
            super().run()

    class _Context(context.ForkServerContext):
        Process = _Process

    FRESH = _Context()
    FRESH.set_forkserver_preload(["mhc.fuzz.worker.preload"])

    def end_orphans() -> None:
        """Kill what processes that have ended left running, and what that leaves, where the system tells of it."""
        server = getattr(forkserver._forkserver, "_forkserver_pid", None)
        if server is None:
            return
        with _STARTING:  # what is just being started is a child of the server too, and not known yet
            for _ in range(_GENERATIONS):
                orphans = [pid for pid in children(server) if pid not in _live]
                if not orphans:
                    return
                for pid in orphans:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(_PAUSE)

    def stop_starting() -> None:
        """Let no thread start a process any more: one that is half started would complain of the end of this one."""
        _STARTING.acquire(timeout=_LAST)  # and is kept

else:
    FRESH = multiprocessing.get_context("spawn")

    def stop_starting() -> None:
        """Do nothing: what is spawned says nothing of the end of this process."""

    def end_orphans() -> None:
        """Do nothing: without a server nobody adopts what a process leaves running."""


def status(pid: int) -> list[str]:
    """What Linux says of a process's main thread, its state first: R where it runs, T where it was stopped.

    Raises:
        OSError: it has ended, or the system does not say.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, with those that they have started."""
    found = children(pid)
    for one in found:  # which grows meanwhile
        found += children(one)
    return found


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run, as far as the system says."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(one) for one in (thread / "children").read_text(encoding="ascii").split()]
    return found
