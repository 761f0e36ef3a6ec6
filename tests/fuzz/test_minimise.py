"""Minimising findings: the smallest case to the last field, in processes that crash, hang and fail now and then."""

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mhc import Case, Implementation, Recipe, default_case, load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import MOST_STEPS, Drawn, Finding, Reduction, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.minimise.minimise import _Probe, confirm, minimise
from mhc.fuzz.minimise.sandbox import Sandbox, Start
from mhc.fuzz.report import describe_other
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles import liveness
from mhc.oracles.error_map import error_map
from mhc.oracles.verdict import Verdict, failed, passed
from tests.fuzz.test_search import BIG, one_hot, plain
from tests.support.helpers import altered

Answer = Callable[[Case, Level], Verdict]

WRONG = failed("bound", "h_in", "value", "h_in[0, 0, 0] = 1")
DEAD = liveness.died("SIGSEGV")
HUNG = liveness.hung(1.0)
GATE = failed("algebra", "dx", "scaled x", "dx[0, 0, 0, 0] = 1")
FINE = passed("bound", "h_in")


class Stub:
    """A process that answers at once; deaths and hangs retire it. Clean ones count as they start."""

    def __init__(self, answer: Answer, started: list[float], limit: float) -> None:
        self._answer = answer
        self.retired = False
        started.append(limit)

    def start(self, case: Case, depth: Level) -> None:
        assert not self.retired
        self._given = case, depth

    def finish(self) -> list[Verdict]:
        verdict = self._answer(*self._given)
        self.retired = verdict.subject == "process"
        return [verdict]

    def stop(self) -> None:
        self.retired = True


def stubs(answer: Answer) -> tuple[Start, list[float]]:
    """How to start stubs, and the limit of each that was started."""
    started: list[float] = []
    return lambda limit: Stub(answer, started, limit), started


def found(verdict: Verdict, case: Case = BIG) -> Finding:
    fingerprint = Fingerprint(
        operator=case.operator,
        implementation="mine",
        oracle=verdict.oracle,
        subject=verdict.subject,
        symptom=verdict.symptom,
    )
    return Finding(fingerprint=fingerprint, spec="mine.py:IMPL", variables={}, case=case, message="as found")


def minimal(verdict: Verdict, answer: Answer) -> tuple[Case, Reduction, list[float]]:
    start, started = stubs(answer)
    result = minimise(found(verdict), "cpu", start=start)
    assert result.reduction is not None
    assert result.fingerprint == found(verdict).fingerprint
    return result.operator_case, result.reduction, started


def test_a_wrong_value_in_one_process_and_confirmed_in_three_more() -> None:
    case, reduction, started = minimal(
        WRONG, lambda case, depth: WRONG if case.sizes["D"] >= 3 and case.sizes["n"] >= 2 else FINE
    )
    assert case == plain(n=2, D=3)
    assert (reduction.elements_before, reduction.elements) == (3 * 17 * 4 * 136, 6)
    assert reduction.stable
    assert (reduction.reproduced, reduction.runs) == (3, 3)
    assert len(started) == 1 + 3 + 1, "one more for what memory has to do with it"


def test_the_steps_the_map_and_the_case_as_it_was_drawn_are_kept() -> None:
    def located(case: Case) -> Verdict:
        return replace(WRONG, where=error_map(torch.full((case.sizes["D"],), 7.0)))

    start, _ = stubs(lambda case, depth: located(case) if case.sizes["D"] >= 3 else FINE)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.case == plain(D=3)
    assert result.errors == located(plain(D=3)).where
    assert result.drawn == Drawn(case=BIG, errors=located(BIG).where)
    assert result.reduction is not None
    first, *_, last = steps = result.reduction.steps
    assert (first.elements, first.sizes) == (result.reduction.elements_before, dict(BIG.sizes))
    assert (last.elements, last.sizes) == (3, dict(plain(D=3).sizes))
    assert [one.checks for one in steps] == sorted({one.checks for one in steps})
    assert last.checks <= result.reduction.checks
    own = error_map(torch.tensor([2.0]))
    again = minimise(replace(found(WRONG, plain(D=4)), errors=own, drawn=result.drawn), "cpu", start=start)
    assert again.drawn == result.drawn, "a finding that was minimal before keeps the case that was drawn"
    again = minimise(replace(found(WRONG, plain(D=4)), errors=own), "cpu", start=start)
    assert again.drawn == Drawn(case=plain(D=4), errors=own), "what was seen first stays"
    smallest = minimise(found(WRONG, plain(D=3)), "cpu", start=start)
    assert (smallest.drawn, smallest.reduction and smallest.reduction.steps) == (None, ())


