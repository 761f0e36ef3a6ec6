"""Judges what a compiler makes of a program: its outputs against the evaluator's, bit for bit."""

import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from mhc.element import element_name
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable, passed
from mhc.programs.arithmetic import Invalid
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.targets import ProgramTarget

EVALUATOR, COMPILER = "evaluator", "compiler"
WRONG = "wrong value"
BUILD = "build"
_STAGES = (BUILD, "lower")
"""Those before a program runs or is compiled further."""
_GOES_WRONG = "; goes wrong in "
_SEEDS = 1000
"""The seeds of drawn programs are smaller."""
_Program = TypeVar("_Program", bound=AnyProgram)


def check(target: ProgramTarget, program: AnyProgram, *, exact: bool = True, stage: str = "") -> list[Verdict]:
    """Return a verdict for each output; where it does not compile, one on the stage that fails.

    Args:
        exact: as for `mhc.programs.tilelang_c.prepare`.
        stage: the last one of interest: what comes after `build` or `lower` is left out.
    """
    (verdicts,) = check_all(target, [program], exact=exact, stage=stage)
    return verdicts


def check_all(
    target: ProgramTarget, programs: Sequence[AnyProgram], *, exact: bool = True, stage: str = ""
) -> Iterator[list[Verdict]]:
    """Yield what `check` returns of each program; all are compiled at once."""
    lowered = [lower(target, one, stage=stage) for one in programs]
    if stage in _STAGES:
        yield from ([passed(COMPILER, stage)] if isinstance(one, str) else one for one in lowered)
        return
    with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
        chosen = [(program, one) for program, one in zip(programs, lowered, strict=True) if isinstance(one, str)]
        sources = [one for _, one in chosen]
        ready = iter(target.prepare([one for one, _ in chosen], sources, Path(name), exact=exact) if chosen else ())
        for program, one in zip(programs, lowered, strict=True):
            yield run(program, next(ready)) if isinstance(one, str) else one


def lower(target: ProgramTarget, program: AnyProgram, *, stage: str = "") -> str | list[Verdict]:
    """Return what the compiler generates, or the verdicts where there is nothing to run.

    Args:
        stage: as for `check`.
    """
    try:
        language_of(program).evaluate(program)
    except Invalid as reason:
        return [not_applicable(EVALUATOR, "program", str(reason))]
    try:
        if stage == BUILD and target.build is not None:
            target.build(program)
            return ""
        return target.lower(program)
    except CompileError as error:
        return [_uncompiled(error)]


def with_other_inputs(program: _Program, inputs: int) -> Iterator[_Program]:
    """Yield a program, and the same one with other seeds of its inputs; those that are not valid are left out.

    Args:
        inputs: so many in all.
    """
    yield program
    for number in range(1, inputs):
        other = replace(program, seed=program.seed + number * _SEEDS)
        try:
            language_of(other).evaluate(other)
        except Invalid:
            continue
        yield other


def run(program: AnyProgram, ready: Run | CompileError) -> list[Verdict]:
    """Return the verdicts on a program that is lowered."""
    if isinstance(ready, CompileError):
        return [_uncompiled(ready)]
    try:
        got = ready(program)
    except CompileError as error:
        return [_uncompiled(error)]
    if not got:  # nothing runs
        return [passed(COMPILER, "lower")]
    wanted = language_of(program).evaluate(program)
    return [_compared(name, wanted[name], got[name], program) for name in wanted]


def run_on_each(programs: Iterable[_Program], ready: Run | CompileError) -> tuple[_Program, list[Verdict]]:
    """Return the first program with a verdict that fails, and its verdicts; where none has one, the first of all.

    Args:
        programs: one that is lowered, with several inputs.
    """
    first: tuple[_Program, list[Verdict]] | None = None
    for program in programs:
        verdicts = run(program, ready)
        first = first or (program, verdicts)
        if first_failing(verdicts) is not None:
            return program, verdicts
        if any(one.status is Status.NOT_APPLICABLE for one in verdicts):
            break
    assert first is not None
    return first


def first_failing(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the first verdict that fails."""
    return next((one for one in verdicts if one.status is Status.FAIL), None)


def wrong_pass(target: ProgramTarget, program: AnyProgram, verdict: Verdict) -> str:
    """Return which pass goes wrong where a result is wrong; nothing for another verdict, or where it is not known."""
    return target.wrong_pass(program) if (verdict.oracle, verdict.symptom) == (EVALUATOR, WRONG) else ""


def explained(target: ProgramTarget, program: AnyProgram, verdict: Verdict) -> Verdict:
    """Return a verdict whose message also names the pass that goes wrong, where that is known."""
    return naming(verdict, wrong_pass(target, program, verdict))


def naming(verdict: Verdict, found: str) -> Verdict:
    """Return a verdict whose message also names the pass, if there is one."""
    return dataclasses.replace(verdict, message=f"{verdict.message}{_GOES_WRONG}{found}") if found else verdict


def named_pass(message: str) -> str:
    """Return the pass that a verdict's message names; nothing where it names none."""
    return message.rpartition(_GOES_WRONG)[2] if _GOES_WRONG in message else ""


def _uncompiled(error: CompileError) -> Verdict:
    if error.is_limit:
        return not_applicable(COMPILER, error.stage, str(error).splitlines()[0])
    return failed(COMPILER, error.stage, error.kind, str(error))


def _compared(name: str, wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], program: AnyProgram) -> Verdict:
    """Return the verdict on an output; 0.0 and -0.0 are one value, since the order of a sum decides on the sign."""
    wrong = wanted != got
    if not wrong.any():
        return passed(EVALUATOR, name)
    at = tuple(int(one) for one in np.argwhere(wrong)[0])
    message = f"{element_name(name, at)} = {got[at]}, evaluator {wanted[at]}; {wrong.sum()} of {wrong.size} differ"
    return failed(EVALUATOR, language_of(program).signature(program), WRONG, message)
