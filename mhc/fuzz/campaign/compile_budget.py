"""The compile budget: rounds share compiled programs where compilation takes too much of an implementation's time."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from mhc.case import Case, default_case
from mhc.fuzz.campaign.size_budget import QUICK
from mhc.fuzz.worker.protocol import Checked, Round
from mhc.programs.targets import ProgramTarget
from mhc.registry import Tested
from mhc.strategies.cases import DTYPES
from mhc.strategies.reach import token_class
from mhc.strategies.rounds import ROUND

COMPILING = 0.25
"""Largest share of the time on an implementation's cases that cases which compile may take."""
SHARED = 0.5
"""The same while rounds have looked for at most `FIRST` new programs, and one in `FEW` cases."""
FIRST, FEW = 100, 40
TOKENS_EVERY = 4
"""Of so many new programs one is what an earlier program needs for other numbers of tokens."""
RARELY = 100
"""Other numbers of tokens that need a new program once in so many cases are not avoided."""
OPENING = default_case(n=4, D=40, dtype="float32")
"""The case that the first cases of an implementation resemble: n of the papers, a D of whole vectors but not whole tiles,
and the dtype with the strictest bounds. The cases of such a round run one program, so that a bug which most cases show is
found after one compilation; the round ends where another number of tokens needs a second one.
"""
_KEPT = 64


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """What a round draws.

    Attributes:
        count: number of cases. skip: 1 without the first, the simplest there is, which another worker has in hand.
        like: JSON of a case whose compiled program they reuse; None: cases are drawn freely.
        alike, fresh, until_compiled: as of `Round`.
        opening: it is one of the first rounds, which may use all elements.
    """

    count: int = ROUND
    skip: int = 0
    like: str | None = None
    alike: bool = False
    fresh: bool = False
    until_compiled: int = 0
    opening: bool = False


@dataclass
class Counts:
    """Cases, how many of them compiled something, how many programs, and the seconds of those that did."""

    cases: int = 0
    compiling: int = 0
    programs: int = 0
    seconds: float = 0.0

    def add(self, checked: Checked) -> None:
        """Count a judged case."""
        self.cases += 1
        self.compiling += checked.compiled > 0
        self.programs += checked.compiled
        self.seconds += checked.seconds.get("compiling", 0.0)


