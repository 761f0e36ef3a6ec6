"""Run what a finding's gate ran: find the inputs on which the kernels are wrong, and the second run if two are compared."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from mhc.fuzz.check.check import rerun
from mhc.fuzz.findings.finding import Finding
from mhc.implementation import Implementation
from mhc.inputs import Inputs, materialise
from mhc.observation import Observation, observe
from mhc.oracles import (
    algebra,
    bound,
    determinism,
    exact,
    gradient,
    isolation,
    linear,
    liveness,
    memory,
    nonfinite,
    ordering,
    precision,
    sequence,
    training,
)
from mhc.oracles.gates import GATES
from mhc.oracles.tolerances import Tolerances, tolerances
from mhc.oracles.trial import Plan, Run, Trial
from mhc.reference import reference
from mhc.upstream.verify import ExportError

ONE_RUN = {bound.NAME, nonfinite.NAME, liveness.NAME}
OVERWRITTEN, WRITTEN, OVERRUN = "overwritten", "written", "overrun"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One run that shows what is wrong, or two that do together.

    Attributes:
        inputs, saved: of the (first) run.
        allowed: what its results may be, where float64 says so.
        again: the other run, whose results must be `times` the first one's, bit for bit; `at` is an element that is not.
        about: what is special about the inputs; empty where they are the case's own.
    """

    inputs: Inputs
    saved: Mapping[str, Tensor]
    allowed: Tolerances | None = None
    again: Run | None = None
    times: float = 1.0
    at: tuple[int, ...] = ()
    about: str = ""


def scene(found: Finding, implementation: Implementation, device: str) -> Scene:
    """Run what the finding's gate runs, as far as it must to know where the fault shows.

    Raises:
        ExportError: the gate finds nothing wrong, or nothing that a program could show.
    """
    oracle, symptom = found.fingerprint.oracle, found.fingerprint.symptom
    inputs = materialise(found.operator_case, device)
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted, declared=implementation.declared)
    if oracle in ONE_RUN:
        return Scene(inputs=inputs, saved=wanted.saved, allowed=allowed)
    if symptom == OVERWRITTEN:
        raise ExportError("a result that a later call overwrites is allocated by the host code, and not by a kernel")
    trial = Trial(
        inputs=inputs,
        reference=wanted,
        allowed=allowed,
        observation=observe(implementation, inputs, wanted.saved),
        declared=implementation.declared,
    )
    if (oracle, symptom) in {(memory.NAME, WRITTEN), (memory.NAME, OVERRUN)}:
        return _trespass(symptom, implementation, trial)
    for variant, plan in _plans(trial, oracle):
        observed = {run.label: rerun(implementation, run) for run in plan.runs}
        message = next((one.message for one in plan.judge(observed) if found.fingerprint.fits(one)), None)
        if message is not None:
            return _of(found, trial, variant, plan, message)
    raise ExportError(f"{found.fingerprint.subject} does not fail while it is recorded: {oracle} finds nothing wrong")


def _trespass(symptom: str, implementation: Implementation, trial: Trial) -> Scene:
    """Return the run that writes where it must not: the first, or a further run of a gate, whose numbers may show more."""

    def shows(observation: Observation) -> bool:
        return any(one.symptom == symptom for one in memory.judge(observation))

    if not shows(trial.observation):
        for gate in GATES:
            plan = gate.plan(trial)
            for run in plan.runs if isinstance(plan, Plan) and not plan.probes else ():
                if shows(rerun(implementation, run)):
                    about = f"inputs of the gate {gate.name} {gate.variant}".rstrip()
                    return Scene(inputs=run.inputs, saved=run.saved, allowed=trial.allowed, about=about)
    return Scene(inputs=trial.inputs, saved=trial.reference.saved, allowed=trial.allowed)


def _plans(trial: Trial, oracle: str) -> Iterator[tuple[str, Plan]]:
    if oracle == sequence.NAME:
        raise ExportError("calls one after the other fail, and a program has one")
    if oracle == training.NAME:
        raise ExportError("forward and backward fail together, and a program has one of them")
    if oracle == ordering.NAME:
        raise ExportError("a program by itself runs in one order, and the order is what fails; `replay` shows it")
    known = {determinism.NAME, memory.NAME, isolation.NAME, exact.NAME, precision.NAME, algebra.NAME, gradient.NAME}
    if oracle not in known:
        raise ExportError(f"no program is made for the gate {oracle}: no kernel is at fault where it fails")
    for gate in GATES:
        plan = gate.plan(trial) if gate.name == oracle else []
        if isinstance(plan, Plan):
            yield gate.variant, plan


def _of(found: Finding, trial: Trial, variant: str, plan: Plan, message: str) -> Scene:
    oracle = found.fingerprint.oracle
    base = Scene(inputs=trial.inputs, saved=trial.reference.saved, allowed=trial.allowed)
    if not plan.runs:  # another derivation of the same numbers
        return base
    run = plan.runs[-1]
    if oracle in {determinism.NAME, memory.NAME, isolation.NAME} or variant == linear.LABEL:
        times = 2.0 if variant == linear.LABEL else 1.0
        return replace(base, allowed=None, again=run, times=times, at=element(message))
    if oracle == gradient.NAME:
        raise ExportError("parts of the tokens do not add up to the whole; neither need be wrong by itself")
    allowing, about = {
        exact.NAME: (exact.promised, "inputs on which every sum is exact"),
        precision.NAME: (precision.promised, "inputs on which precision shows"),
    }.get(oracle, (tolerances, f"the case's inputs with {variant}"))
    allowed = allowing(run.inputs, reference(run.inputs), declared=trial.declared)
    return Scene(inputs=run.inputs, saved=run.saved, allowed=allowed, about=about)


def element(message: str) -> tuple[int, ...]:
    """Return the index that a verdict's message names, as in `dx[0, 17] = 1`."""
    matched = re.search(r"\w\[([\d, ]*)\] = ", message)
    assert matched is not None, message
    return tuple(int(one) for one in matched[1].split(",") if one.strip())
