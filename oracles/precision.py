"""The precision gate: over a whole tensor, errors no larger than float32 in some order of evaluation makes them.

The bound holds for every single element, so it is wide: products in TF32 stay inside it where a sum is long. An average is
sharper. The formula is read over numbers that carry the standard deviation of their error (`deviation_number`), in the
worst order of evaluation, and the root mean square of error / standard deviation must not exceed about 1.

A long sum hides the precision of its factors behind its own roundings. So there is a run with inputs of the gate's own: the
case's shape and layouts, values of mixed sign at a model's scale, and so many zeros that about `TERMS` terms of each sum are
left. Zeros add no rounding. docs/tolerances.md, "Precision", derives the numbers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mhc.case import Case
from mhc.inputs import Inputs, edited, materialise
from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES
from mhc.recipe import Recipe
from mhc.reference import Reference, condensed, reference, widen
from oracles.bound import Tolerances, chosen_rows, expand_number, read_formula
from oracles.bounds.deviation_number import DeviationNumber, TruncatingDeviationNumber
from oracles.bounds.error_number import ErrorNumber
from oracles.bounds.rounding import overflow_threshold
from oracles.nonfinite import as_float64
from oracles.trial import Gate, Plan, Run, Trial, results
from oracles.verdict import Verdict, describe, failed, largest, not_applicable, passed

NAME = "precision"
LABEL = "short sums at model scale"
SYMPTOM = "imprecise"

TERMS = 8
"""About so many terms of a sum are not 0: enough to be a sum, too few to hide what its factors lost."""

UNLIKELY = 18.0
"""A tensor fails by chance with a probability of at most exp(-UNLIKELY) = 1.5e-8, half of what LAMBDA = 6 allows."""

_STRIDE = 40507
"""A prime beyond the usual group sizes: where in a group of elements the one lies that is not 0, from group to group."""


def plan(trial: Trial) -> Plan | list[Verdict]:
    """One run on the gate's own inputs."""
    if trial.case.dtype == "float64":
        return [not_applicable(NAME, "case", "no reference is more precise than float64")]
    if trial.case.N == 0:
        return [not_applicable(NAME, "case", "no tokens")]
    inputs = made(trial.case, trial.inputs.device)
    wanted = reference(inputs)

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        numbers, few = deviations(inputs, wanted, recomputes_forward=trial.recomputes_forward), condensed(inputs)
        verdicts = []
        for name, got in results(observed[LABEL]).items():
            if got is not None and name in numbers:
                rows = got if few is None else few.take(got, trial.case.table.result_specs[name])
                verdicts.append(judge_tensor(name, rows, numbers[name]))
        return verdicts

    return Plan(runs=[Run(label=LABEL, inputs=inputs, saved=wanted.saved)], judge=judge)


def made(case: Case, device: torch.device) -> Inputs:
    """The case's shape, layouts, seeds and schedules with values of mixed sign at a model's scale, most of them 0.

    Nothing is expanded: elements that are copies have the same error. In each token's row of an input, one element of each
    group is kept, so that about `TERMS` are; of the upstream gradients, one token of each group.
    """
    table = case.table
    exponents = table.usual_exponents(case.sizes)
    tensors = {
        name: Recipe(
            seed=old.seed, scale=2.0 ** exponents.get(name, 0), period=old.period, layout=replace(old.layout, expand=())
        )
        for name, old in case.tensors.items()
    }
    dense = materialise(replace(case, tensors=tensors, scalars=table.scalars), device)
    count = len(table.tokens)
    edits: dict[str, Callable[[Tensor], object]] = {}
    for spec in table.drawn:
        if table.per_token(spec) and case.has(spec.name):
            keep = _keep_tokens if spec in table.upstream else partial(_keep_elements, period=tensors[spec.name].period)
            edits[spec.name] = partial(keep, count=count)
    return edited(dense, edits)


