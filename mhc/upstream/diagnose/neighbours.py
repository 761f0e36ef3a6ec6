"""Run cases that differ from a finding's in one respect: which fail and which pass."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mhc.case import Case
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.minimise.sandbox import Sandbox, Start
from mhc.fuzz.worker.client import WorkerClient
from mhc.operator import STORAGE_DTYPES
from mhc.oracles import bound, liveness, nonfinite, refusal
from mhc.oracles.verdict import Status
from mhc.recipe import CONTIGUOUS
from mhc.registry import built_in, load
from mhc.upstream.diagnose.attribution import Elsewhere

LIMIT = 60.0
SCHEDULES = 16
"""Other schedules that are tried, at most."""

_SAME_KERNELS = {"triton": "triton-interpreted"}
_FORMULA = frozenset({"golden", "manual"})


def peers(found: Finding, device: str, log: Path) -> list[Elsewhere]:
    """Return what the other built-in implementations do on the finding's case, on its device where they run there."""
    here = [one for one in dict.fromkeys((device, "cpu", "cuda")) if one == "cpu" or torch.cuda.is_available()]
    said = []
    own = load(found.spec)
    for name, implementation in built_in(found.operator_case.operator).items():
        if name == found.spec:
            continue
        where = next((one for one in here if one in implementation.devices), None)
        if where is None or implementation.refusal(found.operator_case, where) is not None:
            continue
        worker = WorkerClient(name, implementation, where, limit=LIMIT, log=log)
        try:
            worker.start(found.case, depth_of(found))
            verdicts = worker.finish()
        finally:
            worker.stop()
        subject = [one for one in verdicts if one.subject == found.fingerprint.subject]
        failing = [one for one in (subject or verdicts) if one.status is Status.FAIL]
        if failing or any(one.status is Status.PASS for one in verdicts):
            said.append(
                Elsewhere(
                    what=name if where == device else f"{name} on {where}",
                    passes=not failing,
                    source=_SAME_KERNELS.get(own.name) == name,
                    formula=name.rpartition(".")[2] in _FORMULA,
                    how=failing[0].symptom if failing else "",
                )
            )
    return said


def schedules(found: Finding, start: Start) -> list[Elsewhere]:
    """Run the case with one choice of the implementation's schedule pinned to another value."""
    implementation = load(found.spec)
    pinned = dict(found.operator_case.schedules.get(implementation.name, {}))
    changes = [
        (f"schedule {key} = {value}", replace(found.operator_case, schedules={implementation.name: {**pinned, key: value}}))
        for key, values in implementation.schedule.items()
        for value in dict.fromkeys((values[0], values[-1]))
        if pinned.get(key) != value
    ]
    tried = _tried(found, start, changes[:SCHEDULES])
    return [replace(one, how=found.fingerprint.symptom) for one in tried]


def depth_of(found: Finding) -> Level:
    """Return how much must be checked to see the finding's gate."""
    one_run = {bound.NAME, nonfinite.NAME, liveness.NAME, refusal.NAME}
    return Level.PLAIN if found.fingerprint.oracle in one_run else Level.FULL


def neighbours(found: Finding, start: Start) -> list[Elsewhere]:
    """Return the finding's own case first, then its neighbours, run one after the other.

    A case that the implementation refuses, or where something else goes wrong, is left out.
    """
    return _tried(found, start, _changed(found.operator_case))


def _tried(found: Finding, start: Start, changes: Iterable[tuple[str, Case]]) -> list[Elsewhere]:
    sandbox = Sandbox(start, limit=LIMIT)
    made: list[Elsewhere] = []
    stages = found.fingerprint.oracle == liveness.NAME  # which a case that passes has no verdict on
    try:
        for change, case in changes:
            verdicts = sandbox.verdicts(case, depth_of(found))
            seen = next((one for one in verdicts if found.fingerprint.fits(one)), None)
            judged = any(
                (stages or one.subject == found.fingerprint.subject) and one.status is Status.PASS for one in verdicts
            )
            if seen is not None or (judged and not any(one.status is Status.FAIL for one in verdicts)):
                made.append(Elsewhere(change, passes=seen is None, how="" if seen is None else seen.message))
    finally:
        sandbox.stop()
    return made


def _changed(case: Case) -> Iterator[tuple[str, Case]]:
    yield "as found", case
    seen = {case}
    for change, fields in _changes(case):
        try:
            other = replace(case, **fields)
        except ValueError:
            continue
        if other not in seen:
            seen.add(other)
            yield change, other


def _changes(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in case.axes:
        size = case.sizes[name]
        for other in dict.fromkeys((size - 1, size + 1, 2 * size)):
            if other >= 1:
                yield f"{name} = {other}", {"sizes": {**case.sizes, name: other}}
    for dtype in STORAGE_DTYPES:
        if dtype != case.dtype:
            yield f"dtype = {dtype}", {"dtype": dtype}
    for spec in case.table.drawn:
        recipe = case.tensors.get(spec.name)
        if recipe is None:
            continue
        if spec.optional:
            yield f"without {spec.name}", {"tensors": {k: v for k, v in case.tensors.items() if k != spec.name}}
        if recipe.layout != CONTIGUOUS:
            yield f"{spec.name} dense", {"tensors": {**case.tensors, spec.name: replace(recipe, layout=CONTIGUOUS)}}
        if recipe.kind != "zero":
            zero = replace(recipe, kind="zero", literals=())
            yield f"{spec.name} = 0", {"tensors": {**case.tensors, spec.name: zero}}
    for name, usual in case.table.scalars.items():
        if case.scalars[name] != usual:
            yield f"{name} = {usual:g}", {"scalars": {**case.scalars, name: usual}}
    if case.schedules:
        yield "no schedule", {"schedules": {}}
