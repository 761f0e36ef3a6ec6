"""One check: a case on one implementation, judged by every gate."""

from mhc.case import Case
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.reference import reference
from oracles.bound import tolerances
from oracles.judge import judge, refused
from oracles.verdict import Verdict


def check(implementation: Implementation, case: Case, device: str) -> list[Verdict]:
    """Run `implementation` on `case` and judge it; a refused case costs no tolerance."""
    inputs = materialise(case, device)
    wanted = reference(inputs)
    observation = observe(implementation, inputs, wanted.saved)
    if observation.refused is not None:
        return [refused(observation.refused)]
    return judge(observation, tolerances(inputs, wanted, recomputes_forward=implementation.recomputes_forward))
