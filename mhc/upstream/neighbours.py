"""Cases beside a finding's, each with one thing changed: where it fails and where it does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mhc.case import Case
from mhc.fuzz.depth import Depth
from mhc.fuzz.finding import Finding
from mhc.fuzz.sandbox import Sandbox, Start
from mhc.fuzz.worker import Worker
from mhc.operator import STORAGE_DTYPES
from mhc.recipe import CONTIGUOUS
from mhc.registry import built_in, load
from oracles.verdict import Status

LIMIT = 60.0


@dataclass(frozen=True)
class Neighbour:
    """A case, what is different in it, and the message of the finding's verdict there; None where it passes."""

    change: str
    case: Case
    message: str | None

    @property
    def passes(self) -> bool:
        return self.message is None


def peers(found: Finding, device: str, log: Path) -> list[str]:
    """What the other built-in implementations do on the finding's case, each as a clause: `golden passes`."""
    said = []
    for name in built_in():
        implementation = load(name)
        own = name == found.spec or implementation.operator != found.case.operator
        if own or device not in implementation.devices or implementation.refusal(found.case, device) is not None:
            continue
        worker = Worker(name, implementation, device, limit=LIMIT, log=log)
        try:
            worker.start(found.case, Depth.PLAIN)
            verdicts = worker.finish()
        finally:
            worker.stop()
        subject = [one for one in verdicts if one.subject == found.fingerprint.subject]
        failing = [one for one in (subject or verdicts) if one.status is Status.FAIL]
        if failing:
            said.append(f"{name} fails ({failing[0].symptom})")
        elif any(one.status is Status.PASS for one in verdicts):
            said.append(f"{name} passes")
    return said


def neighbours(found: Finding, start: Start) -> list[Neighbour]:
    """The finding's own case first, then its neighbours, run one after the other.

    A case that the implementation refuses, or where something else goes wrong, counts as passing nothing: it is left out.
    """
    sandbox = Sandbox(start, limit=LIMIT)
    found_here: list[Neighbour] = []
    try:
        for change, case in _changed(found.case):
            verdicts = sandbox.verdicts(case, Depth.PLAIN)
            seen = next((one for one in verdicts if found.fingerprint.fits(one, case)), None)
            judged = any(one.subject == found.fingerprint.subject for one in verdicts)
            if seen is not None or (judged and not any(one.status is Status.FAIL for one in verdicts)):
                found_here.append(Neighbour(change, case, None if seen is None else seen.message))
    finally:
        sandbox.stop()
    return found_here


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
    for name in ("B", "S", "n", "D"):
        size = getattr(case, name)
        for other in dict.fromkeys((size - 1, size + 1, 2 * size)):
            if other >= 1:
                yield f"{name} = {other}", {name: other}
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
