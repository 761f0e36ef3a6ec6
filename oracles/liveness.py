"""The liveness gate: checks that an implementation that accepted a case returns. Each way to fail has a symptom.

The end or hang of a whole process is observed by its parent, which reports `died` or `hung`.
"""

import re
from dataclasses import dataclass

from mhc.observation import Failure, Observation
from mhc.oracles import refusal
from mhc.oracles.verdict import Verdict, failed

NAME = "liveness"
IN_REFERENCE = "the process ended in the reference, before it called the implementation"

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
"""Symptoms after which every CUDA call of the process fails."""


def judge(observation: Observation) -> list[Verdict]:
    """Return the verdict on an exception that the implementation raised; an empty list without one."""
    failure = observation.failure
    if failure is None:
        return []
    if failure.type == "Refused":
        return [refusal.late(failure)]
    lines = failure.message.splitlines() or [""]
    message = f"{failure.stage} raised {failure.type}: {lines[0]}{f' ({failure.place})' if failure.place else ''}"
    return [failed(NAME, failure.stage, symptom(failure), message)]


def symptom(failure: Failure) -> str:
    """Return the symptom of an exception: from its message where a pattern matches, else from its type."""
    return _symptom(f"{failure.type}: {failure.message}") or f"raises {failure.type}"


def _symptom(text: str) -> str | None:
    return next((name for pattern, name in _NAMED if re.search(pattern, text)), None)


def device_error(error: Exception) -> Verdict | None:
    """Return the verdict on an exception in the harness that reports a lost device; None for any other exception.

    Kernels run asynchronously, so a device error may appear in any later call.
    """
    text = f"{type(error).__name__}: {error}"
    found = _symptom(text)
    if found not in DEVICE_LOST:
        return None
    return _process_failed(found, f"the device was lost after a call had returned: {text.splitlines()[0]}")


def device_lost(observation: Observation) -> bool:
    """Return whether a run lost its device."""
    return observation.failure is not None and symptom(observation.failure) in DEVICE_LOST


_CUMULATIVE = frozenset({"out of memory", "floods its output", "leaves processes", "writes to its pipe"})
"""Symptoms that accumulate over cases, so that the case in which they appear does not matter."""


@dataclass(frozen=True, kw_only=True)
class Died(Verdict):
    """The verdict on a process that ended. how: in a word."""

    how: str


def _process_failed(symptom: str, message: str) -> Verdict:
    return failed(NAME, "process", symptom, message)


def hung(limit: float) -> Verdict:
    """Return the verdict on a process that did not answer within `limit` seconds."""
    return _process_failed("hang", f"no answer within {limit:g} s")


def died(how: str, *, called: bool = True, place: str = "") -> Died:
    """Return the verdict on a process that ended by a signal or with a status.

    called: the implementation was called in the case; otherwise the reference may be to blame, or an earlier call.
    place: the file and line where it was.
    """
    when = "in the middle of the case" if called else "in the reference, before the implementation was called in this case"
    return Died(**vars(_process_failed(how, f"its process ended {when}: {how}{f' ({place})' if place else ''}")), how=how)


def after_judged(verdict: Verdict) -> Verdict:
    """Return the verdict on a process that failed after its case was judged, because of something left running."""
    if verdict.symptom in _CUMULATIVE:
        return verdict
    what = f"its process ended: {verdict.how}" if isinstance(verdict, Died) else verdict.message
    return _process_failed(
        f"{verdict.symptom}, late",
        f"after the case had been judged, by what it left running, or by `supports` of the implementation: {what}",
    )


def wrote_to_pipe() -> Verdict:
    """Return the verdict on a process that writes other bytes than messages to its pipe."""
    return _process_failed("writes to its pipe", "wrote something else than messages to the pipe that it answers on")


def left_processes(running: int, ended: int) -> Verdict:
    """Return the verdict on a process that leaves child processes: those that run, and those that it has not waited for."""
    left = [f"had {running} processes running that it had started"] if running else []
    left += [f"had started {ended} processes that had ended and that it had not waited for"] if ended else []
    return _process_failed("leaves processes", "; ".join(left))


def closed_pipe(limit: float) -> Verdict:
    """Return the verdict on a process that closed its pipe and did not end within `limit` seconds."""
    return _process_failed("closes its pipe", f"closed the pipe that it answers on, and had not ended {limit:g} s later")


def exceeded_memory(used: float, limit: float) -> Verdict:
    """Return the verdict on a process that used more memory than its limit; both in bytes."""
    return _process_failed("out of memory", f"took {used / 2**30:.1f} GiB, of {limit / 2**30:.1f} that it may")


def flooded_output(limit: int) -> Verdict:
    """Return the verdict on a process that wrote more than `limit` bytes of output."""
    return _process_failed("floods its output", f"wrote more than {limit >> 20} MiB to standard output and error")
