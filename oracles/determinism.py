"""The determinism gate: checks that two runs on the same input return the same bits."""

from collections.abc import Mapping
from functools import partial

from mhc.dense import equal_bits
from mhc.element import element_name, element_value
from mhc.observation import Observation
from mhc.oracles.error_map import difference_map
from mhc.oracles.trial import Gate, Plan, Run, Trial, results, same_bits
from mhc.oracles.verdict import Status, Verdict, failed, first, not_applicable, passed

NAME = "determinism"
REPEAT = "repeat"


def repeat(trial: Trial) -> Run:
    """Return a repetition of the first run, in memory with the same fill."""
    return Run(label=REPEAT, inputs=trial.inputs, saved=trial.reference.saved)


def plan(trial: Trial) -> Plan:
    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        return compare(NAME, trial.observation, observed[REPEAT], "differs", "a second run on the same input")

    return Plan(runs=[repeat(trial)], judge=judge)


def settled(trial: Trial, observed: Mapping[str, Observation], verdicts: list[Verdict], reason: str) -> list[Verdict]:
    """Return `verdicts`, not applicable for `reason` on each result in which the first run and its repeat already differ."""
    repeated = compare(NAME, trial.observation, observed[REPEAT], "", "")
    unsteady = {one.subject for one in repeated if one.status is Status.FAIL}
    return [not_applicable(one.oracle, one.subject, reason) if one.subject in unsteady else one for one in verdicts]


def compare(oracle: str, base: Observation, other: Observation, symptom: str, what: str) -> list[Verdict]:
    """Compare two runs bit for bit; return one verdict for each output and gradient."""
    verdicts = []
    others = results(other)
    for name, value in results(base).items():
        again = others.get(name)
        if value is None and again is None:
            verdicts.append(not_applicable(oracle, name, "not returned"))
        elif value is None or again is None:
            verdicts.append(failed(oracle, name, symptom, f"{name} is returned in one run and None in {what}"))
        elif value.numel() == 0:
            verdicts.append(not_applicable(oracle, name, "no elements"))
        elif equal_bits(value, again):
            verdicts.append(passed(oracle, name))
        else:
            changed = ~same_bits(value, again)
            at = first(changed)
            pair = f"{element_value(value, at)}, and {element_value(again, at)} in {what}"
            locate = partial(difference_map, changed)
            verdicts.append(failed(oracle, name, symptom, f"{element_name(name, at)} = {pair}", locate=locate))
    return verdicts


GATE = Gate(name=NAME, plan=plan, every=4)
