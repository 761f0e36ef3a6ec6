"""Run a finding's stage once or twice, record its launches, and check that it fails as in the finding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mhc.fuzz.findings.finding import Finding
from mhc.implementation import Implementation
from mhc.inputs import Inputs
from mhc.memory import BAND, NAN_FILL, Allocations, poisoned
from mhc.observation import Failure
from mhc.oracles import bound, determinism, liveness, memory, nonfinite
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.trial import same_bits
from mhc.oracles.verdict import Status, Verdict, first
from mhc.placement import place
from mhc.precision import float32_matmuls
from mhc.registry import load
from mhc.upstream.trace.capture import Capture, capturing
from mhc.upstream.trace.scene import OVERRUN, WRITTEN, Scene, element, scene
from mhc.upstream.verify import ExportError

_TRIES = 20
"""Second runs until one differs from the first."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one run did.

    Attributes:
        given: the inputs, the upstream gradients, and what the backward got for the forward's saved tensors, by name, as
            they were before the run; again: of the second run, where there is one.
        outputs: the names of what the stage returns, in order; returned: what it did return; None where it raised.
        raised: the exception at the root of the one that it raised.
        at: the element that is wrong. verdict: the gate's words, where one run is judged.
        band: of a variable that was written beside, its name, and where, in bytes from its first one.
    """

    found: Finding
    implementation: Implementation
    scene: Scene
    stage: str
    given: Mapping[str, Tensor | None]
    outputs: tuple[str, ...]
    capture: Capture
    again: Mapping[str, Tensor | None] | None = None
    returned: Any = None
    raised: BaseException | None = None
    at: tuple[int, ...] = ()
    verdict: Verdict | None = None
    band: tuple[str, int] | None = None

    @property
    def inputs(self) -> Inputs:
        return self.scene.inputs

    @property
    def number(self) -> ErrorNumber:
        """Return the subject's reference and tolerance."""
        allowed = self.scene.allowed
        assert allowed is not None
        return {**allowed.outputs, **allowed.gradients}[self.found.fingerprint.subject]

    @property
    def value(self) -> Tensor:
        """Return what was returned for the subject.

        Raises:
            ExportError: None was returned.
        """
        subject = self.found.fingerprint.subject
        value = self.returned[self.outputs.index(subject)]
        if not isinstance(value, Tensor):
            raise ExportError(f"{subject} was not returned while it was recorded")
        return value

    @property
    def said(self) -> str:
        """Return what was raised, as "Type: first line"."""
        lines = str(self.raised).strip().splitlines() or [""]
        return f"{type(self.raised).__name__}: {lines[0]}"


def record(found: Finding, device: str, on_launch: Callable[[Recording], None] | None = None) -> Recording:
    """Run the finding's stage.

    Args:
        on_launch: is called when a stage begins and before each launch, for findings that end the process.

    Raises:
        ExportError: it does not fail as the finding says.
    """
    implementation = load(found.spec)
    ends = found.fingerprint.oracle == liveness.NAME and found.fingerprint.subject == "process"
    here = scene(found, implementation, device)
    table = found.operator_case.table
    outputs = tuple(spec.name for spec in table.outputs)
    given = {**here.inputs.tensors, **here.saved}
    for stage in _stages(found, implementation):
        recording = Recording(
            found=found,
            implementation=implementation,
            scene=here,
            stage=stage,
            given=_of_stage(given, here, stage),
            outputs=outputs if stage == "forward" else tuple(spec.name for spec in table.gradients),
            capture=Capture({}),
        )
        if on_launch is not None:
            on_launch(recording)
        recording, placed, allocations, raised = _run(recording, here.inputs, here.saved, on_launch)
        if ends:
            continue
        checked = _checked(recording, raised, placed, allocations)
        if checked is not None:
            return checked
    if ends:
        raise ExportError("its process does not end while it is recorded")
    raise ExportError(f"{found.fingerprint.symptom}: it did not happen while it was recorded")


def _of_stage(given: Mapping[str, Tensor | None], here: Scene, stage: str) -> dict[str, Tensor | None]:
    """Return tensors without what the forward saves, where the forward runs: its own outputs have these names."""
    return {name: one for name, one in given.items() if stage == "backward" or name not in here.saved}


def _stages(found: Finding, implementation: Implementation) -> list[str]:
    """Return the stages that may be at fault."""
    subject = found.fingerprint.subject
    if subject in {"process", "inputs", "scratch"}:
        return [stage for stage in ("forward", "backward") if getattr(implementation, stage) is not None]
    if subject in {"forward", "backward"}:
        return [subject]
    return ["forward" if subject in {spec.name for spec in found.operator_case.table.outputs} else "backward"]