def test_of_many_steps_the_first_and_the_last_are_kept() -> None:
    sandbox = Sandbox(stubs(lambda case, depth: WRONG)[0], limit=1.0)
    probe = _Probe(found(WRONG), sandbox)
    for size in range(1, 300):
        assert probe.holds(plain(D=size))
    assert len(probe.steps) == MOST_STEPS
    assert (probe.steps[0].sizes["D"], probe.steps[-1].sizes["D"]) == (BIG.sizes["D"], 299)
    assert [one.checks for one in probe.steps] == sorted({one.checks for one in probe.steps})


def test_a_crash_costs_a_process_each_time_and_no_more() -> None:
    deaths = []

    def answer(case: Case, depth: Level) -> Verdict:
        if case.sizes["S"] >= 2:
            deaths.append(case)
            return DEAD
        return FINE

    case, reduction, started = minimal(DEAD, answer)
    assert case == plain(S=2)
    assert reduction.stable
    assert len(started) == len(deaths) < 30


def test_another_symptom_is_another_bug() -> None:
    """Below four streams it crashes, which is not what is minimised."""
    case, _, _ = minimal(WRONG, lambda case, depth: WRONG if case.sizes["n"] >= 4 else DEAD)
    assert case == plain(n=4)


def test_gates_with_further_runs_judge_only_where_the_bug_shows_in_no_other_way() -> None:
    depths = []

    def answer(case: Case, depth: Level) -> Verdict:
        depths.append(depth)
        return GATE if depth is Level.FULL and case.sizes["D"] >= 2 else FINE

    assert minimal(GATE, answer)[0] == plain(D=2)
    assert depths[0] is Level.PLAIN
    assert set(depths[1:]) == {Level.FULL}
    depths.clear()
    minimal(WRONG, lambda case, depth: depths.append(depth) or WRONG)  # type: ignore[func-returns-value]
    assert set(depths[:-1]) == {Level.PLAIN}
    assert depths[-1] is Level.MEMORY


def test_a_flaky_one_is_asked_again_and_its_rate_told() -> None:
    """Wrong one time in three, whatever the case."""
    coin = random.Random(4)
    case, reduction, _ = minimal(WRONG, lambda case, depth: WRONG if case.sizes["D"] >= 9 and coin.random() < 0.34 else FINE)
    assert case == plain(D=9)
    assert not reduction.stable
    assert 0 < reduction.reproduced < 8
    assert reduction.runs == 10
    assert "flaky" in str(reduction)


def test_one_that_fails_no_more_stays_as_it_was_found() -> None:
    case, reduction, _ = minimal(WRONG, lambda case, depth: FINE)
    assert case == BIG
    assert (reduction.reproduced, reduction.runs) == (0, 3)
    assert "not reproduced" in str(reduction)


def test_one_that_fails_only_in_a_used_process_is_confirmed_as_it_was_found() -> None:
    """The smallest case fails after another one has run, and in no fresh process: not a fixture to hand over."""

    class Used(Stub):
        ran = 0

        def finish(self) -> list[Verdict]:
            self.ran += 1
            return [WRONG if self.ran > 1 or self._given[0] == BIG else FINE]

    result = minimise(found(WRONG), "cpu", start=lambda limit: Used(lambda case, depth: FINE, [], limit))
    assert result.case == BIG
    assert result.reduction is not None
    assert result.reduction.stable


def test_what_depends_on_earlier_calls_is_tried_in_a_process_of_its_own_each_time() -> None:
    wrong = failed("sequence", "h_in", "wrong after others", "wrong after others: h_in[0, 0, 0] = 1")
    start, started = stubs(lambda case, depth: wrong if depth is Level.FULL else FINE)
    result = minimise(found(wrong), "cpu", start=start)
    assert result.reduction is not None
    assert len(started) == result.reduction.checks
    assert result.reduction.stable


AFTER = failed("sequence", "h_in", "wrong after others", "wrong after others: h_in[0, 0, 0] = 1")


def test_one_that_is_right_by_itself_and_wrong_after_others_is_minimised_as_that() -> None:
    start, _ = stubs(lambda case, depth: AFTER if depth is Level.FULL else FINE)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.fingerprint == found(AFTER).fingerprint
    assert (result.case, result.message) == (plain(), AFTER.message)
    assert result.reduction is not None
    assert result.reduction.stable
    first, second = describe_other(found(WRONG), result).splitlines()
    assert first == "DROPPED mine: h_in: value (bound)"
    assert second == f"    {BIG.id} is right in a new process: mine: h_in: wrong after others (sequence)"


@pytest.mark.parametrize("alone", [FINE, failed("bound", "h_res", "value", ""), WRONG])
def test_another_case_that_is_wrong_by_itself_shows_nothing_that_is_kept(alone: Verdict) -> None:
    other = default_case(B=2, S=5, n=4, D=33)
    after = replace(AFTER, other=other)
    start, _ = stubs(lambda case, depth: alone if case == other else after if depth is Level.FULL else FINE)
    result = minimise(found(WRONG), "cpu", start=start, checks=20)
    assert result.fingerprint == found(WRONG if alone is WRONG else AFTER).fingerprint
    assert result.reduction is not None
    assert (result.reduction.reproduced == 0) == (alone is WRONG)


