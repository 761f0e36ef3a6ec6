"""Which programs of an implementation are compiled, so that its time goes into cases and not into compilers."""

from collections.abc import Hashable
from dataclasses import replace

from mhc.case import Case, default_case
from mhc.fuzz.messages import Checked
from mhc.implementation import Implementation
from strategies.cases import DTYPES
from strategies.rounds import ROUND

COMPILING = 0.25
"""Of the time on an implementation's cases, what cases that compile may take before others run what is compiled."""
OPENING = default_case(n=4, D=40, dtype="float32")
"""What the first cases on an implementation are like: the n of the papers, a D that is whole vectors and no whole tile, and
the dtype with the strictest bounds. All of them run one program: a bug that most cases show costs one compilation.
"""
_KEPT = 64


class Programs:
    """The compiled programs of one implementation, and what compiling has cost.

    A round is drawn freely while cases that compile have taken at most `COMPILING` of the time. Otherwise it draws cases
    like an earlier one: what is compiled depends on n, D, the dtype, the tensors that are there and the schedule. What
    `opening` needs compiled is on no account: there is no doing without one program.

    Args:
        opening: what the cases of the first round are like, if it is still to come.
    """

    def __init__(self, opening: Case | None = None) -> None:
        self._opening = opening
        self._first = None if opening is None else _programs(opening)
        self._cases: dict[Hashable, str] = {}  # by what programs depend on; the least recently used first
        self._compiling = 0.0
        self._checking = 0.0

    def learn(self, checked: Checked) -> None:
        """A case was checked."""
        compiling, checking = checked.seconds.get("compiling", 0.0), checked.seconds.get("checking", 0.0)
        key = _programs(Case.from_json(checked.case)) if checked.compiled else None
        if key is None or key != self._first:
            self._compiling += compiling
            self._checking += checking
        if key is not None and not checked.refused and not checked.failures:
            self._cases[key] = checked.case
            if len(self._cases) > _KEPT:
                self._cases.pop(next(iter(self._cases)))

    def next(self) -> tuple[int, str | None]:
        """The next round: how many cases, and JSON of the one that they are to be like, None where it is drawn freely."""
        if self._opening is not None:
            first, self._opening = self._opening, None
            return ROUND, first.json
        like = self._like()
        return ROUND if like is None else 5 * ROUND, like

    def _like(self) -> str | None:
        if not self._cases or self._compiling <= COMPILING * self._checking:
            return None
        key = next(iter(self._cases))
        self._cases[key] = self._cases.pop(key)
        return self._cases[key]


def _programs(case: Case) -> Hashable:
    schedules = frozenset((name, frozenset(schedule.items())) for name, schedule in case.schedules.items())
    return case.n, case.D, case.dtype, frozenset(case.tensors), schedules


def opening(implementation: Implementation) -> Case:
    """`OPENING` in a dtype that the implementation takes."""
    return replace(OPENING, dtype=next((one for one in DTYPES if one in implementation.dtypes), OPENING.dtype))
