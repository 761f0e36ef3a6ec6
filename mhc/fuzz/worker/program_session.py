"""A round over programs: Hypothesis draws them, a compiler runs them, and what fails is minimised at once.

What makes two wrong results the same bug is seen on minimal programs only. So a program that fails is minimised here, which
takes a few seconds, and later ones that contain a bug found before are mostly left out, so that it does not mask others.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from mhc.case import Case
from mhc.drawn_case import read
from mhc.fuzz.check.program_check import EVALUATOR, check, explained, lower, naming, run, wrong_pass
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.worker.protocol import Begun, Check, Checked, Done, Judged, Message, Observe, Round, Running
from mhc.oracles.judge import JUDGED
from mhc.oracles.verdict import Status, Verdict
from mhc.programs.known import is_before, known
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.minimise import search
from mhc.programs.targets import ProgramTarget
from mhc.strategies.programs.programs import ARITHMETIC, CPU, CPU_BEFORE_VECTORS, GPU, Features, programs
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.strategies.rounds import drawn

CHECKS, SECONDS = 300, 20.0
_AGAIN = 10  # of so many programs that contain a bug found before, one is judged all the same


class Programs:
    """Answers the requests to one worker.

    Args:
        spec: how the target was named on the command line.
    """

    def __init__(self, spec: str, send: Callable[[Message], None]) -> None:
        self._spec, self._send = spec, send
        self._kinds: set[tuple[str, str]] = set()
        self._seconds = 0.0
        self._found: dict[frozenset[str], Finding] = {}
        self._passes: dict[frozenset[str], str] = {}
        self._random = random.Random(0)

    def answer(self, target: ProgramTarget, request: Check | Round | Observe) -> None:
        """Judge one program, or those of a round.

        Raises:
            TypeError: programs are not compared with a peer, or it is a case of an operator.
        """
        if isinstance(request, Round):
            self._round(target, request)
        elif isinstance(request, Check):
            self._send(Begun(case=request.case))
            self._send(Running(nth=1))
            program = read(request.case)
            if isinstance(program, Case):
                raise TypeError("a compiler runs programs, and no case of an operator")
            verdicts = [explained(target, program, one) for one in check(target, program)]
            self._send(Judged(case=request.case, verdicts=tuple(verdicts)))
        else:
            raise TypeError("a program has no peer")

    def _round(self, target: ProgramTarget, request: Round) -> None:
        """Draw all programs, lower them one by one, compile what comes out in one file, and run them one by one."""
        began = time.perf_counter()
        found = drawn(_strategy(target), request.count, request.seed)
        wanted = {number: one for number, one in enumerate(found) if number >= request.skip}
        drawing = time.perf_counter() - began
        lowered: dict[int, str] = {}
        for number, program in wanted.items():
            if self._masked(target, program):
                continue
            source = self._timed(number, program, partial(lower, target, program))
            if isinstance(source, str):
                lowered[number] = source
            else:
                self._judged(target, program, source)
        with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
            chosen = [wanted[number] for number in lowered]
            started = time.perf_counter()
            ready = target.prepare(chosen, list(lowered.values()), Path(name))
            self._seconds += time.perf_counter() - started
            for number, one in zip(lowered, ready, strict=True):
                verdicts = self._timed(number, wanted[number], partial(run, wanted[number], one))
                self._judged(target, wanted[number], verdicts)
        self._send(Done(drawing=drawing))

    def _timed(self, number: int, program: AnyProgram, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; a process that ends in it ends on this program."""
        self._send(Begun(case=program.json, number=number))
        self._send(Running(nth=1))
        started = time.perf_counter()
        result = work()
        self._seconds += time.perf_counter() - started
        return result

    def _judged(self, target: ProgramTarget, program: AnyProgram, verdicts: list[Verdict]) -> None:
        """Send the result of the program that was begun last, minimised where it fails."""
        started = time.perf_counter()
        findings = self._findings(target, program, verdicts)
        seconds, self._seconds = self._seconds + time.perf_counter() - started, 0.0
        self._send(
            Checked(
                case=program.json,
                findings=findings,
                regions=language_of(program).features(program),
                seconds={"running": seconds, "checking": seconds},
                outcomes={} if findings else {one.subject: JUDGED for one in verdicts},
            )
        )

    def _masked(self, target: ProgramTarget, program: AnyProgram) -> bool:
        """Return whether to leave out a program: it may show a reported bug, or has all operations of one found before."""
        if known(program, target.release(), target.kind, language_of(program).known) is not None:
            return True
        mine = frozenset(language_of(program).signature(program).split(", "))
        return any(operations <= mine for operations in self._found) and self._random.randrange(_AGAIN) > 0

    def _findings(self, target: ProgramTarget, program: AnyProgram, verdicts: list[Verdict]) -> tuple[Finding, ...]:
        failure = _failure(verdicts)
        if failure is None:
            return ()
        kind = _kind(failure)
        if failure.oracle != EVALUATOR and kind in self._kinds:
            return (finding(self._spec, target, program, failure),)
        self._kinds.add(kind)

        def holds(candidate: AnyProgram) -> bool:
            if known(candidate, target.release(), target.kind, language_of(candidate).known) is not None:
                return False
            seen = _failure(check(target, candidate, exact=False))
            return seen is not None and _kind(seen) == kind

        small = search(program, holds, checks=CHECKS, seconds=SECONDS)
        again = _failure(check(target, small))
        if again is None or _kind(again) != kind:
            small, again = program, failure
        operations = frozenset(language_of(small).signature(small).split(", "))
        wrong = wrong_pass(target, small, again)
        for others, one in self._found.items():
            if others <= operations and _kind(one.fingerprint) == kind and self._passes[others] == wrong:
                return (one,)
        self._passes[operations] = wrong
        self._found[operations] = finding(self._spec, target, small, naming(again, wrong))
        return (self._found[operations],)


def _strategy(target: ProgramTarget) -> SearchStrategy[Any]:
    """Return what draws programs for a target."""
    return triton_programs(target.release()) if target.dsl == "triton" else programs(features_of(target))


def features_of(target: ProgramTarget) -> Features:
    """Return what is drawn for a target of TileLang's programs."""
    if target.kind in {"cuda", "plain"}:
        return GPU
    if target.kind == "arithmetic":
        return ARITHMETIC
    return CPU_BEFORE_VECTORS if is_before(target.release(), "0.1.9") else CPU


def _failure(verdicts: Sequence[Verdict]) -> Verdict | None:
    return next((one for one in verdicts if one.status is Status.FAIL), None)


def _kind(failure: Verdict | Fingerprint) -> tuple[str, str]:
    return failure.oracle, failure.symptom