def test_what_the_sequence_gate_says_but_once_is_not_asked_for_again() -> None:
    asked = list[Level]()

    def answer(case: Case, depth: Level) -> Verdict:
        asked.append(depth)
        return replace(AFTER, subject="dx") if depth is Level.FULL else FINE

    start, _ = stubs(answer)
    result = minimise(found(AFTER), "cpu", start=start, checks=20)
    assert result.fingerprint == found(AFTER).fingerprint
    assert result.message.startswith("as found\nnot reproduced in a new process")


def test_a_value_that_depends_on_memory_that_holds_no_input_is_told_to() -> None:
    beside = failed("memory", "h_in", "uninitialised", "h_in[0, 0, 0] = nan, and 0 in a run with other bytes")
    start, _ = stubs(lambda case, depth: beside if depth is Level.MEMORY else WRONG)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.fingerprint == found(WRONG).fingerprint
    assert result.message == f"{WRONG.message}\ndepends on memory that holds no input: {beside.message} (memory)"
    for other in (replace(beside, subject="dx"), replace(beside, symptom="overrun"), FINE):
        start, _ = stubs(lambda case, depth, said=other: said if depth is Level.MEMORY else WRONG)  # type: ignore[misc]
        assert minimise(found(WRONG), "cpu", start=start).message == WRONG.message
    start, _ = stubs(lambda case, depth: beside if depth is Level.MEMORY else FINE if depth is Level.REFERENCE else DEAD)
    assert minimise(found(DEAD), "cpu", start=start).message == DEAD.message


def test_a_process_that_the_reference_ends_is_not_blamed_on_the_implementation() -> None:
    start, _ = stubs(lambda case, depth: DEAD)
    blamed = "\nits process does so without a call of the implementation: the reference or its bounds are to blame"
    assert minimise(found(DEAD), "cpu", start=start).message == DEAD.message + blamed
    start, _ = stubs(lambda case, depth: HUNG if depth is Level.REFERENCE else DEAD)
    assert minimise(found(DEAD), "cpu", start=start).message == DEAD.message, "the reference ends otherwise"


def test_at_the_level_of_the_reference_the_implementation_is_not_called() -> None:
    called: list[Any] = []

    def noted(out: Any, given: Any) -> Any:
        called.append(given)
        return out

    mine = altered(load("manual"), forward=noted)
    assert check(mine, default_case(), "cpu", Level.REFERENCE).verdicts == []
    assert not called
    check(mine, default_case(), "cpu", Level.PLAIN)
    assert called


def test_what_is_known_of_one_that_is_not_reproduced() -> None:
    why = "not reproduced in a new process: calls before it in its process may be the cause, or chance"
    start, _ = stubs(lambda case, depth: FINE)
    assert minimise(found(WRONG), "cpu", start=start).message == f"as found\n{why}"
    assert minimise(found(WRONG), "cpu", start=start, fresh=False).message == "as found", "no process is new"
    inexact = failed("exact", "h_in", "inexact", "inexact: h_in[0, 0, 0] = 1")
    start, _ = stubs(lambda case, depth: inexact if depth is Level.FULL else FINE)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.message == f"as found\n{why}; in a new process another gate fails: {inexact.message} (exact)"


def test_hangs_are_given_a_few_times_what_healthy_cases_take() -> None:
    case, reduction, started = minimal(HUNG, lambda case, depth: HUNG if case.sizes["S"] == 17 else FINE)
    assert case.sizes["S"] == 17
    assert reduction.stable
    assert set(started[1:-4]) == {2.0}, "the last ones confirm it, and show the reference alone"
    assert {started[0], *started[-4:]} == {10.0}


def test_time_and_checks_run_out_with_the_best_so_far() -> None:
    def answer(case: Case, depth: Level) -> Verdict:
        return WRONG if case.sizes["D"] >= 5 else FINE

    start, _ = stubs(answer)
    few = minimise(found(WRONG), "cpu", start=start, checks=5)
    assert few.reduction is not None
    assert few.reduction.checks == 3 + 5 + 3
    ticks = itertools.count(1000)  # no clock of a machine begins at 0
    late = minimise(found(WRONG), "cpu", start=start, seconds=10, clock=lambda: float(next(ticks)))
    assert late.reduction is not None
    assert late.reduction.checks < 30
    assert 10 <= late.reduction.seconds < 100
    assert few.case != BIG


