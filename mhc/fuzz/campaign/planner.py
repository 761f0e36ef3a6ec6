"""The planner: which implementation gets the next round, and what that round draws."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhc.fuzz.campaign.compile_budget import CompileBudget, Counts, opening
from mhc.fuzz.campaign.pool import Slot
from mhc.fuzz.campaign.scheduler import Scheduler
from mhc.fuzz.campaign.size_budget import SizeBudget
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.worker.protocol import Checked, Round
from mhc.oracles.gates import RARE, SMALL
from mhc.programs.targets import ProgramTarget
from mhc.registry import Tested
from mhc.strategies.reach import Reach
from mhc.strategies.rounds import ROUND

SIMPLEST = (1, 2)
"""Cases that a free round after the first leaves out, of fewer than `ROUND` cases and of as many: Hypothesis begins a round
with the simplest case there is, and with a small one, in which all sizes are mostly 1."""
_GUIDED_EVERY = 4
_RARE = 3  # a guided round looks for regions with at most this many cases


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An implementation, and how it was named on the command line."""

    spec: str
    implementation: Tested

    @property
    def name(self) -> str:
        return self.implementation.name


class Planner:
    """Plans the rounds of every implementation.

    The rounds of each implementation have the seeds `seed`, `seed + 1`, ..., so that all draw the same cases. It opens with
    rounds of one program each (`mhc.fuzz.campaign.compile_budget.opening`). Each reach has a compile budget of its own.

    Args:
        limit: cases on each implementation. under_way: returns the cases that busy slots may still judge, by name.
        max_elements: of the largest tensor in usual rounds. largest: of x at model sizes; None: what suits the
            device and the `memory` of a worker, in bytes.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        store: Store,
        limit: float,
        under_way: Callable[[str], int],
        *,
        seed: int,
        max_elements: int,
        largest: int | None,
        device: str,
        memory: float,
    ) -> None:
        names = [subject.name for subject in subjects]
        self._of_programs = {one.name for one in subjects if isinstance(one.implementation, ProgramTarget)}
        self._store, self._limit, self._under_way = store, limit, under_way
        self._scheduler = Scheduler(names)
        self._drawn = {name: counted(store.counts().get(name, {})) for name in names}
        self._waiting: dict[str, list[Round]] = {name: [] for name in names}
        seeds: Mapping[str, int] = store.meta().get("seeds", {})
        self._seeds = {name: seeds.get(name, seed) for name in names}
        self._rounds: Counter[str] = Counter()
        self._rare_gates: Counter[str] = Counter()  # how many the first usual rounds have asked
        self._free: set[tuple[str, Reach]] = set()  # what had a free round
        self._compile_budgets: dict[str, dict[Reach, CompileBudget]] = {}
        for one in subjects:
            whole, begin = Counts(), () if one.name in seeds else opening(one.implementation)
            budgets = {reach: CompileBudget(begin if reach is Reach.USUAL else (), whole) for reach in Reach}
            self._compile_budgets[one.name] = budgets
        self._size_budgets = {name: SizeBudget(max_elements, largest, device, memory) for name in names}
        self._regions = {name: Counter[str]() for name in names}
        for name, label, n in store.table("regions"):
            if name in self._regions:
                self._regions[name][label] = n

    @property
    def cases(self) -> int:
        """Return the number of cases on all implementations together."""
        return sum(self._drawn.values())

    def left(self, name: str) -> float:
        """Return the cases that an implementation may still be given, those under way counted."""
        if self._limit == float("inf"):
            return self._limit
        return self._limit - self._drawn[name] - self._under_way(name)

    def open(self, names: Sequence[str]) -> list[str]:
        """Return those of `names` that may still be given cases."""
        return [name for name in names if self._waiting[name] or self.left(name) > 0]

    def turn(self, names: Sequence[str], loaded: Collection[str] = ()) -> str:
        """Return the implementation among `names` whose turn it is. loaded: as for `Scheduler.turn`."""
        return self._scheduler.turn(names, loaded)

    def next(self, names: Sequence[str], loaded: Collection[str] = ()) -> tuple[str, Round]:
        """Return the implementation among `names` whose turn it is, and its next round."""
        name = self._scheduler.turn(names, loaded)
        self._scheduler.begun(name)
        if self._waiting[name]:
            rest = self._waiting[name].pop()
            self._size_budgets[name].goes_on(rest.reach)
            self._compile_budgets[name][rest.reach].given(rest)
            return name, rest
        seed = self._seeds[name]
        self._seeds[name] = seed + 1
        self._rounds[name] += 1
        self._store.set_meta(seeds=self._seeds)
        budgets, sizes = self._compile_budgets[name], self._size_budgets[name]
        usual = budgets[Reach.USUAL].opens or name in self._of_programs  # a program has no size to stretch
        reach, elements = (Reach.USUAL, sizes.most) if usual else sizes.next()
        plan = budgets[reach].next()
        count, rare = plan.count if reach is Reach.USUAL else sizes.count(reach), None
        skip = plan.skip
        if plan.like is None and not plan.fresh and count <= ROUND:
            skip = skip or (SIMPLEST[count >= ROUND] if (name, reach) in self._free else 0)
            self._free.add((name, reach))
        guided = name not in self._of_programs and reach is Reach.USUAL and not plan.opening
        guided &= self._rounds[name] % _GUIDED_EVERY == 0
        if guided and self._limit == float("inf"):
            rare = frozenset(label for label, n in self._regions[name].items() if n <= _RARE)
            count, skip = 5 * ROUND, plan.skip
        count, rare_gate = int(min(count, self.left(name))) + skip, -1
        if reach is Reach.USUAL and rare is None and self._rare_gates[name] < len(RARE):
            rare_gate = self._rare_gates[name]
            self._rare_gates[name] += max(0, count - SMALL)
        request = Round(
            seed=seed,
            count=count,
            skip=skip,
            max_elements=elements,
            reach=reach,
            rare=rare,
            like=plan.like,
            alike=plan.alike,
            fresh=plan.fresh,
            covered=frozenset(label for label, n in self._regions[name].items() if plan.fresh and n > _RARE),
            until_compiled=plan.until_compiled,
            rare_gate=rare_gate,
        )
        budgets[reach].given(request)
        return name, request

    def started(self, name: str, seconds: float) -> None:
        """Record how long a process of an implementation took to start."""
        self._scheduler.started(name, seconds)

    def not_given(self, name: str, request: Round) -> None:
        """Take back a round that could not be handed out."""
        self._waiting[name].append(request)
        self._compile_budgets[name][request.reach].ended(request)
        self._scheduler.done(name, 0.0, novel=False)

    def learn(self, name: str, request: Round, checked: Checked) -> bool:
        """Record a judged case. Return whether it lies in a region without a case so far."""
        self._compile_budgets[name][request.reach].learn(checked, request)
        checking, running = (checked.seconds.get(what, 0.0) for what in ("checking", "running"))
        self._size_budgets[name].learn(checking, request.reach, running=running, compiled=bool(checked.compiled))
        self.drawn(name)
        seen = self._regions[name]
        novel = any(label not in seen for label in checked.regions)
        seen.update(checked.regions)
        return novel

    def drawn(self, name: str) -> None:
        """Record a case that was not judged to its end."""
        self._drawn[name] += 1

    def ended(self, slot: Slot, *, novel: bool, crashed: bool = False) -> None:
        """Record the end of a slot's round, whose time counts from now on as spent."""
        if isinstance(slot.request, Round):
            self._size_budgets[slot.name].ended(slot.request.reach)
            self._compile_budgets[slot.name][slot.request.reach].ended(slot.request)
            self._scheduler.done(slot.name, time.monotonic() - slot.since, novel=novel, crashed=crashed)

    def interrupted(self, slot: Slot, *, novel: bool, crashed: bool = False) -> None:
        """Record that the process of a slot's round ended; the rest of the round, without the case in hand, is kept."""
        self.ended(slot, novel=novel, crashed=crashed)
        request = slot.request
        if isinstance(request, Round) and request.rare is None:
            again = frozenset(slot.open - {slot.at} if slot.case is not None else slot.open)
            if again or slot.begun < request.count:
                self._waiting[slot.name].append(replace(request, skip=slot.begun, again=again))


def counted(counts: Mapping[str, Any]) -> int:
    """Return how many cases of an implementation its counts in the store have."""
    return int(counts.get("checked", 0) + counts.get("refused", 0) + counts.get("faulted", 0))
