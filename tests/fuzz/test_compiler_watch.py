"""Whether a compiler runs in a process, seen from outside."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from mhc.fuzz.worker.compiler_watch import Compilers
from mhc.fuzz.worker.forkserver import status
from mhc.fuzz.worker.protocol import STACKS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")

WORKER = """
import ctypes, faulthandler, os, subprocess, sys, time
file = os.memfd_create("stacks")
handled = sys.argv[2] == "handled"
if handled:
    faulthandler.register({signal}, file=file)
print(file, flush=True)
{work}
"""


@contextmanager
def worker(work: str, folder: str = "nothing", handled: str = "handled") -> Iterator[tuple[Compilers, Callable[[], bool]]]:
    """A process that does `work`, a look at it, and whether it lives."""
    text = WORKER.format(signal=int(STACKS), work=work)
    process = subprocess.Popen(
        [sys.executable, "-c", text, folder, handled], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield Compilers(process.pid, int(process.stdout.readline()), STACKS), lambda: process.poll() is None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


def seen(compilers: Compilers, wanted: bool = True) -> bool:
    """Whether a compiler is seen within some looks; where none should be, in none of them."""
    until = time.monotonic() + (10 if wanted else 1.2)
    while time.monotonic() < until:
        if compilers.running(0.0):
            return True
        time.sleep(0.1)
    return False


def settle(compilers: Compilers) -> None:
    """Look a few times while the process starts, which is work."""
    for _ in range(5):
        compilers.running(0.0)
        time.sleep(0.1)


BUSY = "exec(compile('while True: pass', sys.argv[1], 'exec'))"


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("/lib/triton/compiler/compiler.py", True),
        ("/lib/triton/runtime/interpreter.py", False),
        ("/lib/tilelang/engine/lower.py", True),
        ("/lib/tilelang/jit/adapter/cython/adapter.py", False),
        ("/lib/torch/_dynamo/convert_frame.py", True),
        ("/lib/torch/_dynamo/eval_frame.py", False),
        ("<frozen importlib._bootstrap>", True),
        ("/home/me/kernel.py", False),
    ],
)
def test_a_busy_process_is_in_a_compiler_where_its_stack_is(file: str, wanted: bool) -> None:
    with worker(BUSY, file) as (compilers, alive):
        assert seen(compilers, wanted) == wanted
        assert alive()


def test_an_interpreter_that_begins_programs_is_slow_and_one_that_begins_none_hangs() -> None:
    begin = (
        "begun = os.memfd_create('programs'); n = 0\nwhile True:\n    n += 1; os.pwrite(begun, n.to_bytes(8, 'little'), 0)"
    )
    for work, wanted in ((begin, True), (f"{begin}\n    while True: pass", False)):
        with worker(work) as (compilers, alive):
            watched = Compilers(compilers._pid, int(compilers._file.name), STACKS, int(compilers._file.name) + 1)
            settle(watched)
            assert seen(watched, wanted) == wanted
            assert alive()


def test_a_program_that_it_has_started_and_that_works_is_a_compiler_and_one_that_sleeps_is_none() -> None:
    start = "subprocess.Popen([sys.executable, '-c', {!r}]).wait()"
    with worker(start.format("while True: pass")) as (compilers, _):
        assert seen(compilers)
    with worker(start.format("import time; time.sleep(60)")) as (compilers, _):
        settle(compilers)
        assert not seen(compilers, wanted=False)


def test_one_that_waits_for_the_lock_of_a_file_waits_for_a_compiler(tmp_path: object) -> None:
    lock = f"import fcntl; file = open({str(tmp_path)!r} + '/lock', 'w'); fcntl.flock(file, fcntl.LOCK_EX); time.sleep(60)"
    with worker(lock), worker(lock) as (compilers, _):
        assert seen(compilers)


def test_a_sleep_is_not_cut_short_and_a_signal_that_would_kill_is_not_sent() -> None:
    with worker("ctypes.PyDLL(None).sleep(60)") as (compilers, alive):
        while status(compilers._pid)[0] != "S":  # a look at a process that still starts would wake the sleep that follows
            time.sleep(0.01)
        settle(compilers)
        assert not seen(compilers, wanted=False)
        assert alive()
    with worker(BUSY, "/lib/triton/compiler/compiler.py", handled="not") as (compilers, alive):
        assert not seen(compilers, wanted=False)
        assert alive()


def test_a_process_without_a_core_is_starved_and_one_that_sleeps_is_not() -> None:
    with worker(f"os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})\nfor _ in range(3): os.fork()\n{BUSY}") as (
        compilers,
        _,
    ):
        settle(compilers)
        time.sleep(1.0)
        compilers.running(0.0)
        assert compilers.starved > 0.5, "eight processes share a core"
        compilers.begin()
        compilers.running(time.monotonic())
        assert compilers.starved < 0.2, "the call has only begun"
        compilers.begin()
        began = time.monotonic()
        time.sleep(1.0)
        compilers.running(began)
        assert compilers.starved > 0.5, "the first look within a call counts too"
    with worker("time.sleep(60)") as (compilers, _):
        settle(compilers)
        time.sleep(0.5)
        compilers.running(0.0)
        assert compilers.starved == 0