def test_a_fault_of_the_harness_is_no_failing_case_and_is_raised_where_nothing_can_be_checked() -> None:
    def faulty(case: Case, depth: Level) -> Verdict:
        if case.sizes["n"] == 1:
            raise HarnessError("out of paper")
        return WRONG

    case, _, _ = minimal(WRONG, faulty)
    assert case == plain(n=2)

    def hopeless(case: Case, depth: Level) -> Verdict:
        raise HarnessError("out of paper")

    with pytest.raises(HarnessError, match="out of paper"):
        minimal(WRONG, hopeless)
    with pytest.raises(HarnessError, match="out of paper"):
        confirm(found(WRONG), stubs(hopeless)[0])


def in_process(implementation: Implementation) -> Start:
    class Here(Stub):
        def finish(self) -> list[Verdict]:
            return check(implementation, self._given[0], "cpu", self._given[1]).verdicts

    return lambda limit: Here(lambda case, depth: FINE, [], limit)


def test_a_kernel_that_halves_bias_needs_one_element_of_it() -> None:
    """Judged by the real oracles: everything else is zero."""

    def forward(x: Any, phi: Any, alpha: Any, bias: Any, gamma: Any, **scalars: float) -> Any:
        return load("manual").forward(x, phi, alpha, bias / 2, gamma, **scalars)  # type: ignore[misc]

    kernel = replace(load("manual"), name="mine", forward=forward, backward=None)
    case = default_case(B=2, S=5, n=4, D=33)
    wrong = next(one for one in check(kernel, case, "cpu").verdicts if (one.oracle, one.subject) == ("bound", "h_res"))
    result = minimise(found(wrong, case), "cpu", start=in_process(kernel))
    assert result.case == plain({"bias": one_hot(2)})
    assert result.message.startswith("h_res[0, 0, 0, 0] = 0.5, float64 1, ")


def test_a_tail_that_is_left_out_ends_one_past_the_tile() -> None:
    def drop(returned: Any, arguments: Any) -> Any:
        h_in, *rest = returned
        h_in[..., 16:] = 0
        return (h_in, *rest)

    kernel = altered(load("manual"), forward=drop)
    case = default_case(B=2, S=5, n=3, D=45, dtype="bfloat16")
    wrong = next(one for one in check(kernel, case, "cpu").verdicts if one.subject == "h_in" and one.symptom)
    result = minimise(found(wrong, case), "cpu", start=in_process(kernel))
    assert result.case == plain({"x": Recipe(kind="constant")}, D=17), "a lone element would be another symptom: all zero"
    assert result.reduction is not None
    assert result.reduction.elements == 17


def test_a_real_crash_ends_its_process_and_the_next_case_gets_another(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        "import os\nfrom dataclasses import replace\nfrom mhc import load\n\nmanual = load('manual')\n\n"
        "def forward(x, *args, **kwargs):\n    return manual.forward(x, *args, **kwargs) if x.shape[3] < 3 else os.abort()\n"
        "IMPL = replace(manual, name='mine', forward=forward, backward=None)\n",
        encoding="utf-8",
    )
    spec = f"{kernels}:IMPL"
    sandbox = Sandbox(lambda limit: WorkerClient(spec, load(spec), "cpu", limit=limit), limit=60.0)
    aborted = liveness.died("SIGABRT")
    try:
        assert sandbox.seen(default_case(D=3), found(aborted).fingerprint, Level.PLAIN) == aborted
        began = time.monotonic()
        assert sandbox.seen(default_case(D=2), found(aborted).fingerprint, Level.PLAIN) is None
        assert time.monotonic() - began < 60
    finally:
        sandbox.stop()
    assert sandbox.checks == 2
    assert not sandbox.faults


def test_a_finding_keeps_its_reduction_in_its_file(tmp_path: Path) -> None:
    start, _ = stubs(lambda case, depth: WRONG)
    result = minimise(found(WRONG), "cpu", start=start)
    path = tmp_path / "finding.json"
    path.write_text(result.to_json(), encoding="utf-8")
    assert read_finding(path) == result


def test_what_loses_its_device_ends_its_process_too(tmp_path: Path) -> None:
    """It ends behind its answer: the next case is not blamed for that, nor the same one taken for flaky."""
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        "from dataclasses import replace\nfrom mhc import load\n\n"
        "def forward(*args, **kwargs):\n    raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
        "IMPL = replace(load('manual'), name='mine', forward=forward)\n",
        encoding="utf-8",
    )
    spec = f"{kernels}:IMPL"
    lost = failed(liveness.NAME, "forward", "illegal address", "")
    sandbox = Sandbox(lambda limit: WorkerClient(spec, load(spec), "cpu", limit=limit), limit=60.0)
    try:
        assert all(sandbox.seen(default_case(), found(lost).fingerprint, Level.PLAIN) is not None for _ in range(3))
    finally:
        sandbox.stop()
