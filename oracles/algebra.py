"""The algebra gate: checks metamorphic relations between two results, within the derived tolerance.

A run on reindexed inputs is judged by the reindexed reference and tolerance: rounding error analysis does not depend on the
order of tokens or streams. Where inputs are scaled (`Operator.relations`), the tolerance is derived again for the scaled
inputs, and the expected value is the scaled reference of the original case.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mhc.inputs import derived
from mhc.observation import Observation
from mhc.operator import OPERATORS, STORAGE_DTYPES, Relation
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import all_finite
from mhc.oracles.judge import agree
from mhc.oracles.reindex import OUTSIDE, Reindexing, index_map, one_batch, shuffled
from mhc.oracles.tolerances import Tolerances, tolerances
from mhc.oracles.trial import Gate, Plan, Run, Trial, hash_below
from mhc.oracles.verdict import Verdict, not_applicable
from mhc.reference import reference

NAME = "algebra"


def permuted_tokens(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with permuted tokens: rows are permuted with them, and sums over tokens stay."""
    case = trial.case
    if case.token_count < 2:
        return [not_applicable(NAME, "permuted tokens", "fewer than two tokens")]
    order = shuffled(case, "permuted tokens", case.token_count).reshape(case.lead)
    return _moved(trial, "permuted tokens", Reindexing(table=case.table, tokens=order))


