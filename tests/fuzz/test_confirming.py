"""Minimising a finding: how often its case is run, in which processes, and what the result says of that."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from mhc import load
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding, Reduction
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.minimise import minimise as minimise_
from mhc.fuzz.minimise.minimise import confirm, minimise
from mhc.fuzz.minimise.sandbox import Sandbox
from mhc.oracles.verdict import Verdict, failed
from tests.fuzz.test_minimise import FINE, HUNG, WRONG, found, stubs


def confirmed(answers: list[Verdict], runs: int = 3) -> Reduction:
    given = itertools.chain(answers, itertools.repeat(answers[-1]))
    start, _ = stubs(lambda case, depth: next(given))
    result = confirm(found(WRONG), start, runs=runs).reduction
    assert result is not None
    return result


def test_what_does_not_fail_each_time_is_run_ten_times() -> None:
    def counts(answers: list[Verdict], runs: int = 3) -> tuple[int, int, int]:
        told = confirmed(answers, runs)
        return told.reproduced, told.runs, told.checks

    assert counts([WRONG]) == (3, 3, 3)
    assert counts([FINE]) == (0, 3, 3)
    assert counts([WRONG, FINE, WRONG, WRONG]) == (9, 10, 10)
    assert counts([FINE, FINE, WRONG, FINE]) == (1, 10, 10)
    assert counts([WRONG], runs=1) == (1, 1, 1)
    told = confirmed([WRONG])
    assert (told.elements_before, told.elements) == (3 * 17 * 4 * 136,) * 2
    assert told.seconds < 5
    other = failed("bound", "h_in", "value", "h_in[0] = 9")
    start, started = stubs(lambda case, depth: other)
    assert confirm(found(WRONG), start).message == "h_in[0] = 9"
    assert len(started) == 3, "each in a process of its own"


def test_the_limit_of_a_case() -> None:
    for verdict, least, wanted in ((WRONG, 1.0, 60.0), (HUNG, 1.0, 10.0), (HUNG, 4.0, 12.0), (WRONG, 40.0, 60.0)):
        assert minimise_._limit(found(verdict), least) == wanted
    assert (minimise_.CHECKS, minimise_.SECONDS, minimise_.RUNS) == (800, 300.0, 3)


def probe(answers: Callable[[int], Verdict]) -> tuple[minimise_._Probe, int]:
    asked = itertools.count()
    start, _ = stubs(lambda case, depth: answers(next(asked)))
    sandbox = Sandbox(start, limit=10.0)
    made = minimise_._Probe(found(WRONG), sandbox)
    return made, sandbox.checks


def test_how_often_a_flaky_case_is_asked() -> None:
    steady, checks = probe(lambda at: WRONG)
    assert (steady._tries, steady.depth, steady.runs, checks) == (1, Level.PLAIN, 3, 3)
    half, checks = probe(lambda at: WRONG if at % 2 == 0 else FINE)  # 1 of the first, then FINE, WRONG, ... eight in all
    assert checks == 1 + 8
    assert half._tries == 4, "log(0.1) / log(1 - 4/9)"
    assert half.runs == 10
    rare, _ = probe(lambda at: WRONG if at in (0, 5) else FINE)
    assert rare._tries == 8, "20 would be too many"
    gone, checks = probe(lambda at: WRONG if at == 0 else FINE)
    assert (gone.depth, checks) == (None, 9)
    deep, checks = probe(lambda at: WRONG if at else FINE)
    assert (deep.depth, deep._tries, checks) == (Level.FULL, 1, 3)
    often, _ = probe(lambda at: FINE if at == 1 else WRONG)
    assert often._tries == 2, "log(0.1) / log(1 - 7/9)"


def test_a_minimised_finding_says_what_it_cost() -> None:
    start, _ = stubs(lambda case, depth: WRONG if case.sizes["D"] >= 5 else FINE)
    ticks = itertools.count()
    result = minimise(found(WRONG), "cpu", start=start, checks=2, clock=lambda: float(next(ticks)))
    told = result.reduction
    assert told is not None
    assert told.checks == 3 + 2 + 3
    assert told.seconds == float(next(ticks) - 1)
    assert told.elements_before == 3 * 17 * 4 * 136
    assert told.elements == elements(result.operator_case)
    assert result.message == WRONG.message
    hung = minimise(found(HUNG), "cpu", start=stubs(lambda case, depth: HUNG)[0], checks=1)
    assert hung.reduction is not None
    assert hung.reduction.checks == 1 + 3 + 1 + 3, "one healthy case, to know how long one takes"


def test_without_a_way_to_start_it_loads_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = stubs(lambda case, depth: WRONG)
    manual = replace(load("manual"), env={"SOME_VARIABLE": "7"})
    monkeypatch.setattr(minimise_, "load_tested", lambda spec: manual)
    monkeypatch.setattr(minimise_, "processes", lambda *_: start)
    result = minimise(found(WRONG), "cpu", checks=1)
    assert result.variables == {"SOME_VARIABLE": "7"}
    assert len(started) == 1 + 3 + 1


def test_a_finding_that_no_fresh_process_shows_is_confirmed_as_it_was() -> None:
    """The smaller case does not fail in a fresh process, the original does not either: it is told so."""
    start, started = stubs(lambda case, depth: WRONG if len(started) == 1 and case.sizes["D"] >= 5 else FINE)
    result: Finding = minimise(found(WRONG), "cpu", start=start)
    assert result.reduction is not None
    assert result.reduction.reproduced == 0
    assert result.case == found(WRONG).case
