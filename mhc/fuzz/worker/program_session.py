"""A round over programs: Hypothesis draws them, a compiler runs them, and what fails is minimised at once.

What makes two wrong results the same bug is seen on minimal programs only. So a program that fails is minimised here, which
takes a few seconds, and later ones that contain a bug found before are mostly left out, so that it does not mask others.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from mhc.case import Case
from mhc.drawn_case import read
from mhc.fuzz.check.program_check import (
    COMPILER,
    EVALUATOR,
    check,
    check_all,
    explained,
    first_failing,
    lower,
    naming,
    run_on_each,
    with_other_inputs,
    wrong_pass,
)
from mhc.fuzz.findings.finding import Drawn, Finding, Reduction, finding
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.worker.found_programs import FoundPrograms, kind_of
from mhc.fuzz.worker.protocol import Begun, Check, Checked, Done, Judged, Message, Observe, Round, Running
from mhc.oracles.judge import JUDGED
from mhc.oracles.verdict import Verdict
from mhc.programs.known import is_before, known
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.minimise import search_in_groups
from mhc.programs.targets import ProgramTarget
from mhc.strategies.programs.programs import ARITHMETIC, CPU, CPU_BEFORE_VECTORS, GPU, programs
from mhc.strategies.programs.statements import Features
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.strategies.rounds import drawn

CHECKS, SECONDS = 300, 20.0
"""The most that minimising a program takes: programs that are tried, and seconds of a core."""
SHARE = 1 / 3
"""Of a worker's time. Where minimising took more, only what goes wrong in a pass without a finding is minimised."""


