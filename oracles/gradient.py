"""The gradient gate: checks that the backward is the derivative of the forward, by three relations.

1. The gradients equal those of automatic differentiation of the float64 forward. This also checks the backward formula, on
   which the bound gate's reference relies.
2. Gradients of two parts of the tokens add up to those of all tokens.
3. The backward is linear in the upstream gradient (`mhc.oracles.linear`).
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES, Role
from mhc.oracles import linear
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import all_finite, half_subnormal, unit_roundoff
from mhc.oracles.judge import agree
from mhc.oracles.reindex import OUTSIDE, Reindexing, one_batch
from mhc.oracles.trial import Gate, Plan, Trial, hash_below
from mhc.oracles.verdict import Verdict, not_applicable
from mhc.reference import condensed, widen

NAME = "gradient"
DERIVATIVE, ADDITIVE = "not the derivative", "not additive"
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
        gradients = {name: _derived(wanted[name], one) for name, one in trial.allowed.gradients.items() if name in wanted}
        observation = replace(trial.observation, outputs={})
        return agree(NAME, DERIVATIVE, observation, replace(trial.allowed, gradients=gradients))

    return Plan(judge=judge)


def _derived(wanted: Tensor, one: ErrorNumber) -> ErrorNumber:
    """Return another reference with the same tolerance, infinite where the reference is not finite."""
    if one.finite and all_finite(wanted):
        return ErrorNumber(wanted, one.error, one.dtype, finite=True)
    return ErrorNumber(wanted, torch.where(wanted.isfinite(), one.error, torch.inf), one.dtype)


def _autograd(trial: Trial, values: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return float64 gradients by name, without those that are None."""
    table = trial.case.table
    leaves = {
        spec.name: None if value is None else value.detach().requires_grad_(spec.differentiable)
        for spec, value in ((spec, values[spec.name]) for spec in table.inputs)
    }
    with torch.enable_grad():
        outputs = table.forward(*(leaves[name] for name in table.forward_arguments), **trial.case.scalars)
    ends = {f"d{spec.name}": one for spec, one in zip(table.outputs, outputs, strict=True)}
    wanted = {f"d{name}": leaf for name, leaf in leaves.items() if leaf is not None and leaf.requires_grad}
    upstream = [(ends[spec.name], values[spec.name]) for spec in table.upstream]
    found = torch.autograd.grad(
        [end for end, _ in upstream], list(wanted.values()), [one for _, one in upstream], allow_unused=True
    )
    return {name: one for name, one in zip(wanted, found, strict=True) if one is not None}


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
    storage = STORAGE_DTYPES[case.dtype]
    narrow = {spec.name for spec in table.gradients if spec.role is Role.STORAGE and spec.name in table.token_sums}
    cut = 1 + hash_below(case, "cut", case.token_count - 1)
    tokens = torch.arange(case.token_count)
    parts = [Reindexing(table=table, tokens=one_batch(part, case)) for part in (tokens[:cut], tokens[cut:])]
    if not all(part.tokens is not None and case.may_have(part.tokens.shape) for part in parts):
        return [not_applicable(NAME, "additive", OUTSIDE)]
    runs = [part.run(label, trial, stages=("backward",)) for label, part in zip(PARTS, parts, strict=True)]

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        one, other = (observed[label].gradients for label in PARTS)
        added = {name: _add(one[name], other[name]) for name in one if name in table.token_sums}
        added = {name: value if value is None or name not in narrow else value.to(storage) for name, value in added.items()}
        gradients = {
            spec.name: _stored_twice(trial.allowed.gradients[spec.name], one.get(spec.name), other.get(spec.name))
            if spec.name in narrow
            else trial.allowed.gradients[spec.name]
            for spec in table.gradients
            if spec.name in trial.allowed.gradients
        }
        observation = replace(trial.observation, outputs={}, gradients=added)
        return agree(NAME, ADDITIVE, observation, replace(trial.allowed, gradients=gradients))

    return Plan(runs=runs, judge=judge)


def _stored_twice(number: ErrorNumber, one: Tensor | None, other: Tensor | None) -> ErrorNumber:
    """Return a tolerance with the roundings of both parts and of their sum to a narrow dtype.

    Parts that cancel are larger than their sum.
    """
    if one is None or other is None:
        return number
    size = (one.double().abs() + other.double().abs()).to(number.error.device)
    stored = 2 * unit_roundoff(number.dtype) * size + 3 * half_subnormal(number.dtype)
    return ErrorNumber(number.value, number.error + stored.nan_to_num(nan=torch.inf, posinf=torch.inf), number.dtype)


def _add(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return None if one is None or other is None else one.double() + other.double()


GATES = (
    Gate(name=NAME, variant="autograd", plan=differentiated, every=8),
    linear.GATE,
    Gate(name=NAME, variant="additive", plan=additive, every=12),
)
