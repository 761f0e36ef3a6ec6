"""All gates on one observation."""

from mhc.observation import Observation
from oracles import bound
from oracles.bound import Tolerances
from oracles.verdict import Verdict, failed, not_applicable, passed


def judge(observation: Observation, allowed: Tolerances) -> list[Verdict]:
    """The verdicts of every gate. A refused case is judged by its refusal alone; a failure ends with its exception."""
    if observation.refused is not None:
        return [refused(observation.refused)]
    verdicts = [] if observation.failure is None else [raised(observation)]
    if observation.written:
        names = ", ".join(observation.written)
        verdicts.append(failed("memory", "inputs", "written", f"wrote into its inputs: {names}"))
    else:
        verdicts.append(passed("memory", "inputs"))
    return verdicts + bound.judge(observation, allowed)


def refused(reason: str) -> Verdict:
    """The verdict on a case that the implementation does not take: nothing ran, so there is nothing else to judge."""
    return not_applicable("refusal", "case", reason)


def raised(observation: Observation) -> Verdict:
    """The liveness verdict on an exception out of an implementation that had said it takes the case."""
    failure = observation.failure
    assert failure is not None
    lines = failure.message.splitlines() or [""]
    return failed("liveness", failure.stage, f"raises {failure.type}", f"{failure.stage} raised {failure.type}: {lines[0]}")