class CompileBudget:
    """The compiled programs of one implementation at one reach, and the time that compilation took.

    Rounds are drawn freely while cases that compile take at most `COMPILING` of the time. Otherwise a round reuses the
    program of an earlier case, which depends on n, D, the dtype, the tensors present, the schedule, and often on the number
    of tokens; preferably one of which no case compiled when it was reused last. As often as there is time for a new program,
    a round has
    - a fresh one, which all its cases share, in regions with few cases; or free cases up to one that compiles, if most need
      no new program;
    - every fourth time an earlier one with any numbers of tokens, up to a case that compiles.
    The first compilation is unavoidable and is not charged.

    Args:
        opening: cases that the first rounds resemble. The first is used once; the others only where cases are slow without
            compiling, as in an interpreter.
        whole: counts of the implementation at all reaches, its programs only where rounds looked for new ones.
    """

    def __init__(self, opening: Sequence[Case] = (), whole: Counts | None = None) -> None:
        self._opening = list(opening)
        self._opened = False
        self._whole = Counts() if whole is None else whole
        self._all, self._free, self._like = Counts(), Counts(), Counts()
        self._checking = self._uncharged = 0.0
        self._under_way: dict[int, float] = {}  # by seeds of rounds: in how many of their cases something is compiled
        # cases by what programs depend on, the least recently used first: those that compiled last, and the others
        self._unsettled, self._settled = dict[Hashable, str](), dict[Hashable, str]()
        self._new_programs = 0

    def learn(self, checked: Checked, request: Round) -> None:
        """Record a judged case of a round."""
        self._checking += checked.seconds.get("checking", 0.0)
        if checked.compiled and not self._all.compiling:
            self._uncharged = checked.seconds.get("compiling", 0.0)
        elif not (request.fresh or request.alike):
            (self._free if request.like is None else self._like).add(checked)
        self._all.add(checked)
        self._whole.cases += 1
        self._whole.programs += checked.compiled if request.fresh or request.until_compiled else 0
        if checked.compiled and not checked.refused and not checked.findings:
            key = _programs(Case.from_json(checked.case))
            for cases in (self._settled, self._unsettled):
                cases.pop(key, None)
            self._unsettled[key] = checked.case
            if len(self._unsettled) > _KEPT:
                self._unsettled.pop(next(iter(self._unsettled)))

    def given(self, request: Round) -> None:
        """Record that a round is handed out."""
        if request.like is not None:
            claimed = float(request.until_compiled and not self._tokens_are_free)
        else:
            claimed = 1.0 if request.fresh or request.until_compiled else request.count * self._often
        self._under_way[request.seed] = claimed

    def ended(self, request: Round) -> None:
        """Record that a round or its process ended."""
        self._under_way.pop(request.seed, None)

    def next(self) -> RoundPlan:
        """Return the plan of the next round. Call `given` when it is handed out, and `ended` when it ends."""
        if self.opens:
            self._opened = True
            return RoundPlan(like=self._opening.pop(0).json, until_compiled=2, opening=True)
        if not self._all.compiling:
            return RoundPlan(until_compiled=1, skip=int(bool(self._under_way) and not self._all.cases))
        if self._share(ROUND * self._often) <= COMPILING:
            return RoundPlan()
        new = self._new
        self._new_programs += new
        if not (self._settled or self._unsettled) or (new and self._new_programs % TOKENS_EVERY):
            return RoundPlan(fresh=True) if 2 * self._free.compiling > self._free.cases else RoundPlan(until_compiled=1)
        alike = not (new or self._tokens_are_free)
        return RoundPlan(count=5 * ROUND, like=self._reused(new=new), alike=alike, until_compiled=int(not alike))

    def _reused(self, *, new: bool) -> str:
        """Return the case whose program is reused; with time for a `new` one, preferably one that may need it."""
        first, second = (self._unsettled, self._settled) if new else (self._settled, self._unsettled)
        cases = first or second
        key = next(iter(cases))
        like = self._settled[key] = cases.pop(key)
        return like

    @property
    def opens(self) -> bool:
        """Return whether the next round is one of the first ones."""
        return bool(self._opening) and (not self._opened or self._interpreted)

    @property
    def _interpreted(self) -> bool:
        return self._all.compiling == 0 and self._checking > QUICK * self._all.cases

    @property
    def _often(self) -> float:
        """Return in how many of the free cases something is compiled, the next one counted as if it did."""
        return (self._free.compiling + 1) / (self._free.cases + 1)

    @property
    def _tokens_are_free(self) -> bool:
        """Return whether other numbers of tokens rarely need a new program, as far as is known."""
        return RARELY * self._like.compiling <= self._like.cases

    @property
    def _new(self) -> bool:
        """Return whether there is time for a new program."""
        if self._all.compiling == 1 and not self._under_way:
            return True
        each = self._all.programs / self._all.compiling
        programs = self._whole.programs + each * (sum(self._under_way.values()) + 1)
        return self._share(1) <= (SHARED if FEW * (programs - FIRST) <= self._whole.cases else COMPILING)

    def _share(self, compiling: float) -> float:
        """Return the share of the time that compiling takes with rounds under way and so many more cases that compile."""
        more = (sum(self._under_way.values()) + compiling) * self._all.seconds / self._all.compiling
        return (self._all.seconds - self._uncharged + more) / max(self._checking - self._uncharged + more, 1e-9)


def _programs(case: Case) -> Hashable:
    schedules = frozenset((name, frozenset(schedule.items())) for name, schedule in case.schedules.items())
    widths = tuple(case.sizes.get(name) for name in case.table.widths)
    return widths, case.dtype, frozenset(case.tensors), schedules, token_class(case.table, case.sizes)


def opening(implementation: Tested) -> list[Case]:
    """Return `OPENING` in each dtype that the implementation takes."""
    if isinstance(implementation, ProgramTarget) or implementation.operator != OPENING.operator:
        return []
    return [replace(OPENING, dtype=dtype) for dtype in DTYPES if dtype in implementation.dtypes]
