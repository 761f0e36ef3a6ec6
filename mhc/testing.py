"""Check an implementation in a test of your own: `check(IMPL)` under pytest.

from mhc.testing import check
from norm import IMPL

def test_norm():
    check(IMPL)
"""

import os
from collections import Counter

import hypothesis
import torch

from mhc.case import Case
from mhc.fuzz.check.check import Judgement
from mhc.fuzz.check.check import check as check_case
from mhc.fuzz.check.level import Level
from mhc.implementation import Implementation, ImplementationError
from oracles import bound, refusal
from oracles.verdict import Status
from strategies.cases import cases as drawn_cases
from strategies.rounds import quiet


class _Wrong(Exception):
    """A judged case that fails, which Hypothesis makes smaller."""


def check(implementation: Implementation, *, cases: int = 100, seed: int = 0, device: str = "") -> None:
    """Draw cases, run the implementation on each in this process, and judge each by the gates that it draws.

    The same seed draws the same cases. A crash or a hang of the kernel is one of this process; `python -m mhc.fuzz` runs
    kernels in processes of their own, and draws larger shapes.

    Args:
        device: "cpu" or "cuda"; where not given, the first of the implementation's that is there.

    Raises:
        AssertionError: a case fails, shown as small as it could be made; or no case was judged.
        ImplementationError: variables of the environment that the implementation declares are not set.
    """
    __tracebackhide__ = True
    missing = [f"{name}={value}" for name, value in implementation.env.items() if os.environ.get(name) != value]
    if missing:
        raise ImplementationError(f"implementation {implementation.name!r}: set {' '.join(missing)} before Python starts")
    place = device or next((one for one in implementation.devices if one == "cpu" or torch.cuda.is_available()), "cuda")
    outcomes: Counter[str] = Counter()

    def body(case: Case) -> None:
        result = check_case(implementation, case, place, Level.DRAWN)
        outcomes[_outcome(result)] += 1
        if result.failures:
            raise _Wrong(_report(implementation.name, result))

    spaces = {implementation.name: implementation.schedule} if implementation.schedule else {}
    strategy = drawn_cases(operator=implementation.table.name, spaces=spaces)
    try:
        hypothesis.seed(seed)(quiet(cases)(hypothesis.given(strategy)(body)))()
    except _Wrong as wrong:
        raise AssertionError(str(wrong)) from None
    if not outcomes["judged"]:
        raise AssertionError(f"{implementation.name}: none of {cases} cases was judged: {outcomes.most_common(1)[0][0]}")


def _outcome(result: Judgement) -> str:
    """Return "judged", or why nothing was."""
    if any(one.oracle == bound.NAME and one.status is not Status.NOT_APPLICABLE for one in result.verdicts):
        return "judged"
    reasons = [f"refused: {one.message}" for one in result.verdicts if one.oracle == refusal.NAME]
    return reasons[0] if reasons else "no result could be judged"


def _report(name: str, result: Judgement) -> str:
    failures = [f"{name}: {one.subject}: {one.symptom} ({one.oracle}): {one.message}" for one in result.failures]
    case = result.case
    return "\n".join(
        [
            *failures,
            f"{case.shape}, dtype = {case.dtype}; the case, for `python -m mhc.fuzz replay FILE`:",
            case.json,
        ]
    )