def _run(
    recording: Recording,
    inputs: Inputs,
    saved: Mapping[str, Tensor],
    on_launch: Callable[[Recording], None] | None = None,
    fill: int = NAN_FILL,
) -> tuple[Recording, Mapping[str, Tensor | None], Allocations, Exception | None]:
    """Return the recording with launches, arguments, results, allocations and the exception."""
    given = _of_stage(place(inputs, saved).tensors, recording.scene, recording.stage)
    found, implementation, stage = recording.found, recording.implementation, recording.stage
    case = recording.inputs.case
    arguments = [given[name] for name in getattr(found.operator_case.table, f"{stage}_arguments")]
    keywords = implementation.keywords(case.scalars, case.schedules.get(implementation.name))
    returned, raised = None, None
    device = recording.inputs.device.type

    def launching(capture: Capture) -> None:
        if on_launch is not None:
            on_launch(replace(recording, capture=capture))

    with float32_matmuls(device), poisoned(fill) as allocations, capturing(given, launching) as capture:
        try:
            returned = getattr(implementation, stage)(*arguments, **keywords)
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:  # what a finding may be
            raised = error
    root = None if raised is None else _root(raised)
    return replace(recording, capture=capture, returned=returned, raised=root), given, allocations, raised


def _checked(
    recording: Recording, raised: Exception | None, given: Mapping[str, Tensor | None], allocations: Allocations
) -> Recording | None:
    """Return the recording with what is wrong in it; None where another stage may be the one."""
    found = recording.found.fingerprint
    if raised is not None:
        failure = Failure(stage="", type=type(raised).__name__, message=str(raised), traceback="")
        if (found.oracle, found.symptom) != (liveness.NAME, liveness.symptom(failure)):
            raise ExportError(f"raises {failure.type} while it is recorded: {raised}")
        return recording
    if found.oracle == liveness.NAME:
        raise ExportError("nothing is raised while it is recorded")
    if found.symptom == WRITTEN:
        return _written(recording, given)
    if found.symptom == OVERRUN:
        return _overrun(recording, allocations)
    return _wrong(recording) if recording.scene.again is None else _twice(recording)


def _wrong(recording: Recording) -> Recording:
    """Return the recording with the element that float64 contradicts."""
    subject = recording.found.fingerprint.subject
    gates = {bound.NAME: [bound], nonfinite.NAME: [nonfinite]}.get(recording.found.fingerprint.oracle, [nonfinite, bound])
    verdicts = [gate.judge_tensor(subject, recording.value, recording.number) for gate in gates]
    verdict = next((one for one in verdicts if one.status is Status.FAIL), verdicts[-1])
    if verdict.status is not Status.FAIL:
        raise ExportError(f"{subject} does not fail while it is recorded: {verdict.status.value} {verdict.message}")
    return replace(recording, at=element(verdict.message), verdict=verdict)


def _twice(recording: Recording) -> Recording:
    """Return the recording with an element in which a second run differs, and the arguments of that run."""
    here = recording.scene
    assert here.again is not None
    steady = recording.found.fingerprint.oracle != determinism.NAME
    given = _of_stage({**here.again.inputs.tensors, **here.again.saved}, here, recording.stage)
    value = recording.value.clone()
    for _ in range(1 if steady else _TRIES):
        other, _, _, raised = _run(recording, here.again.inputs, here.again.saved, fill=here.again.fill)
        if raised is not None:
            raise ExportError(f"the second run raises {type(raised).__name__}: {raised}")
        if [one.identity for one in other.capture.launches] != [one.identity for one in recording.capture.launches]:
            raise ExportError("its two runs launch different kernels, or in other grids: the host code is at fault")
        differs = ~same_bits(value * here.times, other.value)
        if differs.any() and (not steady or differs[here.at]):
            return replace(recording, at=here.at if steady else first(differs), again=given)
    raise ExportError("two runs agree while it is recorded")


def _written(recording: Recording, after: Mapping[str, Tensor | None]) -> Recording | None:
    """Return the recording with the first element of an argument that the run has changed; the argument is the subject."""
    for name, was in recording.given.items():
        now = after[name]
        if was is None or now is None:
            continue
        changed = ~same_bits(was, now.cpu())
        if changed.any():
            return replace(
                recording, at=first(changed), verdict=Verdict(oracle=memory.NAME, subject=name, status=Status.FAIL)
            )
    return None


def _overrun(recording: Recording, allocations: Allocations) -> Recording | None:
    """Return the recording with the tensor beside which the run wrote, and the first element there."""
    for made in allocations.made:
        changed = (made.raw != allocations.fill).nonzero().reshape(-1)
        beside = changed[(changed < BAND) | (changed >= BAND + made.size)]
        if not beside.numel():
            continue
        name = recording.capture.name_at(made.address)
        if name is None:
            raise ExportError("memory beside an allocation was written that no launched kernel was given")
        return replace(recording, band=(name, int(beside[0]) - BAND))
    return None


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
