"""One run of the stage that a finding is of, what it launched, and the check that it fails as it was found."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mhc.fuzz.finding import Finding
from mhc.implementation import Implementation
from mhc.inputs import Inputs, materialise
from mhc.memory import NAN_FILL, poisoned
from mhc.observation import Failure
from mhc.placement import place
from mhc.precision import float32_matmuls
from mhc.reference import reference
from mhc.registry import load
from mhc.upstream.capture import Capture, capturing
from mhc.upstream.errors import ExportError
from oracles import bound, liveness, nonfinite
from oracles.bound import Tolerances, tolerances
from oracles.error_number import ErrorNumber
from oracles.verdict import Status


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one run did.

    Attributes:
        inputs, given: as they were before the run; given are the inputs, the upstream gradients, and what the backward got
            for the forward's saved tensors, by name.
        outputs: the names of what the stage returns, in order; returned: what it did return; None where it raised.
        raised: the exception at the root of the one that it raised.
    """

    found: Finding
    implementation: Implementation
    stage: str
    inputs: Inputs
    given: Mapping[str, Tensor | None]
    outputs: tuple[str, ...]
    capture: Capture
    returned: Any
    raised: BaseException | None
    allowed: Tolerances

    @property
    def number(self) -> ErrorNumber:
        """The subject's reference and tolerance."""
        return {**self.allowed.outputs, **self.allowed.gradients}[self.found.fingerprint.subject]

    @property
    def value(self) -> Tensor:
        """What was returned for the subject."""
        value = self.returned[self.outputs.index(self.found.fingerprint.subject)]
        assert isinstance(value, Tensor)
        return value

    @property
    def said(self) -> str:
        """What was raised, as "Type: first line"."""
        lines = str(self.raised).strip().splitlines() or [""]
        return f"{type(self.raised).__name__}: {lines[0]}"


def record(found: Finding, device: str) -> Recording:
    """Run the finding's stage.

    Raises:
        ExportError: it does not fail as the finding says.
    """
    implementation = load(found.spec)
    inputs = materialise(found.case, device)
    wanted = reference(inputs)
    case, table = found.case, found.case.table
    subject = found.fingerprint.subject
    outputs = tuple(spec.name for spec in table.outputs)
    stage = subject if subject in {"forward", "backward"} else "forward" if subject in outputs else "backward"
    given = place(inputs, wanted.saved).tensors
    arguments = [given[name] for name in getattr(table, f"{stage}_arguments")]
    keywords = implementation.keywords(case.scalars, case.schedules.get(implementation.name))
    returned, raised = None, None
    with float32_matmuls(device), poisoned(NAN_FILL), capturing(given) as capture:
        try:
            returned = getattr(implementation, stage)(*arguments, **keywords)
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:  # what a finding may be
            raised = error
    return _checked(
        Recording(
            found=found,
            implementation=implementation,
            stage=stage,
            inputs=inputs,
            given={**inputs.tensors, **wanted.saved},
            outputs=outputs if stage == "forward" else tuple(spec.name for spec in table.gradients),
            capture=capture,
            returned=returned,
            raised=None if raised is None else _root(raised),
            allowed=tolerances(inputs, wanted, recomputes_forward=implementation.recomputes_forward),
        ),
        raised,
    )


def wrong_element(recording: Recording) -> tuple[tuple[int, ...], str]:
    """The index of the element that the finding's gate names, and its message.

    Raises:
        ExportError: that gate finds nothing wrong.
    """
    subject, oracle = recording.found.fingerprint.subject, recording.found.fingerprint.oracle
    gate = bound if oracle == bound.NAME else nonfinite
    verdict = gate.judge_tensor(subject, recording.value, recording.number)
    if verdict.status is not Status.FAIL:
        raise ExportError(f"{subject} does not fail while it is recorded: {verdict.status.value} {verdict.message}")
    matched = re.match(r"\w+\[([\d, ]*)\] = ", verdict.message)
    assert matched is not None, verdict.message
    return tuple(int(one) for one in matched[1].split(",") if one.strip()), verdict.message


def _checked(recording: Recording, raised: Exception | None) -> Recording:
    found = recording.found.fingerprint
    if raised is not None:
        symptom = liveness.symptom(Failure(stage="", type=type(raised).__name__, message=str(raised), traceback=""))
        if (found.oracle, found.symptom) != (liveness.NAME, symptom):
            raise ExportError(f"raises {type(raised).__name__} while it is recorded: {raised}")
    elif found.oracle == liveness.NAME:
        raise ExportError("nothing is raised while it is recorded")
    elif recording.returned[recording.outputs.index(found.subject)] is None:
        raise ExportError(f"{found.subject} was not returned while it was recorded")
    return recording


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
