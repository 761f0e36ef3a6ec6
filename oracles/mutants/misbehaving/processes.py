"""Misbehaviour towards the process and the machine: exits, hangs, forks, floods, exhausted resources."""

import ctypes
import os
import resource
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import torch
from torch import Tensor

from mhc.oracles.mutants.misbehaving.record import Misbehaviour, many_tokens

ENDS = "ends its process: os._exit, abort, a segmentation fault, a signal without a name, SIGKILL"
GROUP = "sends a signal to its process group"
LATER = "ends its process later: a timer, a thread"
HANGS = "never ends: a loop, a call that keeps Python's lock, SIGSTOP"
FORKS = "forks, and both processes return"
STARTS = "starts processes: a fork that stays, a program, a daemon"
CLOSES = "closes its descriptors"
GARBAGE = "writes garbage to the descriptors that it inherited, or a header that promises 2 GiB"
FLOODS = "floods standard output"
MEMORY = "leaks memory, or takes all there is"
DESCRIPTORS = "opens descriptors until there are none"
LIMITS = "limits its own memory, descriptors or processor time"

SLEEP = 1000
"""Lifetime of a process that is left behind, in seconds."""
_KEPT: list[object] = []


def once(act: Callable[[], object]) -> Callable[[], object]:
    """Return `act` limited to the first call in a process, to bound the number of processes."""
    return cache(act)


def _signals(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _signals_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGTERM)
    time.sleep(0.5)  # it arrives


def _alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.02)


def _raise_on_alarm() -> None:
    def raises(*_: object) -> None:
        raise TimeoutError("of a timer that the kernel left")

    signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 0.02)


def _exit_later() -> None:
    timer = threading.Timer(0.02, os._exit, (3,))
    timer.daemon = True
    timer.start()


def _loop() -> None:
    os.nice(19)  # lowest priority: it hangs all the same
    while True:
        pass


def _sleep_with_the_lock() -> None:
    ctypes.PyDLL(None).sleep(SLEEP)


def _fork_and_stay() -> None:
    if os.fork() == 0:
        time.sleep(SLEEP)
        os._exit(0)


def _start() -> None:
    _KEPT.append(subprocess.Popen(["sleep", str(SLEEP)]))


def _daemonise() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", str(SLEEP)])
        os._exit(0)
    os.waitpid(child, 0)


def _write_everywhere(blob: bytes) -> Callable[[], None]:
    def act() -> None:
        for number in range(3, 64):
            with suppress(OSError):
                os.write(number, blob)

    return act


def _flood() -> None:
    for _ in range(64):
        os.write(1, b"x" * (1 << 20))


def _leak() -> None:
    _KEPT.append(torch.ones(50 << 20))  # 200 MB


def _take_all() -> None:
    while True:
        _leak()


def _open_all() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 4096), hard))
    with suppress(OSError):
        while True:
            _KEPT.append(os.open(os.devnull, os.O_RDONLY))


def _limits(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _limit_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    until = time.process_time() + 3
    while time.process_time() < until:
        pass


def _large(x: Tensor) -> bool:
    return many_tokens(x) and x.shape[0] * x.shape[1] % 3 == 0


_ends = partial(Misbehaviour, kind=ENDS, when=_large)
_later = partial(Misbehaviour, kind=LATER, faults=True)
_hangs = partial(Misbehaviour, kind=HANGS, finds=("liveness: hang",), when=_large)
_starts = partial(Misbehaviour, kind=STARTS)
_garbage = partial(Misbehaviour, kind=GARBAGE, finds=("liveness: writes to its pipe",))
_memory = partial(Misbehaviour, kind=MEMORY, finds=("liveness: out of memory",))
_limited = partial(Misbehaviour, kind=LIMITS, finds=("liveness: *",), must=False, faults=True)

PROCESSES = (
    _ends(name="exits_with_0", finds=("liveness: exit 0",), act=lambda: os._exit(0)),
    _ends(name="aborts", finds=("liveness: SIGABRT",), act=os.abort),
    _ends(name="reads_address_0", finds=("liveness: SIGSEGV",), act=lambda: ctypes.string_at(0)),
    _ends(name="signals_40", finds=("liveness: signal 40",), act=_signals(40)),
    _ends(name="kills_itself", finds=("liveness: SIGKILL",), act=_signals(signal.SIGKILL)),
    Misbehaviour(name="signals_its_group", kind=GROUP, finds=("liveness: SIGTERM",), act=_signals_group, when=_large),
    _later(name="leaves_an_alarm", finds=("liveness: SIGALRM*",), must=False, act=_alarm),
    _later(
        name="leaves_an_alarm_that_raises",
        finds=("liveness: *", "effects: *"),  # raised where a setting is put back
        must=False,
        act=_raise_on_alarm,
    ),
    _later(name="leaves_a_thread_that_exits", finds=("liveness: exit 3*",), act=_exit_later),
    _hangs(name="loops", act=_loop),
    _hangs(name="sleeps_with_the_lock", act=_sleep_with_the_lock),
    _hangs(name="stops_itself", act=_signals(signal.SIGSTOP)),
    Misbehaviour(name="forks_and_both_return", kind=FORKS, finds=("liveness: raises ContractError",), act=once(os.fork)),
    _starts(name="forks_and_the_child_stays", act=once(_fork_and_stay)),
    _starts(name="starts_a_program", act=once(_start)),
    _starts(name="starts_a_daemon", act=once(_daemonise)),
    Misbehaviour(
        name="closes_descriptors",
        kind=CLOSES,
        finds=(
            "liveness: closes its pipe",
            "liveness: exit *",
            "liveness: SIGABRT",
            "liveness: SIGKILL",
        ),  # who uses one first
        act=lambda: os.closerange(0, 4096),
        when=_large,
    ),
    _garbage(name="writes_garbage", act=_write_everywhere(os.urandom(4096))),
    _garbage(name="promises_2_gib", act=_write_everywhere(struct.pack("!i", 0x7FFFFFFF) + b"x" * 100)),
    Misbehaviour(name="floods_output", kind=FLOODS, finds=("liveness: floods its output",), act=_flood),
    _memory(name="leaks_200_mb", act=_leak),
    _memory(name="takes_all_memory", finds=("liveness: out of memory", "liveness: hang"), act=_take_all, when=_large),
    Misbehaviour(
        name="takes_all_descriptors", kind=DESCRIPTORS, finds=("liveness: *",), must=False, faults=True, act=once(_open_all)
    ),
    _limited(name="limits_memory", act=_limits(resource.RLIMIT_AS, 256 << 20)),
    _limited(name="limits_descriptors", act=_limits(resource.RLIMIT_NOFILE, 4)),
    _limited(
        name="limits_time",
        finds=("liveness: SIGXCPU", "liveness: SIGKILL"),
        must=True,
        faults=False,
        act=_limit_time,
        when=_large,
    ),
)
