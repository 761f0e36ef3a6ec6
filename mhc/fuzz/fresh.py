"""How processes are made in which nothing was run.

A new one is forked from a server that has loaded PyTorch and no DSL, and has run no kernel: hundredths of a second instead
of three, and a crash costs one process. The variables of an implementation are set before anything imports a DSL.
"""

import multiprocessing
import multiprocessing.connection
import os
import threading
from typing import Any

FRESH: Any
if "forkserver" in multiprocessing.get_all_start_methods():
    from multiprocessing import context, popen_forkserver

    class _Popen(popen_forkserver.Popen):
        """An end that one thread at a time reads.

        Starting a process polls all others. Of two threads that poll one at its end, the second would find the pipe empty
        and say exit 255, whatever the status was.
        """

        def __init__(self, process_obj: Any) -> None:
            self._reading = threading.Lock()
            super().__init__(process_obj)

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            if self.returncode is None and flag != os.WNOHANG:
                multiprocessing.connection.wait([self.sentinel])
            with self._reading:
                return super().poll(os.WNOHANG)

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
    FRESH.set_forkserver_preload(["mhc.fuzz.preload"])
else:
    FRESH = multiprocessing.get_context("spawn")
