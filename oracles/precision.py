"""The precision gate: checks that the errors of a whole tensor are no larger than those of float32 in the worst order.

The bound must hold for every single element, so it is wide: TF32 products of a long sum stay inside it. An average is
sharper. The formula is evaluated on numbers that carry the standard deviation of their error (`deviation_number`), and the
root mean square of error / standard deviation must not exceed about 1.

The roundings of a long sum hide the precision of its factors. Therefore the gate runs on inputs of its own: the case's
shape and layouts, values of mixed sign at a model's scale, and zeros in all but about `TERMS` terms of each sum. Zeros add
no rounding. docs/tolerances.md, "Precision", derives the numbers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mhc.case import Case
from mhc.declared import Declared
from mhc.inputs import Inputs, edited, materialise
from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.bounds.deviation_number import DeviationNumber, TruncatingDeviationNumber
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import RepeatedReader
from mhc.oracles.bounds.rounding import overflow_threshold
from mhc.oracles.bounds.sampled_number import sampled_deviations
from mhc.oracles.nonfinite import as_float64
from mhc.oracles.tolerances import Tolerances, arguments_of, chosen_rows, expand_number, names_of_results, read_formula
from mhc.oracles.trial import Gate, Plan, Run, Trial, results
from mhc.oracles.verdict import Status, Verdict, describe, failed, largest, not_applicable, passed
from mhc.reference import Reference, condensed, reference, widen

NAME = "precision"
LABEL = "short sums at model scale"
SYMPTOM = "imprecise"
_OWN = "on inputs of the gate's own: normal values at a model's scale, default scalars"

TERMS = 8
"""Nonzero terms of a sum, about: enough for a sum, too few to hide the precision of its factors."""

UNLIKELY = 18.0
"""A tensor fails by chance with a probability of at most exp(-UNLIKELY) = 1.5e-8, half of what LAMBDA = 6 allows."""

_STRIDE = 40507
"""A prime beyond the usual group sizes: the step from group to group of the position that is not 0."""


def plan(trial: Trial) -> Plan | list[Verdict]:
    """Plan one run on the gate's own inputs."""
    if trial.case.dtype == "float64":
        return [not_applicable(NAME, "case", "no reference is more precise than float64")]
    if trial.case.token_count == 0:
        return [not_applicable(NAME, "case", "no tokens")]
    inputs = made(trial.case, trial.inputs.device)
    wanted = reference(inputs)

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        numbers, few = deviations(inputs, wanted, declared=trial.declared), condensed(inputs)
        verdicts = [] if numbers else [not_applicable(NAME, "case", "rounding may decide a comparison")]
        for name, got in results(observed[LABEL]).items():
            if got is not None and name in numbers:
                rows = got if few is None else few.take(got, trial.case.table.result_specs[name])
                one = judge_tensor(name, rows, numbers[name])
                if one.status is Status.FAIL:
                    one = replace(one, message=f"{one.message} {_OWN}", other=_as_case(trial.case))
                verdicts.append(one)
        return verdicts

    return Plan(runs=[Run(label=LABEL, inputs=inputs, saved=wanted.saved)], judge=judge)


def made(case: Case, device: torch.device) -> Inputs:
    """Return the case's shape, layouts, seeds and schedules with values of mixed sign at a model's scale, most of them 0.

    No layout is expanded, since copies have equal errors. In each token's row of an input, one element of each group is
    kept, about `TERMS` in all; in upstream gradients, one token of each group. A plain function may do anything with a 0, so
    its inputs stay dense.
    """
    table, dense = case.table, _dense(case)
    count = len(case.lead)
    edits: dict[str, Callable[[Tensor], object]] = {}
    for spec in table.drawn:
        if table.function is None and table.per_token(spec) and case.has(spec.name):
            keep = (
                _keep_tokens if spec in table.upstream else partial(_keep_elements, period=dense.tensors[spec.name].period)
            )
            edits[spec.name] = partial(keep, count=count)
    return edited(materialise(dense, device), edits)


