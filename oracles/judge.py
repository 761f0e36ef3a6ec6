"""What can be said of one observation: the gates that need no further run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mhc.observation import Observation
from oracles import aliasing, bound, effects, liveness, memory, nonfinite, refusal
from oracles.bound import Tolerances
from oracles.bounds.error_number import ErrorNumber
from oracles.verdict import Status, Verdict, failed, not_applicable

JUDGED, NOT_RETURNED, NOTHING, ABSENT = "judged", "not returned", "nothing to judge", "absent"


@torch.inference_mode()
def judge(observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """The verdicts of every gate that needs no other run. A refused case ran nothing, so that there is nothing to judge."""
    if observation.refused is not None:
        return [refusal.judge(observation.refused, observation.refused)]
    verdicts = judge_without_reference(observation)
    for name, value, wanted in pairs(observation, allowed):
        if value is not None and wanted is not None:
            verdicts += bound.judge_class_and_magnitude(name, value, wanted)
        else:
            verdicts.append(judge_missing(bound.NAME, name, value, wanted))
    if observation.failure is None:
        verdicts += _without_stage(observation, allowed)
    return verdicts


def _without_stage(observation: Observation, allowed: Tolerances) -> Iterator[Verdict]:
    """Nothing is returned by a stage that an implementation does not have."""
    for stage, given, wanted in (
        ("forward", observation.outputs, allowed.outputs),
        ("backward", observation.gradients, allowed.gradients),
    ):
        if not given:
            for name in wanted:
                yield replace(not_applicable(bound.NAME, name, f"no {stage}"), symptom=NOT_RETURNED)


def outcomes(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """What became of each output and gradient of a case: judged, not returned, or returned with nothing to judge.

    Left out are outputs of a stage that did not run to its end, and those that must be None.
    """
    found: dict[str, str] = {}
    for one in verdicts:
        if one.oracle not in {bound.NAME, nonfinite.NAME} or one.against:
            continue
        if one.status is not Status.NOT_APPLICABLE:
            found[one.subject] = JUDGED
        elif one.symptom == NOT_RETURNED:
            found[one.subject] = NOT_RETURNED
        elif one.symptom != ABSENT:
            found.setdefault(one.subject, NOTHING)
    return found


SIDE_EFFECT_GATES = frozenset({aliasing.NAME, effects.NAME})
"""Gates whose failures say nothing against the numbers of a run: the other gates judge these all the same."""


def judge_without_reference(observation: Observation) -> list[Verdict]:
    """What a run shows without any reference."""
    return [one for gate in (liveness, memory, aliasing, effects) for one in gate.judge(observation)]


def measured(verdicts: Iterable[Verdict], observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """The verdicts, those of the bound gate with what they were judged by."""
    errors = {
        name: bound.measure(value, wanted)
        for name, value, wanted in pairs(observation, allowed)
        if value is not None and wanted is not None
    }
    return [replace(one, errors=errors.get(one.subject)) if one.oracle == bound.NAME else one for one in verdicts]


@torch.inference_mode()
def agree(oracle: str, symptom: str, observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """Class and magnitude of everything in a further run, as one verdict each in the name of the gate that asked for it."""
    verdicts = []
    for name, value, wanted in pairs(observation, allowed):
        if value is None or wanted is None:
            verdicts.append(judge_missing(oracle, name, value, wanted))
            continue
        both = bound.judge_class_and_magnitude(name, value, wanted)
        worst = next((verdict for verdict in both if verdict.status is Status.FAIL), both[1])
        told = replace(worst, oracle=oracle)
        if worst.status is Status.FAIL:
            told = replace(told, symptom=symptom, message=f"{symptom}: {worst.message}")
        verdicts.append(told)
    return verdicts


def pairs(observation: Observation, allowed: Tolerances) -> Iterator[tuple[str, Tensor | None, ErrorNumber | None]]:
    """Each output and gradient that was observed, with what it must be; None where it was not returned, or must not be."""
    for given, wanted in ((observation.outputs, allowed.outputs), (observation.gradients, allowed.gradients)):
        for name, value in given.items():
            yield name, value, wanted.get(name)


def judge_missing(oracle: str, name: str, value: Tensor | None, wanted: ErrorNumber | None) -> Verdict:
    """The verdict where one of the two is missing."""
    if value is not None:
        return failed(oracle, name, "unwanted", f"{name} was returned, where it must be None")
    if wanted is None:
        return replace(not_applicable(oracle, name, "absent in this case"), symptom=ABSENT)
    return replace(not_applicable(oracle, name, "not returned"), symptom=NOT_RETURNED)
