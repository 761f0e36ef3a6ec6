"""Whether a compiler runs in a worker, as seen from outside: a call may take longer then.

It runs in a program that the worker has started, as nvcc is; or in the worker itself. Then the worker is busy, and its stack
tells: a signal asks for it, and a handler in C writes it (`faulthandler`), also while other code holds Python's lock. A
worker that is not busy is left alone, since a signal would wake it where it sleeps.
"""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from mhc.fuzz.worker.forkserver import descendants, status

_COMPILERS = re.compile(
    r'File "<frozen importlib'  # a module is imported in the first call
    r'|File "[^"]*/(?:'
    r"triton/(?:compiler|backends)/"
    r"|tilelang/(?:engine|language|transform)/|tvm/(?:tir|script|ir|driver|target|contrib)/"
    r"|torch/_dynamo/convert_frame\.py|torch/_inductor/(?:codecache|compile_fx|async_compile)\.py"
    r"|torch/utils/cpp_extension\.py"
    r"|numba/core/|cutlass/base_dsl/compiler\.py|cupy/cuda/compiler\.py|jax/_src/compiler\.py"
    r")"
)
"""Files of compilers, and not those that launch what was compiled."""
_BUSY = 0.02  # of a core
_TICKS = os.sysconf("SC_CLK_TCK")


class Compilers:
    """Looks for compilers in one worker, and in what it has started.

    Args:
        pid, descriptor: of the worker, and of its file that stacks go to. number: the signal that asks for one.

    Attributes:
        starved: seconds between the last two looks in which the worker would have run, had a core been free.
    """

    def __init__(self, pid: int, descriptor: int, number: signal.Signals) -> None:
        self._pid, self._signal = pid, number
        self._file = Path(f"/proc/{pid}/fd/{descriptor}")
        self._read = 0
        self._looked = time.monotonic()
        self._used: dict[int, float] = {}
        self.starved = 0.0

    def running(self, since: float) -> bool:
        """Whether one was at work since the last look; a stack that is asked for now tells at the next look.

        Args:
            since: monotonic time when the call began. What was before it is not the call's.
        """
        used = {pid: _cpu_seconds(pid) for pid in (self._pid, *descendants(self._pid))}
        span = time.monotonic() - self._looked
        least = _BUSY * span
        runs = _on_a_core(self._pid)
        idle = span - (used[self._pid] - self._used.get(self._pid, 0.0))
        self.starved = max(0.0, idle) if runs and self._looked >= since else 0.0
        busy = {pid for pid, seconds in used.items() if seconds - self._used.get(pid, 0.0) > least}
        self._looked, self._used = time.monotonic(), used
        found = bool(busy - {self._pid}) or self._in_stack() or _waits_for_a_file(self._pid)
        if self._pid in busy and runs and self._handled():
            with suppress(ProcessLookupError):
                os.kill(self._pid, self._signal)
        return found

    def _in_stack(self) -> bool:
        """Whether a stack that was written since the last look is in a compiler."""
        with suppress(OSError), self._file.open("rb") as file:
            file.seek(self._read)
            written = file.read()
            self._read += len(written)
            return _COMPILERS.search(written.decode("utf-8", "replace")) is not None
        return False

    def _handled(self) -> bool:
        """Whether the signal still does what it should: a kernel may have changed that, and it would end the process."""
        with suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8", errors="replace")
            return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (self._signal - 1) & 1)
        return False


def _waits_for_a_file(pid: int) -> bool:
    """Whether a process waits for the lock of a file, as where another one compiles the same program."""
    with suppress(OSError):
        return "lock_inode" in Path(f"/proc/{pid}/wchan").read_text(encoding="ascii")
    return False


def _on_a_core(pid: int) -> bool:
    """Whether the main thread of a process runs, or would if a core were free."""
    with suppress(OSError, IndexError):
        return status(pid)[0] == "R"
    return False


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        fields = status(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0