class Programs:
    """Answers the requests to one worker.

    Args:
        spec: how the target was named on the command line.
    """

    def __init__(self, spec: str, send: Callable[[Message], None]) -> None:
        self._spec, self._send = spec, send
        self._kinds: set[tuple[str, str]] = set()
        self._seconds = 0.0
        self._found = FoundPrograms()
        self._minimising = 0.0

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
        for before in request.found:
            self._kinds.add(kind_of(before.fingerprint))
            self._found.keep(before)
        began = time.perf_counter()
        found = drawn(_strategy(target), request.count, request.seed)
        wanted = {number: one for number, one in enumerate(found) if number >= request.skip or number in request.again}
        drawing = time.perf_counter() - began
        lowered: dict[int, str] = {}
        left_out = 0
        for number, program in wanted.items():
            if self._masked(target, program):
                left_out += 1
                continue
            source = self._timed(number, program, partial(lower, target, program))
            if isinstance(source, str):
                lowered[number] = source
            else:
                left_out += not self._judged(target, program, source)
        with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
            chosen = [wanted[number] for number in lowered]
            started = time.perf_counter()
            ready = target.prepare(chosen, list(lowered.values()), Path(name))
            self._seconds += time.perf_counter() - started
            for number, one in zip(lowered, ready, strict=True):
                started = time.perf_counter()
                shown, verdicts = run_on_each(self._with_inputs(number, wanted[number], target.inputs), one)
                self._seconds += time.perf_counter() - started
                left_out += not self._judged(target, shown, verdicts)
        self._send(Done(drawing=drawing, left_out=left_out))

    def _with_inputs(self, number: int, program: AnyProgram, inputs: int) -> Iterator[AnyProgram]:
        """Yield a program that is about to run, and again with other inputs."""
        for one in with_other_inputs(program, inputs):
            self._begin(number, one)
            yield one

    def _begin(self, number: int, program: AnyProgram) -> None:
        """Say what the process ends on, if it ends."""
        self._send(Begun(case=program.json, number=number))
        self._send(Running(nth=1))

    def _timed(self, number: int, program: AnyProgram, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; a process that ends in it ends on this program."""
        self._begin(number, program)
        started = time.perf_counter()
        result = work()
        self._seconds += time.perf_counter() - started
        return result

    def _judged(self, target: ProgramTarget, program: AnyProgram, verdicts: list[Verdict]) -> bool:
        """Send the result of the program that was begun last, minimised where it fails.

        Returns:
            Whether it was sent: what fails and may show a bug that is reported is not judged.
        """
        started = time.perf_counter()
        failure = first_failing(verdicts)
        if failure is not None and _known(target, program):
            return False
        self._found.judged(program, None if failure is None else kind_of(failure))
        findings = () if failure is None else (self._finding(target, program, failure),)
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
        return True

    def _masked(self, target: ProgramTarget, program: AnyProgram) -> bool:
        """Return whether not to run a program: a reported bug may end the process in it, or it may show one found before."""
        return _known(target, program, ends=True) or self._found.left_out(program)

    def _finding(self, target: ProgramTarget, program: AnyProgram, failure: Verdict) -> Finding:
        if failure.oracle != EVALUATOR and kind_of(failure) in self._kinds:
            return finding(self._spec, target, program, failure)
        self._kinds.add(kind_of(failure))
        again = self._shown_again(target, program, failure)
        if again is not None and self._found.taken_as_seen(again):
            return again
        started = _cpu_seconds()
        if (
            self._minimising > SHARE * started
            and (one := self._found.in_pass(wrong_pass(target, program, failure))) is not None
        ):
            return one
        try:
            return self._minimised(target, program, failure, again)
        finally:
            self._minimising += _cpu_seconds() - started

    def _minimised(
        self, target: ProgramTarget, program: AnyProgram, failure: Verdict, again: Finding | None = None
    ) -> Finding:
        """Return the finding on the simplest program that fails like this one; one of before where that is reached.

        Args:
            again: the one of before that the program seems to show.
        """
        tried, started = 0, _cpu_seconds()
        exact = failure.subject == "cc"  # what the C compiler says depends on the headers
        stage = failure.subject if failure.oracle == COMPILER else ""
        wanted = failure
        if exact and (quick := first_failing(check(target, program, exact=False))) is not None:
            wanted, exact = quick, False  # a small header, which takes a tenth of the time, refuses it too

        def fits(candidate: AnyProgram, verdicts: Sequence[Verdict]) -> bool:
            seen = first_failing(verdicts)
            if seen is None or kind_of(seen) != kind_of(wanted):
                return False
            one = self._shown_again(target, candidate, seen)
            if one is not None and one is again and self._found.reached(candidate):
                raise _FoundBeforeError(one)
            return one is again or one is None  # else the candidate has the bug of another finding, and not this one

        def first(candidates: Sequence[AnyProgram]) -> AnyProgram | None:
            nonlocal tried
            tried += len(candidates)
            self._send(Running(nth=1 + tried))  # each group has the time of a call
            unknown = [one for one in candidates if not _known(target, one)]
            judged = zip(unknown, check_all(target, unknown, exact=exact, stage=stage), strict=True)
            return next((one for one, verdicts in judged if fits(one, verdicts)), None)

        group = target.together if failure.oracle == EVALUATOR else 1  # what does not compile is compiled alone
        try:
            small = search_in_groups(program, first, checks=CHECKS, seconds=SECONDS, clock=_cpu_seconds, group=group)
        except _FoundBeforeError as error:
            return error.found
        seconds = _cpu_seconds() - started
        self._send(Running(nth=2 + tried))
        last = first_failing(check(target, small))
        if last is None or kind_of(last) != kind_of(failure):
            return finding(self._spec, target, program, failure)
        if (one := self._shown_again(target, small, last)) is not None:
            return one
        made = replace(
            finding(self._spec, target, small, naming(last, wrong_pass(target, small, last))),
            reduction=Reduction(
                elements_before=elements(program),
                elements=elements(small),
                checks=tried,
                seconds=seconds,
                reproduced=0,
                runs=0,
            ),
            drawn=None if small == program else Drawn(case=program, errors=None),
        )
        self._found.keep(made)
        return made

    def _shown_again(self, target: ProgramTarget, program: AnyProgram, failure: Verdict) -> Finding | None:
        return self._found.shown_again(program, kind_of(failure), partial(wrong_pass, target, program, failure))


class _FoundBeforeError(Exception):
    """The search has reached a program that shows a finding again."""

    def __init__(self, found: Finding) -> None:
        super().__init__()
        self.found = found


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it ran: on a busy machine a search ends no sooner."""
    return sum(os.times()[:4])


def _known(target: ProgramTarget, program: AnyProgram, *, ends: bool = False) -> bool:
    """Return whether a program may show a reported bug; with `ends`, one that ends or hangs the process."""
    return known(program, target.release(), target.kind, language_of(program).known, ends=ends) is not None


def _strategy(target: ProgramTarget) -> SearchStrategy[Any]:
    """Return what draws programs for a target."""
    if target.dsl == "triton":
        return triton_programs(target.release(), interpreted=target.kind == "interpreted")
    return programs(features_of(target))


def features_of(target: ProgramTarget) -> Features:
    """Return what is drawn for a target of TileLang's programs."""
    if target.kind in {"cuda", "plain"}:
        return GPU
    if target.kind == "arithmetic":
        return ARITHMETIC
    return CPU_BEFORE_VECTORS if is_before(target.release(), "0.1.9") else CPU