def sliced_tokens(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with some of the tokens: their rows stay. Sums over tokens are not judged."""
    case = trial.case
    if case.token_count < 2:
        return [not_applicable(NAME, "sliced tokens", "fewer than two tokens")]
    begin = hash_below(case, "slice", case.token_count)
    tokens = one_batch(torch.arange(begin, max(begin + 1, case.token_count - 1)), case)
    if not case.may_have(tokens.shape):
        return [not_applicable(NAME, "sliced tokens", OUTSIDE)]
    return _moved(trial, "sliced tokens", Reindexing(table=case.table, tokens=tokens), rows_only=True)


def repeated_tokens(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with every token twice: rows come twice, and sums over tokens double.

    The bound of 2L terms, sqrt(2L) u sum |a|, is at most 2 sqrt(2) times that of L terms.
    """
    case = trial.case
    if case.token_count < 1 or not case.lead:
        return [not_applicable(NAME, "repeated tokens", "no tokens")]
    tokens = torch.arange(case.token_count).reshape(case.lead)
    tokens = torch.cat([tokens, tokens])
    if not case.may_have(tokens.shape):
        return [not_applicable(NAME, "repeated tokens", OUTSIDE)]
    return _moved(trial, "repeated tokens", Reindexing(table=case.table, tokens=tokens), times=2.0)


def permuted_streams(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with permuted streams, in every tensor with an axis of streams."""
    case = trial.case
    table, count = case.table, case.sizes.get(case.table.streams, 1)
    if count < 2:
        return [not_applicable(NAME, "permuted streams", "fewer than two streams")]
    order = shuffled(case, "permuted streams", count)
    blocks = {table.streams: ((table.streams,),), **table.blocks}
    axes = {symbol: index_map(parts, case.sizes, table.streams, order) for symbol, parts in blocks.items()}
    return _moved(trial, "permuted streams", Reindexing(table=table, axes=axes))


def _moved(trial: Trial, label: str, move: Reindexing, *, rows_only: bool = False, times: float = 1.0) -> Plan:
    """Plan a run on reindexed inputs; sums over tokens must be `times` as large."""
    sums = trial.case.table.token_sums

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        allowed, observation = move.tolerances(trial), observed[label]
        larger = times * math.sqrt(times)
        gradients = {
            name: ErrorNumber(one.value * times, one.error * larger, one.dtype) if name in sums and times != 1 else one
            for name, one in allowed.gradients.items()
        }
        if rows_only:
            kept = {name: value for name, value in observation.gradients.items() if name not in sums}
            observation = replace(observation, gradients=kept)
        return agree(NAME, label, observation, Tolerances(outputs=allowed.outputs, gradients=gradients))

    return Plan(runs=[move.run(label, trial)], judge=judge)


def related(trial: Trial, relation: Relation) -> Plan | list[Verdict]:
    """Plan a run on inputs scaled by the factors of `relation`."""
    case, table = trial.case, trial.case.table
    power = relation.powers[hash_below(case, relation.name, len(relation.powers))]
    factors = relation.factors(case.sizes, power)
    tensors: dict[str, Tensor | None] = {}
    for spec in table.drawn:
        tensor = trial.inputs.tensors[spec.name]
        if tensor is None and spec.name in relation.ones:
            dtype = spec.dtype(STORAGE_DTYPES[case.dtype])
            tensor = torch.ones(spec.shape(case.sizes), dtype=dtype)
        if tensor is None or not spec.floating:
            continue
        if not all_finite(tensor):
            return [not_applicable(NAME, relation.name, f"{spec.name} is not finite everywhere")]
        if spec.name in factors:
            factor = torch.as_tensor(factors[spec.name], dtype=tensor.dtype)
            moved = tensor * factor
            if bool((moved.double() != tensor.double() * factor.double()).any()):
                return [not_applicable(NAME, relation.name, f"{spec.name} leaves the range of its dtype")]
            tensors[spec.name] = moved
    scaled = {name: case.scalars[name] * factor for name, factor in relation.scalars(power).items()}
    inputs = derived(trial.inputs, tensors, scalars={**case.scalars, **scaled})
    wanted = reference(inputs)
    rescaled = all(bool((torch.as_tensor(factor) != 0).all()) for factor in factors.values())

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        before = trial.allowed.results

        def expected(name: str, fresh: ErrorNumber) -> ErrorNumber:
            factor = None if name in relation.silent else factors.get(name, 1.0)
            return _scale(fresh, before.get(name), factor, rescaled=rescaled)

        allowed = tolerances(inputs, wanted, declared=trial.declared).map(expected)
        return agree(NAME, relation.name, observed[relation.name], allowed)

    return Plan(runs=[Run(label=relation.name, inputs=inputs, saved=wanted.saved)], judge=judge)


def _scale(
    fresh: ErrorNumber, before: ErrorNumber | None, factor: Tensor | float | None, *, rescaled: bool = False
) -> ErrorNumber:
    """Return the case's scaled reference with the tolerance of the scaled inputs; `fresh` where the relation is silent.

    Where all is `rescaled`, sums have the terms of the case times a power of two. Those that are equal may show in one of
    the two only, since a factor that one operand lost the other has gained: then the larger tolerance holds.
    """
    if before is None or factor is None:
        return fresh
    times = torch.as_tensor(factor, dtype=torch.float64).to(before.value.device)
    value, error = before.value * times, fresh.error
    if rescaled:
        error = torch.maximum(error, before.error * times.abs())
    if before.finite and fresh.finite and all_finite(value):
        return ErrorNumber(value, error, fresh.dtype, finite=True)
    comparable = before.value.isfinite() & ~before.error.isinf() & ~fresh.error.isinf()
    return ErrorNumber(value, torch.where(comparable, error, torch.inf), fresh.dtype)


def _relation(name: str) -> Callable[[Trial], Plan | list[Verdict]]:
    """Return the plan function of the relation `name`; it returns no verdict for operators without that relation."""

    def plan(trial: Trial) -> Plan | list[Verdict]:
        return next((related(trial, one) for one in trial.case.table.relations if one.name == name), [])

    return plan


def declared_relation(trial: Trial) -> Plan | list[Verdict]:
    """Plan the run of one of the relations of an operator that a function declares, chosen by a hash of the case."""
    case, own = trial.case, [one for one in trial.case.table.relations if one.name not in PLANS]
    return related(trial, own[hash_below(case, "relation", len(own))]) if own else []


PLANS: Mapping[str, Callable[[Trial], Plan | list[Verdict]]] = {
    "permuted tokens": permuted_tokens,
    "sliced tokens": sliced_tokens,
    "repeated tokens": repeated_tokens,
    "permuted streams": permuted_streams,
    **{one.name: _relation(one.name) for table in OPERATORS.values() for one in table.relations},
}
GATES = (
    *(Gate(name=NAME, variant=name, plan=plan, every=12) for name, plan in PLANS.items()),
    Gate(name=NAME, variant="declared relation", plan=declared_relation, every=4),
)
