"""The determinism gate: the same input twice gives the same bits."""

from collections.abc import Mapping

from mhc.observation import Observation
from oracles.trial import Gate, Plan, Run, Trial, results, same_bits
from oracles.verdict import Verdict, failed, first, not_applicable, passed, place

NAME = "determinism"
REPEAT = "repeat"


def repeat(trial: Trial) -> Run:
    """The same once more, in memory with the same fill."""
    return Run(label=REPEAT, inputs=trial.inputs, saved=trial.reference.saved)


def plan(trial: Trial) -> Plan:
    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        return compare(NAME, trial.observation, observed[REPEAT], "differs", "a second run on the same input")

    return Plan(runs=[repeat(trial)], judge=judge)


def compare(oracle: str, base: Observation, other: Observation, symptom: str, what: str) -> list[Verdict]:
    """One verdict for each output and gradient: bit for bit the same in both."""
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
        else:
            same = same_bits(value, again)
            if same.all():
                verdicts.append(passed(oracle, name))
            else:
                at = first(~same)
                pair = f"{float(value[at]):.9g}, and {float(again[at]):.9g} in {what}"
                verdicts.append(failed(oracle, name, symptom, f"{place(name, at)} = {pair}"))
    return verdicts


GATE = Gate(name=NAME, plan=plan, every=4)
