"""The gates that need no further run, applied to one observation."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mhc.case import Case
from mhc.dense import equal_bits
from mhc.observation import Observation
from mhc.oracles import aliasing, bound, effects, liveness, memory, nonfinite, pair, refusal
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.tolerances import ByResidual, Tolerances
from mhc.oracles.trial import results
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable

JUDGED, SAMPLED, NOT_RETURNED = "judged", "judged by sampling", "not returned"
NOTHING, ABSENT = "nothing to judge", "absent"
AS_FIRST = "as in the first run, in which it is wrong"


@torch.inference_mode()
def judge(observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """Return the verdicts of every gate that needs no further run; of a refused case, the refusal alone."""
    if observation.refused is not None:
        return [refusal.judge(observation.refused, observation.refused)]
    verdicts = judge_without_reference(observation)
    for name, value, wanted in pairs(observation, allowed):
        if value is not None and wanted is not None:
            verdicts += labelled(bound.judge_class_and_magnitude(name, value, wanted), allowed)
        else:
            verdicts.append(judge_missing(bound.NAME, name, value, wanted, observation.case))
    if observation.failure is None:
        verdicts += _without_stage(observation)
    return verdicts


def labelled(verdicts: Iterable[Verdict], allowed: Tolerances) -> list[Verdict]:
    """Return verdicts of comparisons with `allowed`, those of a sampled tolerance labelled as such."""
    if not allowed.sampled:
        return list(verdicts)
    return [
        replace(one, sampled=True, message=f"{one.message} (sampled)" if one.status is Status.FAIL else one.message)
        if one.subject in allowed.sampled and one.status is not Status.NOT_APPLICABLE
        else one
        for one in verdicts
    ]


def _without_stage(observation: Observation) -> Iterator[Verdict]:
    """Yield a verdict for each result of a stage that the implementation does not have, but for those of absent inputs."""
    case = observation.case
    absent = {f"d{spec.name}" for spec in case.table.inputs if not case.has(spec.name)}
    for stage, given, specs in (
        ("forward", observation.outputs, case.table.outputs),
        ("backward", observation.gradients, case.table.gradients),
    ):
        if not given:
            for spec in specs:
                if spec.name not in absent:
                    yield not_applicable(bound.NAME, spec.name, f"no {stage}", NOT_RETURNED)


def outcomes(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """Return by output and gradient whether it was judged, with a derived or a sampled tolerance, not returned, or
    returned with nothing to judge.

    Results of a stage that did not finish, and those that must be None, are left out.
    """
    found: dict[str, str] = {}
    for one in verdicts:
        if one.oracle not in {bound.NAME, nonfinite.NAME} or one.against:
            continue
        if one.status is not Status.NOT_APPLICABLE:
            found[one.subject] = SAMPLED if one.sampled else JUDGED
        elif one.symptom == NOT_RETURNED:
            found[one.subject] = NOT_RETURNED
        elif one.symptom != ABSENT:
            found.setdefault(one.subject, NOTHING)
    return found


SIDE_EFFECT_GATES = frozenset({aliasing.NAME, effects.NAME})
"""Gates whose failures leave the values of a run valid, so that the other gates still judge them."""


def judge_without_reference(observation: Observation) -> list[Verdict]:
    """Return the verdicts of the gates that need no reference."""
    return [one for gate in (liveness, memory, aliasing, effects) for one in gate.judge(observation)]


def measured(verdicts: Iterable[Verdict], observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """Return the verdicts with the measured errors in those of the bound gate."""
    errors = {
        name: bound.measure(value, wanted)
        for name, value, wanted in pairs(observation, allowed)
        if value is not None and wanted is not None and value.is_floating_point()
    }
    return [replace(one, errors=errors.get(one.subject)) if one.oracle == bound.NAME else one for one in verdicts]


@torch.inference_mode()
def agree(
    oracle: str, symptom: str, observation: Observation, allowed: Tolerances, *, first: Observation | None = None
) -> list[Verdict]:
    """Return one verdict on each result of a further run, on class and magnitude, under the name of gate `oracle`.

    Args:
        first: the first run, where it had the same inputs and `allowed`. A wrong result says nothing more where it is wrong
            there too, and the two are no further apart than two right ones may be: the further run made no difference.
    """
    verdicts, before = [], {} if first is None else results(first)
    for name, value, wanted in pairs(observation, allowed):
        if value is None or wanted is None:
            verdicts.append(judge_missing(oracle, name, value, wanted, observation.case))
            continue
        both = labelled(bound.judge_class_and_magnitude(name, value, wanted), allowed)
        worst = next((verdict for verdict in both if verdict.status is Status.FAIL), both[1])
        was = before.get(name)
        if worst.status is Status.FAIL and was is not None and _as_before(name, was, value, wanted):
            worst = not_applicable(oracle, name, AS_FIRST)
        elif worst.status is Status.FAIL:
            worst = replace(worst, symptom=symptom, message=f"{symptom}: {worst.message}")
        verdicts.append(Verdict(**{**vars(worst), "oracle": oracle}))  # half the time of `replace`
    return verdicts


def _as_before(name: str, was: Tensor, now: Tensor, wanted: ErrorNumber) -> bool:
    """Return whether two runs on the same inputs, the second of which is wrong, are wrong alike."""
    if equal_bits(was, now):
        return True
    if isinstance(wanted, ByResidual) or was.shape != now.shape:
        return False
    before = bound.judge_class_and_magnitude(name, was, wanted)
    wrong = any(one.status is Status.FAIL for one in before)
    return wrong and pair.compare(name, (was, now), (wanted, wanted), ("", "")).status is Status.PASS


def pairs(observation: Observation, allowed: Tolerances) -> Iterator[tuple[str, Tensor | None, ErrorNumber | None]]:
    """Yield name, value and tolerance of each observed result; value or tolerance is None where it is missing."""
    wanted = allowed.results
    for name, value in results(observation).items():
        yield name, value, wanted.get(name)


def _is_zero(name: str, value: Tensor, case: Case) -> bool:
    """Return whether a value is zeros, the gradient of an input that is there."""
    return name in {f"d{spec.name}" for spec in case.table.inputs if case.has(spec.name)} and not bool(value.any())


def judge_missing(
    oracle: str, name: str, value: Tensor | None, wanted: ErrorNumber | None, case: Case | None = None
) -> Verdict:
    """Return the verdict on a result without a value or without a tolerance.

    Where a function leaves an input out, as `x * w if scaled else x` does, autograd has None for its gradient, and zeros
    are right too.

    Args:
        case: what was run; without it, a value without a tolerance fails.
    """
    if value is not None and wanted is None and case is not None and _is_zero(name, value, case):
        return not_applicable(oracle, name, "zeros for an input that the function leaves out", ABSENT)
    if value is not None:
        return failed(oracle, name, "unwanted", f"{name} was returned, where it must be None")
    if wanted is None:
        return not_applicable(oracle, name, "absent in this case", ABSENT)
    return not_applicable(oracle, name, "not returned", NOT_RETURNED)
