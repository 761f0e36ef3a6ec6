"""The liveness gate: an implementation that said it takes a case returns; however it does not is a symptom with a name.

What ends or hangs the whole process is seen from outside of it; `died` and `hung` are the verdicts then.
"""

import re

from mhc.observation import Failure, Observation
from oracles import refusal
from oracles.verdict import Verdict, failed

NAME = "liveness"

_NAMED: tuple[tuple[str, str], ...] = (
    # (pattern over "type: message", symptom); the first that fits
    (r"OutOfMemoryError|^MemoryError|out of memory|OutOfResources|exceeds the maximum.*shared memory", "out of memory"),
    (r"illegal memory access|misaligned address|CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"),
    (r"launch timed out|CUDA_ERROR_LAUNCH_TIMEOUT", "launch timeout"),
    (r"unspecified launch failure|illegal instruction|device-side assert|CUDA_ERROR_LAUNCH_FAILED", "kernel crash"),
    (r"^Compil\w*(Error|Exception)|^PTXASError|^InternalError.*[Cc]ompil|[Cc]ompilation (error|failed)|^CalledProcessError",
     "compile error"),
)  # fmt: skip

DEVICE_LOST = frozenset({"illegal address", "launch timeout", "kernel crash"})
"""Symptoms after which CUDA answers nothing else to the same process."""


def judge(observation: Observation) -> list[Verdict]:
    """The verdict on an exception out of the implementation, if there was one."""
    failure = observation.failure
    if failure is None:
        return []
    if failure.type == "Refused":
        return [refusal.late(failure)]
    lines = failure.message.splitlines() or [""]
    return [failed(NAME, failure.stage, symptom(failure), f"{failure.stage} raised {failure.type}: {lines[0]}")]


def symptom(failure: Failure) -> str:
    """What went wrong, in a word or two: by the message where the type says too little, else by the type."""
    return _symptom(f"{failure.type}: {failure.message}") or f"raises {failure.type}"


def _symptom(text: str) -> str | None:
    return next((name for pattern, name in _NAMED if re.search(pattern, text)), None)


def device_error(error: Exception) -> Verdict | None:
    """The verdict on an exception that the harness met, where it says that the device is lost; None where it does not.

    Kernels run behind the calls that start them, so an error on the device may show in any later call.
    """
    text = f"{type(error).__name__}: {error}"
    found = _symptom(text)
    if found not in DEVICE_LOST:
        return None
    return failed(NAME, "process", found, f"the device was lost after a call had returned: {text.splitlines()[0]}")


def device_lost(observation: Observation) -> bool:
    """Whether the device of a run answers nothing any more."""
    return observation.failure is not None and symptom(observation.failure) in DEVICE_LOST


_CUMULATIVE = frozenset({"out of memory", "floods its output", "leaves processes", "writes to its pipe"})
"""Symptoms that add up over cases, so that it does not matter in which they are seen."""


def hung(limit: float) -> Verdict:
    """The verdict on a process that gave no answer."""
    return failed(NAME, "process", "hang", f"no answer within {limit:g} s")


def died(how: str) -> Verdict:
    """The verdict on a process that ended by a signal or with a status."""
    return failed(NAME, "process", how, f"its process ended in the middle of the case: {how}")


def after_judged(verdict: Verdict) -> Verdict:
    """The same verdict on a process, of a case that had been judged before: what it left running did it."""
    if verdict.symptom in _CUMULATIVE:
        return verdict
    return failed(NAME, "process", f"{verdict.symptom}, late", f"after the case had been judged: {verdict.message}")


def wrote_to_pipe() -> Verdict:
    """The verdict on a process that writes something else where messages are expected."""
    return failed(NAME, "process", "writes to its pipe", "wrote something else than messages to the pipe that it answers on")


def left_processes(count: int) -> Verdict:
    """The verdict on a process that starts processes and leaves them running."""
    return failed(NAME, "process", "leaves processes", f"had {count} processes running that it had started")


def closed_pipe(limit: float) -> Verdict:
    """The verdict on a process that has closed what it is heard by, and lives on."""
    return failed(
        NAME, "process", "closes its pipe", f"closed the pipe that it answers on, and had not ended {limit:g} s later"
    )


def exceeded_memory(used: float, limit: float) -> Verdict:
    """The verdict on a process that takes more memory than it may."""
    return failed(NAME, "process", "out of memory", f"took {used / 2**30:.1f} GiB, of {limit / 2**30:.1f} that it may")


def flooded_output(limit: int) -> Verdict:
    """The verdict on a process that writes without end."""
    return failed(NAME, "process", "floods its output", f"wrote more than {limit >> 20} MiB to standard output and error")
