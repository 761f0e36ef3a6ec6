"""The gradient gate: checks that the backward is the derivative of the forward, by three relations.

1. The gradients equal those of automatic differentiation of the float64 forward. This also checks the backward formula, on
   which the bound gate's reference relies.
2. Gradients of two parts of the tokens add up to those of all tokens.
3. The backward is linear in the upstream gradient (`oracles.linear`).
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mhc.observation import Observation
from mhc.reference import condensed, widen
from oracles import linear
from oracles.bounds.error_number import ErrorNumber
from oracles.bounds.rounding import all_finite, half_subnormal, unit_roundoff
from oracles.judge import agree
from oracles.reindex import Reindexing, one_batch
from oracles.trial import Gate, Plan, Trial, hash_below
from oracles.verdict import Verdict, not_applicable

NAME = "gradient"
PARTS = ("first tokens", "other tokens")


def differentiated(trial: Trial) -> Plan | list[Verdict]:
    """Plan a comparison with float64 automatic differentiation of the forward formula, within the bound."""
    case, table = trial.case, trial.case.table
    if not trial.observation.gradients:
        return [not_applicable(NAME, "autograd", "no backward")]
    if table.function is not None:
        return [not_applicable(NAME, "autograd", "the bound gate's reference is automatic differentiation already")]
    if case.dtype == "float64":
        return [not_applicable(NAME, "autograd", "no reference is more precise; gradcheck judges float64")]
    few = condensed(trial.inputs)
    values = widen(trial.inputs if few is None else few.inputs)
    if any(value is not None and not all_finite(value) for value in values.values()):
        return [not_applicable(NAME, "autograd", "not finite everywhere")]

    def judge(_: Mapping[str, Observation]) -> list[Verdict]:
        wanted = _autograd(trial, values)
        if few is not None:
            wanted = {spec.name: few.expand(wanted[spec.name], spec) for spec in table.gradients if spec.name in wanted}
        gradients = {name: _derived(wanted[name], one) for name, one in trial.allowed.gradients.items()}
        observation = replace(trial.observation, outputs={})
        return agree(NAME, "not the derivative", observation, replace(trial.allowed, outputs={}, gradients=gradients))

    return Plan(judge=judge)


def _derived(wanted: Tensor, one: ErrorNumber) -> ErrorNumber:
    """Return another reference with the same tolerance, infinite where the reference is not finite."""
    if one.finite and all_finite(wanted):
        return ErrorNumber(wanted, one.error, one.dtype, finite=True)
    return ErrorNumber(wanted, torch.where(wanted.isfinite(), one.error, torch.inf), one.dtype)


def _autograd(trial: Trial, values: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return float64 gradients by name; in the table, gradients[i] belongs to inputs[i] and upstream[i] to outputs[i]."""
    table = trial.case.table
    leaves = {
        spec.name: None if value is None else value.detach().requires_grad_()
        for spec, value in ((spec, values[spec.name]) for spec in table.inputs)
    }
    with torch.enable_grad():
        outputs = table.forward(*(leaves[name] for name in table.forward_arguments), **trial.case.scalars)
    upstream = [values[spec.name] for spec in table.upstream]
    wanted = [leaf for leaf in leaves.values() if leaf is not None]
    gradients = iter(torch.autograd.grad(list(outputs[: len(upstream)]), wanted, upstream))
    pairs = zip(table.gradients, table.inputs, strict=True)
    return {gradient.name: next(gradients) for gradient, spec in pairs if leaves[spec.name] is not None}


def additive(trial: Trial) -> Plan | list[Verdict]:
    """Plan two runs, each on a part of the tokens, whose sums over tokens must add up to those of all tokens.

    The parts' tolerances add up to no more than the whole's: sqrt(L1) a + sqrt(L2) b <= sqrt(L1 + L2) (a + b). A part
    that is stored in a narrow dtype is rounded once more, relative to itself, which may be larger than the whole.
    """
    case, table = trial.case, trial.case.table
    if not trial.observation.gradients:
        return [not_applicable(NAME, "additive", "no backward")]
    if case.token_count < 2:
        return [not_applicable(NAME, "additive", "fewer than two tokens")]
    cut = 1 + hash_below(case, "cut", case.token_count - 1)
    tokens = torch.arange(case.token_count)
    parts = [Reindexing(table=table, tokens=one_batch(part, case)) for part in (tokens[:cut], tokens[cut:])]
    runs = [part.run(label, trial, stages=("backward",)) for label, part in zip(PARTS, parts, strict=True)]

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        one, other = (observed[label].gradients for label in PARTS)
        added = {name: _add(one[name], other[name]) for name in one if name in table.token_sums}
        wanted = trial.allowed.gradients
        rounded = {name: _stored(wanted[name], one[name], other[name]) for name in added if name in wanted}
        allowed = replace(trial.allowed, outputs={}, gradients=rounded)
        return agree(NAME, "not additive", replace(trial.observation, outputs={}, gradients=added), allowed)

    return Plan(runs=runs, judge=judge)


def _stored(wanted: ErrorNumber, *parts: Tensor | None) -> ErrorNumber:
    """Return the reference of a sum whose parts were each rounded to a narrow dtype."""
    given = [one.double().abs() for one in parts if one is not None]
    if unit_roundoff(wanted.dtype) <= unit_roundoff(torch.float32):
        return wanted
    rounded = sum(unit_roundoff(wanted.dtype) * one + half_subnormal(wanted.dtype) for one in given)
    return ErrorNumber(wanted.value, wanted.error + rounded, wanted.dtype, finite=wanted.finite)


def _add(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return None if one is None or other is None else one.double() + other.double()


GATES = (
    Gate(name=NAME, variant="autograd", plan=differentiated, every=8),
    linear.GATE,
    Gate(name=NAME, variant="additive", plan=additive, every=12),
)