def _keep_elements(tensor: Tensor, count: int, period: int) -> None:
    """Keep one element of each group in each token's row, elsewhere from token to token; tokens repeat as before."""
    rows, row = math.prod(tensor.shape[:count]), math.prod(tensor.shape[count:])
    step = max(1, row // TERMS)
    place = torch.arange(row)
    token = torch.arange(rows).unsqueeze(-1) % (period // row or rows)
    kept = place % step == (place // step + token) * _STRIDE % step
    tensor.masked_fill_(~kept.reshape(tensor.shape), 0.0)


def _keep_tokens(tensor: Tensor, count: int) -> None:
    """Keep one token of each group."""
    rows = math.prod(tensor.shape[:count])
    step = max(1, rows // TERMS)
    token = torch.arange(rows)
    kept = token % step == token // step * _STRIDE % step
    tensor.masked_fill_(~kept.reshape(*tensor.shape[:count], *(1,) * (tensor.dim() - count)), 0.0)


def deviations(inputs: Inputs, wanted: Reference, *, recomputes_forward: bool) -> dict[str, DeviationNumber]:
    """The value and the standard deviation of each output and gradient, of the tokens that stand for all in a large case.

    The backward starts from the saved tensors as they are given, so their rounding is no error of its own.
    """
    few = condensed(inputs)
    read = read_formula(
        inputs.case.table,
        widen(inputs if few is None else few.inputs),
        STORAGE_DTYPES[inputs.case.dtype],
        inputs.case.scalars,
        saved=wanted.outputs if few is None else chosen_rows(few, wanted.outputs, inputs.case.table.result_specs),
        recomputes_forward=recomputes_forward,
        number=TruncatingDeviationNumber if inputs.device.type == "cuda" else DeviationNumber,
    )
    return {name: number for name, number in read.results.items() if isinstance(number, DeviationNumber)}


def promised(inputs: Inputs, wanted: Reference, *, recomputes_forward: bool) -> Tolerances:
    """The gate's verdict as a tolerance of each element: where it fails, the worst element is beyond it."""
    numbers, few = deviations(inputs, wanted, recomputes_forward=recomputes_forward), condensed(inputs)
    specs, bounds = inputs.case.table.result_specs, {}
    for name, one in numbers.items():
        judged = _judged(one)
        limit = allowed(one.shared.expand(one.shape)[judged], one.deviation[judged]) if judged.any() else math.inf
        bound = ErrorNumber(one.value, torch.where(judged, limit * one.deviation, math.inf), one.dtype)
        bounds[name] = bound if few is None else expand_number(few, bound, specs[name])
    gradients = {spec.name: bounds.pop(spec.name) for spec in inputs.case.table.gradients if spec.name in bounds}
    return Tolerances(outputs=bounds, gradients=gradients)


def judge_tensor(name: str, got: Tensor, wanted: DeviationNumber) -> Verdict:
    """Compare the root mean square of error / standard deviation with what chance makes of it."""
    value, deviation = as_float64(got, wanted), wanted.deviation
    judged = _judged(wanted)
    elements = int(judged.sum())
    if elements == 0:
        return not_applicable(NAME, name, "no element has a rounding error")
    errors = ((value - wanted.value).abs() / deviation).nan_to_num(nan=math.inf)
    rms = float(errors[judged].square().mean().sqrt())
    limit = allowed(wanted.shared.expand(wanted.shape)[judged], deviation[judged])
    if rms <= limit:
        return passed(NAME, name)
    ratio = torch.where(judged, errors, 0.0)
    worst = describe(name, largest(ratio), value, wanted.value, limit * deviation)
    said = f"{worst}; error / standard deviation of {elements} elements: {rms:.3g}, at most {limit:.3g}"
    return failed(NAME, name, SYMPTOM, said)


def _judged(wanted: DeviationNumber) -> Tensor:
    """Where something is rounded, and nothing overflows."""
    deviation = wanted.deviation
    inside = wanted.size + 8 * deviation < overflow_threshold(wanted.dtype)
    return (deviation > 0) & inside


def allowed(shared: Tensor, deviation: Tensor) -> float:
    """The largest root mean square that chance makes, but for `UNLIKELY`; from the elements' shared and whole deviations.

    Hsu, Kakade and Zhang's tail of a quadratic form: 1 + 2 sqrt(tr(C^2) x) / E + 2 |C| x / E for the mean square of E errors
    of variance 1 and covariance C. Of C, E - s are independent and s are in the worst case one error.
    """
    elements = deviation.numel()
    common = float((shared / deviation).square().sum())
    mean = 1 + 2 * math.sqrt((elements + common**2) * UNLIKELY) / elements + 2 * (1 + common) * UNLIKELY / elements
    return math.sqrt(mean)


GATE = Gate(name=NAME, plan=plan, every=8, every_large=2)
