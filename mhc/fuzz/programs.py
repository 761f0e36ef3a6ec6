"""Which programs of an implementation are compiled, so that its time goes into cases and not into compilers."""

from collections.abc import Hashable

from mhc.case import Case
from mhc.fuzz.messages import Checked

COMPILING = 0.25
"""Of the time on an implementation's cases, what cases that compile may take before others run what is compiled."""
_KEPT = 64


class Programs:
    """The compiled programs of one implementation, and what compiling has cost.

    A round is drawn freely while cases that compile have taken at most `COMPILING` of the time. Otherwise it draws cases
    like an earlier one: what is compiled depends on n, D, the dtype, the tensors that are there and the schedule.
    """

    def __init__(self) -> None:
        self._cases: dict[Hashable, str] = {}  # by what programs depend on; the least recently used first
        self._compiling = 0.0
        self._checking = 0.0

    def learn(self, checked: Checked) -> None:
        """A case was checked."""
        self._compiling += checked.seconds.get("compiling", 0.0)
        self._checking += checked.seconds.get("checking", 0.0)
        if checked.compiled and not checked.refused and not checked.failures:
            self._cases[_programs(Case.from_json(checked.case))] = checked.case
            if len(self._cases) > _KEPT:
                self._cases.pop(next(iter(self._cases)))

    def like(self) -> str | None:
        """JSON of a case that the next round's are to be like, or None where it is drawn freely."""
        if not self._cases or self._compiling <= COMPILING * self._checking:
            return None
        key = next(iter(self._cases))
        self._cases[key] = self._cases.pop(key)
        return self._cases[key]


def _programs(case: Case) -> Hashable:
    schedules = frozenset((name, frozenset(schedule.items())) for name, schedule in case.schedules.items())
    return case.n, case.D, case.dtype, frozenset(case.tensors), schedules
