"""The exact gate: checks that results equal the reference bit for bit on inputs whose sums and products need few digits.

The operator's table has recipes for such inputs; all inputs of a plain function get few digits. The formula is evaluated on
error-carrying numbers with a quantum, a power of two of which all elements are multiples (`ErrorNumber.quantum`). An element
is judged, with tolerance 0, where every stage that leads to it is exact in any order. So the gate finds a single term
missing from a sum of thousands.

`inexact` is what only this gate sees. What is further from the reference than any order of evaluation leads is `value`.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch

from mhc.declared import Declared
from mhc.inputs import Inputs, materialise
from mhc.observation import Observation
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.judge import agree
from mhc.oracles.tolerances import Tolerances, tolerances
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.verdict import Status, Verdict, not_applicable
from mhc.recipe import Recipe
from mhc.reference import Reference, reference

NAME = "exact"
LABEL = "exact inputs"
INEXACT, VALUE = "inexact", "value"
_FEW = 32  # elements of all inputs, which a message has room for


def plan(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run on the case's shape, layouts and seeds with exact values."""
    case, table = trial.case, trial.case.table
    if not table.exact_recipes and table.function is None:
        return [not_applicable(NAME, "case", f"{table.name} has no exact inputs")]
    tensors = {
        name: replace(
            table.exact_recipes.get(name, Recipe(kind="exact") if table.argument_specs[name].floating else recipe),
            seed=recipe.seed,
            layout=recipe.layout,
            period=recipe.period,
            rows=recipe.rows,
        )
        for name, recipe in case.tensors.items()
    }
    scalars = case.scalars if table.function is not None else table.exact_scalars
    inputs = materialise(replace(case, tensors=tensors, scalars=scalars), trial.inputs.device)
    wanted = reference(inputs)

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        only_exact = promised(inputs, wanted, declared=trial.declared)
        verdicts = agree(NAME, INEXACT, observed[LABEL], only_exact)
        if not any(one.status is Status.FAIL for one in verdicts):
            return verdicts
        allowed = tolerances(inputs, wanted, declared=trial.declared)
        beyond = {one.subject: one for one in agree(NAME, VALUE, observed[LABEL], allowed) if one.status is Status.FAIL}
        return [_with_inputs(beyond.get(one.subject, one), inputs) for one in verdicts]

    return Plan(runs=[Run(label=LABEL, inputs=inputs, saved=wanted.saved)], judge=judge)


def _with_inputs(verdict: Verdict, inputs: Inputs) -> Verdict:
    """Return a failing verdict that says that its inputs are not the case's, and what they are where they are few."""
    if verdict.status is not Status.FAIL:
        return verdict
    message = f"{verdict.message}; on inputs of the gate's own, of few digits"
    tensors = {name: one.flatten().tolist() for name, one in inputs.tensors.items() if one is not None}
    if 0 < sum(map(len, tensors.values())) <= _FEW:
        message += ": " + ", ".join(f"{name} = {values}" for name, values in tensors.items())
    return replace(verdict, message=message)


def promised(inputs: Inputs, wanted: Reference, *, declared: Declared) -> Tolerances:
    """Return tolerances of 0 where every stage is exact in any order, infinite elsewhere."""
    allowed = tolerances(inputs, wanted, declared=declared, with_quantum=True)
    return allowed.map(lambda _, one: ErrorNumber(one.value, torch.where(one.error == 0, 0.0, torch.inf), one.dtype))


GATE = Gate(name=NAME, plan=plan, every=12)
