"""One check: a case on one implementation, judged by every gate."""

import functools

from mhc.case import Case
from mhc.implementation import Implementation
from mhc.inputs import Inputs, materialise
from mhc.observation import observe
from mhc.reference import Reference, reference
from oracles.bound import Tolerances, tolerances
from oracles.judge import judge
from oracles.verdict import Verdict


@functools.lru_cache(maxsize=1)
def _prepare(case: Case, device: str) -> tuple[Inputs, Reference]:
    inputs = materialise(case, device)
    return inputs, reference(inputs)


@functools.lru_cache(maxsize=2)
def _tolerances(case: Case, device: str, recomputes_forward: bool) -> Tolerances:
    return tolerances(*_prepare(case, device), recomputes_forward=recomputes_forward)


def check(implementation: Implementation, case: Case, device: str) -> list[Verdict]:
    """Run `implementation` on `case` and judge it; what several implementations need of a case is made once."""
    inputs, wanted = _prepare(case, device)
    observation = observe(implementation, inputs, wanted.saved)
    return judge(observation, _tolerances(case, device, implementation.recomputes_forward))
