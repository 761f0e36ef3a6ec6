"""The linear part of the gradient gate: checks that doubled upstream gradients double every gradient, bit for bit.

Elements in which underflow may change a digit (`mhc.oracles.bounds.underflow_number`) are not judged.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.element import element_name, element_value
from mhc.inputs import edited
from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import with_factors
from mhc.oracles.bounds.rounding import all_finite, unit_roundoff
from mhc.oracles.bounds.underflow_number import UnderflowNumber
from mhc.oracles.nonfinite import as_float64
from mhc.oracles.tolerances import chosen_rows, expand_number, read_formula
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.undefined import overflowing
from mhc.oracles.verdict import Verdict, failed, first, not_applicable, passed
from mhc.reference import condensed, judging_device, widen

NAME = "gradient"
LABEL = "upstream doubled"
NEGLIGIBLE = 2.0**-40
"""Fraction of a unit in the last place. A change this small alters a rounding with about this probability."""


def plan(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run of the backward with doubled upstream gradients in the same layouts."""
    table = trial.case.table
    if not trial.observation.gradients:
        return [not_applicable(NAME, LABEL, "no backward")]
    for name, tensor in trial.inputs.tensors.items():
        if tensor is not None and not all_finite(tensor):
            return [not_applicable(NAME, LABEL, f"{name} is not finite everywhere")]
    upstream = [spec.name for spec in table.upstream]
    inputs = edited(trial.inputs, dict.fromkeys(upstream, _double))
    if not all(map(all_finite, inputs.floating.values())) or (table.function and overflowing(inputs)):
        return [not_applicable(NAME, LABEL, "an upstream gradient is too large to be doubled")]
    saved = trial.reference.saved

    @torch.inference_mode()
    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        changes = _changes(trial)
        verdicts, after = [], observed[LABEL].gradients
        for name, before in trial.observation.gradients.items():
            now = after.get(name)
            if before is None or now is None or name not in changes:
                verdicts.append(not_applicable(NAME, name, "not returned"))
                continue
            change = changes[name]
            value, got = as_float64(before, change), as_float64(now, change)
            wanted, held = value * 2, value.abs()
            size = torch.minimum(change.value.abs(), held)  # 0 where one of them is 0: not judged
            judged = change.error < NEGLIGIBLE * unit_roundoff(change.dtype) * size
            # the result may be subnormal in its dtype, or rounded up from there, where float64's value is normal
            judged &= held > torch.finfo(before.dtype).smallest_normal
            judged &= wanted.isfinite() & (wanted.abs() <= torch.finfo(before.dtype).max)
            wrong = judged & (got != wanted)
            if wrong.any():
                at = first(wrong)
                twice = f"{element_value(got, at)}, twice the gradient {element_value(wanted, at)}"
                message = f"upstream doubled: {element_name(name, at)} = {twice}"
                verdicts.append(failed(NAME, name, "not linear", message))
            elif judged.any():
                verdicts.append(passed(NAME, name))
            else:
                verdicts.append(not_applicable(NAME, name, "underflow may change every element"))
        return verdicts

    return Plan(runs=[Run(label=LABEL, inputs=inputs, saved=saved, stages=("backward",))], judge=judge)


def _double(tensor: Tensor) -> None:
    """Double in place; elements that an expanded layout repeats are doubled once."""
    compact = tensor[tuple(slice(0, 1) if by == 0 else slice(None) for by in tensor.stride())]
    compact.mul_(2)


def _changes(trial: Trial) -> Mapping[str, ErrorNumber]:
    """Return by gradient the change that underflow alone may cause."""
    case, table = trial.case, trial.case.table
    storage, specs = STORAGE_DTYPES[case.dtype], table.argument_specs
    few = condensed(trial.inputs)
    inputs = trial.inputs if few is None else few.inputs
    if table.function is not None:
        numbers = read_formula(
            table, widen(inputs), storage, case.scalars, number=UnderflowNumber, declared=trial.declared
        ).gradients
        return {
            name: one if few is None else expand_number(few, one, table.result_specs[name]) for name, one in numbers.items()
        }
    number = with_factors(UnderflowNumber, trial.declared.matmul)
    given: dict[str, UnderflowNumber | None] = {}
    device = judging_device(inputs)
    saved = trial.reference.saved if few is None else chosen_rows(few, trial.reference.saved, specs)
    wide = {name: tensor.to(device).double() for name, tensor in saved.items()}
    for name, value in {**widen(inputs), **wide}.items():
        given[name] = None if value is None else number.exact(value, specs[name].dtype(storage))
    results = table.backward(*(given[name] for name in table.backward_arguments), **case.scalars)
    changes = [(spec, one) for spec, one in zip(table.gradients, results, strict=True) if one is not None]
    return {spec.name: one if few is None else expand_number(few, one, spec) for spec, one in changes}


GATE = Gate(name=NAME, variant=LABEL, plan=plan, every=8)
