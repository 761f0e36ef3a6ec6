"""A round over programs: Hypothesis draws them, a compiler runs them, and what fails is minimised at once.

What makes two wrong results the same bug is seen on minimal programs only. So a program that fails is minimised here, which
takes a few seconds, and later ones that contain a bug found before are mostly left out, so that it does not mask others.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace

import hypothesis
from hypothesis import Phase

from mhc.fuzz.check.program_check import EVALUATOR, check, features, signature
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.worker.protocol import Begun, Check, Checked, Done, Judged, Message, Observe, Round, Running
from mhc.programs.grammar import Program
from mhc.programs.minimise import search
from mhc.programs.targets import ProgramTarget
from oracles.judge import JUDGED
from oracles.verdict import Status, Verdict
from strategies.programs.programs import CPU, programs
from strategies.rounds import quiet

CHECKS, SECONDS = 300, 20.0
_AGAIN = 10  # of so many programs that contain a bug found before, one is judged all the same


class Programs:
    """Answers the requests to one worker.

    Args:
        spec: how the target was named on the command line.
    """

    def __init__(self, spec: str, send: Callable[[Message], None]) -> None:
        self._spec, self._send = spec, send
        self._found: list[frozenset[str]] = []
        self._random = random.Random(0)

    def answer(self, target: ProgramTarget, request: Check | Round | Observe) -> None:
        """Judge one program, or those of a round.

        Raises:
            TypeError: programs are not compared with a peer.
        """
        if isinstance(request, Round):
            self._round(target, request)
        elif isinstance(request, Check):
            self._send(Begun(case=request.case))
            verdicts = self._judge(target, Program.from_json(request.case))
            self._send(Judged(case=request.case, verdicts=tuple(verdicts)))
        else:
            raise TypeError("a program has no peer")

    def _judge(self, target: ProgramTarget, program: Program) -> list[Verdict]:
        self._send(Running(nth=1))
        return check(target, program)

    def _round(self, target: ProgramTarget, request: Round) -> None:
        began, checking, drawn = time.perf_counter(), 0.0, 0
        faults: list[BaseException] = []

        def body(program: Program) -> None:
            nonlocal checking, drawn
            number, drawn = drawn, drawn + 1
            if not request.skip <= number < request.count or self._masked(program):
                return
            self._send(Begun(case=program.json, number=number))
            started = time.perf_counter()
            verdicts = self._judge(target, program)
            findings = self._findings(target, program, verdicts)
            seconds = time.perf_counter() - started
            checking += seconds
            self._send(
                Checked(
                    case=program.json,
                    findings=findings,
                    regions=features(program),
                    seconds={"running": seconds, "checking": seconds},
                    outcomes={} if findings else {one.subject: JUDGED for one in verdicts},
                )
            )

        def test(program: Program) -> None:
            if not faults:
                try:
                    body(program)
                except BaseException as error:  # Hypothesis would draw it again, and call it flaky
                    faults.append(error)

        drawn_from = hypothesis.given(programs(CPU))
        hypothesis.seed(request.seed)(quiet(request.count, phases=(Phase.generate,))(drawn_from(test)))()
        if faults:
            raise faults[0]
        self._send(Done(drawing=max(0.0, time.perf_counter() - began - checking)))

    def _masked(self, program: Program) -> bool:
        """Return whether to leave out a program, since it contains all operations of a bug found before."""
        mine = frozenset(signature(program).split(", "))
        return any(known <= mine for known in self._found) and self._random.randrange(_AGAIN) > 0

    def _findings(self, target: ProgramTarget, program: Program, verdicts: list[Verdict]) -> tuple[Finding, ...]:
        failure = next((one for one in verdicts if one.status is Status.FAIL), None)
        if failure is None:
            return ()
        small = failure
        if failure.oracle == EVALUATOR:

            def holds(candidate: Program) -> bool:
                nonlocal small
                again = next((one for one in self._judge(target, candidate) if one.status is Status.FAIL), None)
                if again is None or again.symptom != failure.symptom:
                    return False
                small = again
                return True

            program = search(program, holds, checks=CHECKS, seconds=SECONDS)
            self._found.append(frozenset(signature(program).split(", ")))
            small = replace(small, subject=signature(program))
        return (finding(self._spec, target, program, small),)
