"""The memory gate: checks for writes to inputs or beside outputs, results overwritten by later calls, and stale memory.

Every run allocates memory filled with a known byte between canaries (`mhc.memory`). The further run uses another byte, also
where no index of an input reaches; its inputs lie between canaries too.
"""

from collections.abc import Mapping, Sequence

from mhc.dense import equal_bits
from mhc.element import element_name, element_value
from mhc.inputs import banded
from mhc.memory import FINITE_FILL
from mhc.observation import SCRATCH, Observation
from mhc.oracles import determinism
from mhc.oracles.trial import Gate, Plan, Run, Trial, results, same_bits
from mhc.oracles.verdict import Verdict, failed, first, passed
from mhc.placement import fetch

NAME = "memory"
REFILLED = "other poison"
UNINITIALISED = "uninitialised"
OTHER_BYTES = "a run with other bytes beside the inputs and in memory not written yet"


def judge(observation: Observation) -> list[Verdict]:
    """Return the verdicts on one run: written inputs and changed canaries."""
    places = observation.places
    if observation.written:
        where = [places.get(name, name) for name in observation.written]
        beside = [one for one in where if one.startswith(("beside ", "in front of "))]
        inside = [one for one in where if one not in beside]
        into = [f"into its inputs: {'; '.join(inside)}"] if inside else []
        verdicts = [failed(NAME, "inputs", "written", f"wrote {'; '.join([*into, *beside])}")]
    else:
        verdicts = [passed(NAME, "inputs")]
    for name in observation.overrun:
        place = places.get(name, name)
        found = place if name == SCRATCH else f"{name}: {place}"
        verdicts.append(failed(NAME, name, "overrun", f"wrote beside {found}"))
    return verdicts


def judge_kept(observation: Observation, runs: Sequence[str]) -> list[Verdict]:
    """Return a failure for each result of a run that later `runs` overwrote, such as a buffer that calls share."""
    if not runs:
        return []
    verdicts, before = [], results(observation)
    for name, value in zip(observation.returned, fetch((), compared=observation.returned.values()), strict=True):
        was = before[name]
        assert was is not None
        if not equal_bits(was, value):
            at = first(~same_bits(was, value))
            change = f"{element_value(was, at)}, and {element_value(value, at)} after later calls: {', '.join(runs)}"
            verdicts.append(failed(NAME, name, "overwritten", f"{element_name(name, at)} = {change}"))
    return verdicts


def plan(trial: Trial) -> Plan:
    """Plan a run with another pattern in uninitialised memory and beside the inputs, which must return the same bits."""
    refilled = Run(label=REFILLED, inputs=banded(trial.inputs, FINITE_FILL), saved=trial.reference.saved, fill=FINITE_FILL)

    def judge_fills(observed: Mapping[str, Observation]) -> list[Verdict]:
        verdicts = determinism.compare(NAME, trial.observation, observed[REFILLED], UNINITIALISED, OTHER_BYTES)
        return determinism.settled(trial, observed, verdicts, "two runs in the same memory differ already")

    return Plan(runs=[determinism.repeat(trial), refilled], judge=judge_fills)


GATE = Gate(name=NAME, plan=plan, every=4)
