"""The compile budget: rounds reuse compiled programs when compilation takes too much of an implementation's time."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from mhc.case import Case, default_case
from mhc.fuzz.campaign.size_budget import QUICK
from mhc.fuzz.worker.protocol import Checked
from mhc.programs.targets import ProgramTarget
from mhc.registry import Tested
from mhc.strategies.cases import DTYPES
from mhc.strategies.rounds import ROUND

COMPILING = 0.25
"""Largest share of the time on an implementation's cases that cases which compile may take."""
OPENING = default_case(n=4, D=40, dtype="float32")
"""The case that the first cases of an implementation resemble: n of the papers, a D of whole vectors but not whole tiles,
and the dtype with the strictest bounds. The cases of such a round run one program, so that a bug which most cases show is
found after one compilation.
"""
_KEPT = 64


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """What a round draws.

    Attributes:
        count: number of cases. like: JSON of a case whose compiled program they reuse; None: cases are drawn freely.
        opening: it is one of the first rounds, which may use all elements.
    """

    count: int = ROUND
    like: str | None = None
    opening: bool = False


class CompileBudget:
    """The compiled programs of one implementation, and the time that compilation took.

    A round is drawn freely while cases that compile have taken at most `COMPILING` of the time. Otherwise its cases reuse
    the program of an earlier case, which depends on n, D, the dtype, the tensors present and the schedule. The first
    compilation is unavoidable and is not charged.

    Args:
        opening: cases that the first rounds resemble. The first is used once; the others only where cases are slow without
            compiling, as in an interpreter.
    """

    def __init__(self, opening: Sequence[Case] = ()) -> None:
        self._opening = list(opening)
        self._opened = False
        self._first = _programs(opening[0]) if opening else None
        self._compiled = self._learned = 0
        self._cases: dict[Hashable, str] = {}  # by what programs depend on; the least recently used first
        self._compiling = 0.0
        self._checking = 0.0

    def learn(self, checked: Checked) -> None:
        """Record a judged case."""
        self._learned += 1
        self._compiled += checked.compiled
        compiling, checking = checked.seconds.get("compiling", 0.0), checked.seconds.get("checking", 0.0)
        key = _programs(Case.from_json(checked.case)) if checked.compiled else None
        if key is None or key != self._first:
            self._compiling += compiling
            self._checking += checking
        if key is not None and not checked.refused and not checked.findings:
            self._cases[key] = checked.case
            if len(self._cases) > _KEPT:
                self._cases.pop(next(iter(self._cases)))

    def next(self) -> RoundPlan:
        """Return the plan of the next round."""
        if self._opening and (not self._opened or self._interpreted):
            self._opened = True
            return RoundPlan(like=self._opening.pop(0).json, opening=True)
        like = self._like()
        return RoundPlan() if like is None else RoundPlan(count=5 * ROUND, like=like)

    @property
    def _interpreted(self) -> bool:
        return self._compiled == 0 and self._checking > QUICK * self._learned

    def _like(self) -> str | None:
        if not self._cases or self._compiling <= COMPILING * self._checking:
            return None
        key = next(iter(self._cases))
        self._cases[key] = self._cases.pop(key)
        return self._cases[key]


def _programs(case: Case) -> Hashable:
    schedules = frozenset((name, frozenset(schedule.items())) for name, schedule in case.schedules.items())
    widths = tuple(case.sizes.get(name) for name in case.table.widths)
    return widths, case.dtype, frozenset(case.tensors), schedules


def opening(implementation: Tested) -> list[Case]:
    """Return `OPENING` in each dtype that the implementation takes."""
    if isinstance(implementation, ProgramTarget) or implementation.operator != OPENING.operator:
        return []
    return [replace(OPENING, dtype=dtype) for dtype in DTYPES if dtype in implementation.dtypes]
