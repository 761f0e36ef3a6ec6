"""Sees from outside whether a compiler runs in a worker: a call may take longer then.

A compiler may be a program that the worker has started, such as nvcc. It may also run in the worker itself, which is then
busy, and shows in its stack: a signal makes a C handler (`faulthandler`) write the stack, even while other code holds
Python's lock. A worker that is not busy gets no signal, which would interrupt its sleep.

Triton's interpreter counts as a compiler while it begins one program of a launch after the other: it is slow then, and does
not hang.
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
"""Files of compilers; files that only launch compiled kernels are not among them."""
_BUSY = 0.02  # of a core
_TICKS = os.sysconf("SC_CLK_TCK")


class Compilers:
    """Looks for compilers in one worker and in the processes that it has started.

    Args:
        pid: the worker. descriptor: its file for stacks. number: the signal that makes it write one.
        programs: its file for the number of programs that it has begun in Triton's interpreter.

    Attributes:
        starved: seconds between the last two looks, and of the same call, in which the worker would have run, had a core
            been free.
    """

    def __init__(self, pid: int, descriptor: int, number: signal.Signals, programs: int | None = None) -> None:
        self._pid, self._signal = pid, number
        self._file = Path(f"/proc/{pid}/fd/{descriptor}")
        self._programs = None if programs is None else Path(f"/proc/{pid}/fd/{programs}")
        self._begun = b""
        self._read = 0
        self._looked = time.monotonic()
        self._used: dict[int, float] = {}
        self._queued: dict[str, float] = {}
        self.starved = 0.0

    def begin(self) -> None:
        """Note that a call begins: time without a core counts from here."""
        self._queued = _queue_seconds(self._pid)

    def running(self, since: float) -> bool:
        """Return whether a compiler ran since the last look. A stack requested now is read at the next look.

        Args:
            since: monotonic time when the call began; earlier compilations belong to other calls.
        """
        used = {pid: _cpu_seconds(pid) for pid in (self._pid, *descendants(self._pid))}
        span = time.monotonic() - self._looked
        least = _BUSY * span
        runs = _on_a_core(self._pid)
        queued = _queue_seconds(self._pid)
        self.starved = max((seconds - self._queued.get(thread, 0.0) for thread, seconds in queued.items()), default=0.0)
        if runs and self._looked >= since:  # the host of a virtual machine may have withheld the core
            self.starved = max(self.starved, span - (used[self._pid] - self._used.get(self._pid, 0.0)))
        self._queued = queued
        busy = {pid for pid, seconds in used.items() if seconds - self._used.get(pid, 0.0) > least}
        self._looked, self._used = time.monotonic(), used
        goes_on = self._goes_on()  # each look reads it
        found = bool(busy - {self._pid}) or self._in_stack() or goes_on or _waits_for_a_file(self._pid)
        if self._pid in busy and runs and self._handled():
            with suppress(ProcessLookupError):
                os.kill(self._pid, self._signal)
        return found

    def _goes_on(self) -> bool:
        """Return whether Triton's interpreter has begun another program since the last look."""
        before = self._begun
        if self._programs is not None:
            with suppress(OSError):
                self._begun = self._programs.read_bytes()
        return self._begun != before

    def _in_stack(self) -> bool:
        """Return whether a stack written since the last look is in a compiler."""
        with suppress(OSError), self._file.open("rb") as file:
            file.seek(self._read)
            written = file.read()
            self._read += len(written)
            return _COMPILERS.search(written.decode("utf-8", "replace")) is not None
        return False

    def _handled(self) -> bool:
        """Return whether the handler is still installed: a kernel may remove it, and then the signal ends the process."""
        with suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8", errors="replace")
            return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (self._signal - 1) & 1)
        return False


def _waits_for_a_file(pid: int) -> bool:
    """Return whether a process waits for a file lock, as it does while another one compiles the same program."""
    with suppress(OSError):
        return "lock_inode" in Path(f"/proc/{pid}/wchan").read_text(encoding="ascii")
    return False


def _on_a_core(pid: int) -> bool:
    """Return whether the main thread of a process runs, or would if a core were free."""
    with suppress(OSError, IndexError):
        return status(pid)[0] == "R"
    return False


def _queue_seconds(pid: int) -> dict[str, float]:
    """Return, by thread of a process, the seconds without a core while it could have run; empty if the system keeps none."""
    found = dict[str, float]()
    with suppress(OSError, ValueError, IndexError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found[thread.name] = int((thread / "schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    return found


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        fields = status(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0
