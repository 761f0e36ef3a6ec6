"""The training gate: checks a function that autograd differentiates in the ways in which training uses it.

The first run has a forward under `no_grad`, and a backward in which every input requires a gradient and every output has an
upstream gradient. A function can tell other uses from that: it knows which inputs require a gradient, an output that is not
used has no upstream gradient, and a retained graph is used again. The outputs here are those of a run whose inputs require
gradients, so they are judged too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch

from mhc.case import Case, with_tensor
from mhc.declaration import Autograd
from mhc.inputs import Inputs, materialise
from mhc.observation import Observation
from mhc.oracles.bounds.rounding import all_finite
from mhc.oracles.judge import agree
from mhc.oracles.tolerances import tolerances
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.verdict import Status, Verdict, not_applicable
from mhc.reference import reference

NAME = "training"
ALL, SOME, UNUSED, RETAINED = "all gradients", "some gradients", "no upstream gradient", "second backward"
OUTPUTS = "with gradients"
"""The symptom of an output that is wrong where inputs require gradients, whatever is done with it then."""


def some(case: Case) -> dict[str, Autograd]:
    """Return the uses in which one input requires a gradient, or all but one; none of them with fewer than two inputs."""
    names = frozenset(spec.name for spec in case.table.inputs if spec.differentiable and case.has(spec.name))
    only = {f"only d{name}": Autograd(constant=names - {name}) for name in sorted(names)}
    without = {f"without d{name}": Autograd(constant=frozenset({name})) for name in sorted(names)}
    # of two, one without the other is one of them alone
    return {**only, **without} if len(names) > 2 else only if len(names) == 2 else {}


def unused(case: Case) -> dict[str, Autograd]:
    """Return the uses in which one output has no upstream gradient; none with fewer than two outputs."""
    names = [spec.name.removeprefix("d") for spec in case.table.upstream]
    return {f"no upstream gradient of {name}": Autograd(unused=name) for name in names if len(names) > 1}


def plan(symptom: str, uses: Callable[[Case], Mapping[str, Autograd]], trial: Trial) -> Plan | list[Verdict]:
    """Plan a run of forward and backward for each use of autograd.

    Args:
        symptom: of gradients that are wrong.
        uses: returns the uses for a case, each with what messages call it.
    """
    if not trial.by_autograd:
        return [not_applicable(NAME, symptom, "its backward is not autograd's")]
    found = uses(trial.case)
    if not found:
        return [not_applicable(NAME, symptom, "fewer than two to choose from")]
    if symptom == UNUSED and not _finite(trial):
        return [not_applicable(NAME, symptom, "not finite everywhere: 0 times infinity is NaN, and a term left out is 0")]
    runs = [
        Run(
            label=label,
            inputs=_with_zeros(trial.inputs, use.unused) if use.unused else trial.inputs,
            saved=trial.reference.saved,
            autograd=use,
        )
        for label, use in found.items()
    ]

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        verdicts = []
        for run, use in zip(runs, found.values(), strict=True):
            allowed, first = trial.allowed, None if use.unused else trial.observation
            if use.unused:
                allowed = tolerances(run.inputs, reference(run.inputs), declared=trial.declared)
            verdicts += [
                replace(one, symptom=OUTPUTS if one.subject in allowed.outputs else symptom)
                if one.status is Status.FAIL
                else one
                for one in agree(NAME, run.label, _completed(trial, use, observed[run.label]), allowed, first=first)
            ]
        return verdicts

    return Plan(runs=runs, judge=judge)


def _finite(trial: Trial) -> bool:
    tensors = [*trial.inputs.tensors.values(), *trial.reference.outputs.values(), *trial.reference.gradients.values()]
    return all(one is None or all_finite(one) for one in tensors)


def _with_zeros(inputs: Inputs, output: str) -> Inputs:
    """Return inputs with an upstream gradient of zeros, which means the same as none."""
    return materialise(with_tensor(inputs.case, f"d{output}", kind="zero", literals=()), inputs.device)


def _completed(trial: Trial, use: Autograd, observed: Observation) -> Observation:
    """Return the gradients that are required; one that is None here, and a tensor in the first run, counts as 0."""
    constant, first = {f"d{name}" for name in use.constant}, trial.observation.gradients
    gradients = {}
    for name, value in observed.gradients.items():
        if name not in constant:
            other = first[name]
            gradients[name] = torch.zeros_like(other) if value is None and other is not None else value
    return replace(observed, gradients=gradients)


GATES = (
    Gate(name=NAME, variant=ALL, plan=partial(plan, ALL, lambda _: {ALL: Autograd()}), every=12),
    Gate(name=NAME, variant=SOME, plan=partial(plan, SOME, some), every=24),
    Gate(name=NAME, variant=UNUSED, plan=partial(plan, UNUSED, unused), every=24),
    Gate(name=NAME, variant=RETAINED, plan=partial(plan, RETAINED, lambda _: {RETAINED: Autograd(retained=True)}), every=12),
)