def _as_case(case: Case) -> Case | None:
    """Return the case whose inputs the gate runs on; None where no case has them, since it puts zeros among them."""
    return None if case.table.function is None else _dense(case)


def _dense(case: Case) -> Case:
    """Return the case with values of mixed sign at a model's scale, in its layouts where these expand nothing."""
    table = case.table
    exponents = table.usual_exponents(case.sizes)
    tensors = {
        name: replace(old, kind="normal", scale=2.0 ** exponents.get(name, 0), rows=0, literals=())
        if table.argument_specs[name].floating
        else old
        for name, old in case.tensors.items()
    }
    tensors = {name: replace(one, layout=replace(one.layout, expand=())) for name, one in tensors.items()}
    return replace(case, tensors=tensors, scalars=table.scalars)


def _keep_elements(tensor: Tensor, count: int, period: int) -> None:
    """Zero all but one element of each group in each token's row; its position changes from token to token."""
    rows, row = math.prod(tensor.shape[:count]), math.prod(tensor.shape[count:])
    step = max(1, row // TERMS)
    position = torch.arange(row)
    token = torch.arange(rows).unsqueeze(-1) % (period // row or rows)
    kept = position % step == (position // step + token) * _STRIDE % step
    tensor.masked_fill_(~kept.reshape(tensor.shape), 0.0)


def _keep_tokens(tensor: Tensor, count: int) -> None:
    """Zero all but one token of each group."""
    rows = math.prod(tensor.shape[:count])
    step = max(1, rows // TERMS)
    token = torch.arange(rows)
    kept = token % step == token // step * _STRIDE % step
    tensor.masked_fill_(~kept.reshape(*tensor.shape[:count], *(1,) * (tensor.dim() - count)), 0.0)


def deviations(inputs: Inputs, wanted: Reference, *, declared: Declared) -> dict[str, DeviationNumber]:
    """Return value and standard deviation of each output and gradient, in a large case of the representative tokens.

    The backward starts from the saved tensors as given, so their rounding is not part of its error.
    """
    few = condensed(inputs)
    wide = widen(inputs if few is None else few.inputs)
    if inputs.case.table.function is not None:
        return _of_function(inputs, wide, declared)
    numbers = read_formula(
        inputs.case.table,
        wide,
        STORAGE_DTYPES[inputs.case.dtype],
        inputs.case.scalars,
        saved=wanted.outputs if few is None else chosen_rows(few, wanted.outputs, inputs.case.table.result_specs),
        declared=declared,
        number=TruncatingDeviationNumber if inputs.device.type == "cuda" else DeviationNumber,
    )
    return {name: number for name, number in numbers.results.items() if isinstance(number, DeviationNumber)}


def _of_function(inputs: Inputs, wide: Mapping[str, Tensor | None], declared: Declared) -> dict[str, DeviationNumber]:
    """Return sampled deviations, all of them taken as shared by all elements; none where rounding decides a comparison."""
    table, case = inputs.case.table, inputs.case
    arguments, upstream, constant = arguments_of(table, wide, STORAGE_DTYPES[case.dtype])
    truncates, numbers = inputs.device.type == "cuda", dict[str, DeviationNumber]()
    for function in table.functions:
        with torch.inference_mode(mode=False):
            reader = RepeatedReader(function, arguments, case.scalars, upstream, constant=constant, declared=declared)
            composed = reader(ErrorNumber)
            if composed.decided:
                return {}
            found = sampled_deviations(reader, composed, truncates=truncates)
        for name, one, own in zip(names_of_results(table), [*composed.outputs, *composed.gradients], found, strict=True):
            if own is None or one is None or name in table.residuals:
                continue
            before = numbers.get(name)
            if before is None:
                numbers[name] = DeviationNumber(one.value, torch.zeros_like(one.value), one.dtype, shared=own)
            else:
                before.shared = torch.maximum(before.shared, own)
    return numbers


def promised(inputs: Inputs, wanted: Reference, *, declared: Declared) -> Tolerances:
    """Return the gate's limit as a tolerance of each element; where the gate fails, the worst element exceeds it."""
    numbers, few = deviations(inputs, wanted, declared=declared), condensed(inputs)
    specs, bounds = inputs.case.table.result_specs, {}
    for name, one in numbers.items():
        judged = _judged(one)
        limit = math.inf
        if judged.any():
            counts = repetitions(one.value[judged])
            limit = allowed(one.shared.expand(one.shape)[judged], one.deviation[judged], repeated=counts)
        bound = ErrorNumber(one.value, torch.where(judged, limit * one.deviation, math.inf), one.dtype)
        bounds[name] = bound if few is None else expand_number(few, bound, specs[name])
    gradients = {spec.name: bounds.pop(spec.name) for spec in inputs.case.table.gradients if spec.name in bounds}
    return Tolerances(outputs=bounds, gradients=gradients)


def judge_tensor(name: str, got: Tensor, wanted: DeviationNumber) -> Verdict:
    """Compare the root mean square of error / standard deviation with the limit that `allowed` derives."""
    value, deviation = as_float64(got, wanted), wanted.deviation
    judged = _judged(wanted)
    elements = int(judged.sum())
    if elements == 0:
        return not_applicable(NAME, name, "no element has a rounding error")
    errors = ((value - wanted.value).abs() / deviation).nan_to_num(nan=math.inf)
    rms = float(errors[judged].square().mean().sqrt())
    shared = wanted.shared.expand(wanted.shape)[judged]
    limit = allowed(shared, deviation[judged])
    if rms > limit:  # counting what repeats takes a sort
        limit = allowed(shared, deviation[judged], repeated=repetitions(wanted.value[judged]))
    if rms <= limit:
        return passed(NAME, name)
    ratio = torch.where(judged, errors, 0.0)
    worst = describe(name, largest(ratio), value, wanted.value, limit * deviation)
    message = f"{worst}; error / standard deviation of {elements} elements: {rms:.3g}, at most {limit:.3g}"
    return failed(NAME, name, SYMPTOM, message)


def _judged(wanted: DeviationNumber) -> Tensor:
    """Return where the result is rounded and cannot overflow."""
    deviation = wanted.deviation
    inside = wanted.size + 8 * deviation < overflow_threshold(wanted.dtype)
    return (deviation > 0) & inside


def repetitions(values: Tensor) -> Tensor:
    """Return how often each number comes, rounded to float32: where n * D is 1, all tokens have the same z or -z."""
    counts: Tensor = torch.unique(values.float(), return_counts=True)[1]
    return counts


def allowed(shared: Tensor, deviation: Tensor, repeated: Tensor | None = None) -> float:
    """Return the root mean square that chance exceeds with a probability of at most exp(-`UNLIKELY`).

    Hsu, Kakade and Zhang bound the tail of a quadratic form: the mean square of E errors of variance 1 and covariance C
    exceeds 1 + 2 sqrt(tr(C^2) x) / E + 2 |C| x / E with a probability of at most exp(-x). With s = sum (shared/deviation)^2,
    the worst C has E independent errors and s that are one and the same. repeated: of elements that are the same number,
    how many; they come of the same roundings, so that their errors may be one and the same too.
    """
    elements = deviation.numel()
    common = float((shared / deviation).square().sum())
    squares, most = (elements, 1) if repeated is None else (float(repeated.double().square().sum()), int(repeated.max()))
    mean = 1 + 2 * math.sqrt((squares + common**2) * UNLIKELY) / elements + 2 * (most + common) * UNLIKELY / elements
    return math.sqrt(mean)


GATE = Gate(name=NAME, plan=plan, every=8, every_large=2)
