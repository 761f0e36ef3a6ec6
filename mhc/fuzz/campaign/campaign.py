"""The campaign: rounds over every implementation, several processes at a time, until the budget is spent; each bug once."""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhc.case import Case
from mhc.fuzz.campaign.backoff import MOST, Backoff
from mhc.fuzz.campaign.compile_budget import CompileBudget, opening
from mhc.fuzz.campaign.harness_faults import FaultRecord, HarnessFaults
from mhc.fuzz.campaign.pool import Pool, Slot
from mhc.fuzz.campaign.scheduler import Scheduler
from mhc.fuzz.campaign.size_budget import SizeBudget
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.triage import Triage
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.worker.process import HarnessError, WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Fault, Message, Minimise, Minimised, Ready, Round
from mhc.implementation import Implementation
from oracles import liveness
from oracles.verdict import Verdict
from strategies.reach import Reach
from strategies.rounds import ROUND

_GUIDED_EVERY = 4
_RARE = 3  # cases in a region below which a round looks for it
_GRACE = 5.0  # seconds behind the end for what is being minimised, a tenth of the budget at most
_MINIMISE_CHECKS, _MINIMISE_SECONDS = 400, 120.0  # of one finding, beside the rounds; `minimise` alone takes longer
_WATCH = 0.25  # seconds between looks at processes that say nothing
_LONG = 1.0  # seconds that a case was in hand at the end to be named


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An implementation, and how it was named on the command line."""

    spec: str
    implementation: Implementation

    @property
    def name(self) -> str:
        return self.implementation.name


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: whichever comes first. Seconds of campaign time, or cases on each implementation; all legs together."""

    seconds: float = float("inf")
    cases: float = float("inf")


class _NotStarted(Exception):
    """A process could not be started."""

    def __init__(self, why: Exception) -> None:
        super().__init__(why)
        self.why = why


class Campaign:
    """One leg of a campaign: what `store` knows of earlier ones is gone on from.

    A failing case is minimised beside the rounds, in a slot of its own. A process that dies, hangs
    or outgrows its limits is replaced; the case that it had in hand is the finding, and the round goes on behind it. So does
    it behind a fault of the harness, which is recorded (`faults`). An implementation of which five processes in a row met
    trouble, and judged no case, is given up; the others go on.
    Rounds of each implementation have the seeds `seed`, `seed + 1`, ..., so that all draw the same cases; it opens
    with rounds of one program each (`mhc.fuzz.campaign.compile_budget.opening`).

    Args:
        ledger: known issues, which are no findings of this campaign.
        max_elements: of the largest tensor in usual rounds. largest: of x at model sizes; None: what suits the device.
        minimise: whether findings are minimised; otherwise they stay as they were drawn.
        on_finding: called with each finding once, as it was drawn; on_minimal: when it is minimised.
        on_fault: called with each fault of the harness once. on_tick: called several times a second.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        store: Store,
        pool: Pool,
        budget: Budget,
        *,
        seed: int = 0,
        max_elements: int = 1 << 15,
        largest: int | None = None,
        device: str = "cpu",
        ledger: Sequence[KnownIssue] = (),
        minimise: bool = False,
        on_finding: Callable[[Finding], None] = lambda found: None,
        on_minimal: Callable[[Finding], None] = lambda found: None,
        on_fault: Callable[[FaultRecord], None] = lambda fault: None,
        on_tick: Callable[["Campaign"], None] = lambda campaign: None,
    ) -> None:
        self.subjects = {subject.name: subject for subject in subjects}
        self.store = store
        self.pool = pool
        self.budget = budget
        self.stopping: str | None = None
        self._on_tick = on_tick
        self._minimise = minimise
        self.faults = HarnessFaults(store, on_fault)
        self.woken = False
        heard = [self._shielded(hear) for hear in (on_finding, on_minimal)]
        self._triage = Triage(store, ledger, *heard)
        self._triage.waiting = [one for one in self._triage.waiting if one.fingerprint.implementation in self.subjects]
        self._scheduler = Scheduler(self.subjects)
        self._drawn = {name: _cases(store.counts().get(name, {})) for name in self.subjects}
        self._waiting: dict[str, list[Round]] = {name: [] for name in self.subjects}
        self._backoff = Backoff()
        self._unfinished: list[dict[str, Any]] = []
        seeds: Mapping[str, int] = store.meta().get("seeds", {})
        self._seeds = {name: seeds.get(name, seed) for name in self.subjects}
        self._rounds: Counter[str] = Counter()
        self._compile_budgets = {
            one.name: CompileBudget(() if one.name in seeds else opening(one.implementation)) for one in subjects
        }
        self._size_budgets = {name: SizeBudget(max_elements, largest, device) for name in self.subjects}
        self._earlier = store.seconds()
        self._started = self._turned = time.monotonic()
        self._regions = {name: Counter[str]() for name in self.subjects}
        for name, label, n in store.table("regions"):
            if name in self._regions:
                self._regions[name][label] = n
        for number, _, _ in store.in_hand():
            store.drop(number)

    @property
    def now(self) -> float:
        """Seconds of campaign time."""
        return self._earlier + time.monotonic() - self._started

    @property
    def cases(self) -> int:
        """Cases on all implementations together."""
        return sum(self._drawn.values())

    @property
    def found(self) -> int:
        """Findings so far."""
        return len(self._triage)

    def stop(self, reason: str) -> None:
        """End soon: no case is begun any more, and what runs is ended. Safe in a signal handler."""
        self.stopping = reason

    def run(self) -> str:
        """Work until the budget is spent or `stop` is called; why it ended.

        Raises:
            HarnessError: no worker can be started, or a fleet does not fit together.
        """
        leg = self.store.begin_leg(time.time())
        ended = "fault"
        told = 0.0
        try:
            while self.stopping is None and not self.pool.free():  # until the first machine of a fleet is there
                self.pool.wait(_WATCH)
            self._started = self._turned = time.monotonic()
            while self.stopping is None:
                self._turn()
                if self.now < self.budget.seconds:
                    self._hand_out()
                elif not self._only_minimising():
                    break
                if not (self.pool.busy() or self._to_minimise() or self._open()):
                    break
                talking = self.pool.wait(_WATCH)
                tell = self.now - told > 1.0
                told = self.now if tell else told
                try:
                    self._take_in(talking, leg if tell else None)
                except (sqlite3.Error, ValueError) as error:
                    # a value that the store does not take: what came with it is lost
                    self.note_fault("", Fault.of(error))
                self._shielded(self._on_tick)(self)
            ended = self.stopping or "budget spent"
        finally:
            for slot in self.pool.busy():
                self._leave(slot)
            self.store.set_meta(unfinished=self._unfinished)
            self.pool.stop()
            with self.store.batch():
                for number, _, _ in self.store.in_hand():
                    self.store.drop(number)
                self.store.tell_leg(leg, self.now - self._earlier, ended)
        return ended

    def _take_in(self, talking: Sequence[Slot], leg: int | None) -> None:
        """Everything that has happened since the last look, in one transaction; with `leg` how long that has run."""
        with self.store.batch():
            for slot in talking:
                self._attend(slot)
            if leg is not None and self.store.trouble is not None:
                self.note_fault("", Fault(message=f"{self.store.trouble}; the run goes on in memory"))
            if leg is not None:
                self.store.tell_leg(leg, self.now - self._earlier)

    def _only_minimising(self) -> bool:
        """End all rounds; what is being minimised may take a little longer. Return whether anything is."""
        for slot in self.pool.busy():
            if isinstance(slot.request, Round):
                self._leave(slot)
                self.pool.replace(slot)
        return bool(self.pool.busy()) and self.now < self.budget.seconds + min(_GRACE, self.budget.seconds / 10)

    def _hand_out(self) -> None:
        """Give every free slot a finding to minimise, or a round."""
        for number in self.pool.free():
            try:
                if not (self._give_finding(number) or self._give_round(number)):
                    return
            except _NotStarted as error:
                self._backoff.not_started(error.why)
                return
            self._backoff.started()

    def _to_minimise(self) -> bool:
        """Return whether a finding waits to be minimised."""
        return self._minimise and bool(self._triage.waiting)

    def _give_finding(self, number: int) -> bool:
        """Have a slot minimise the oldest finding that waits, unless half of the slots do; return whether it does."""
        minimising = sum(isinstance(slot.request, Minimise) for slot in self.pool.busy())
        if not self._to_minimise() or minimising >= max(1, self.pool.size // 2):
            return False
        found = self._triage.waiting[0]
        name = found.fingerprint.implementation
        if self._backoff.resting(name):
            return False
        seconds = min(_MINIMISE_SECONDS, self.budget.seconds - self.now)  # confirming it takes a little longer
        try:
            self.pool.minimise(number, name, Minimise(finding=found, checks=_MINIMISE_CHECKS, seconds=seconds))
        except Exception as error:
            self.note_fault(name, Fault.of(error), found.case.json)
            raise _NotStarted(error) from error
        self._triage.waiting.remove(found)
        return True

    def _give_round(self, number: int) -> bool:
        """Hand a round to a slot; return whether there is one to hand out."""
        ready = [name for name in self._open() if not self._backoff.resting(name)]
        if not ready:
            return False
        name = self._scheduler.next(ready)
        round_ = self._round(name)
        try:
            self.pool.give(number, name, round_)
        except Exception as error:
            self._waiting[name].append(round_)
            self._scheduler.done(name, 0.0, fresh=False)
            self.note_fault(name, Fault.of(error))
            raise _NotStarted(error) from error
        return True

    def _open(self) -> list[str]:
        """Implementations that may still be given cases."""
        left = [name for name in self.subjects if not self._backoff.given_up(name)]
        return [name for name in left if self._waiting[name] or self._left(name) > 0]

    def _left(self, name: str) -> float:
        """Cases that an implementation may still be given, those on their way counted."""
        if self.budget.cases == float("inf"):
            return self.budget.cases
        on_their_way = sum(
            slot.request.count - slot.begun + (slot.case is not None)
            for slot in self.pool.busy()
            if slot.name == name and isinstance(slot.request, Round)
        )
        return self.budget.cases - self._drawn[name] - on_their_way

    def _round(self, name: str) -> Round:
        if self._waiting[name]:
            rest = self._waiting[name].pop()
            self._size_budgets[name].goes_on(rest.reach)
            return rest
        seed = self._seeds[name]
        self._seeds[name] = seed + 1
        self._rounds[name] += 1
        self.store.set_meta(seeds=self._seeds)
        plan = self._compile_budgets[name].next()
        reach, elements = (Reach.USUAL, self._size_budgets[name].most) if plan.opening else self._size_budgets[name].next()
        count, rare = plan.count if reach is Reach.USUAL else self._size_budgets[name].count(reach), None
        guided = reach is Reach.USUAL and not plan.opening and self._rounds[name] % _GUIDED_EVERY == 0
        if guided and self.budget.cases == float("inf"):
            rare = frozenset(label for label, n in self._regions[name].items() if n <= _RARE)
            count = 5 * ROUND
        return Round(
            seed=seed,
            count=int(min(count, self._left(name))),
            max_elements=elements,
            reach=reach,
            rare=rare,
            like=plan.like if reach is Reach.USUAL else None,
        )

    def _turn(self) -> None:
        """Take the time off in which this process was stopped, as by Ctrl-Z."""
        now = time.monotonic()
        if self.woken:
            self.woken = False
            self._started += now - self._turned
        self._turned = now

    def _shielded(self, hear: Callable[[Any], None]) -> Callable[[Any], None]:
        """`hear`, whose exceptions are recorded as faults."""

        def shielded(what: Any) -> None:
            try:
                hear(what)
            except Exception as error:  # a folder that cannot be written, a display that fails: the campaign goes on
                name = what.fingerprint.implementation if isinstance(what, Finding) else ""
                self.note_fault(name, Fault.of(error), what.case.json if isinstance(what, Finding) else None)

        return shielded

    def _attend(self, slot: Slot) -> None:
        """`_hear`; where that itself is at fault, the slot goes on with another process."""
        try:
            self._hear(slot)
        except HarnessError:
            raise
        except Exception as error:
            if slot in self.pool.busy():
                self._record_fault(slot, Fault.of(error))
            else:
                self.note_fault(slot.name, Fault.of(error), slot.case)

    def _hear(self, slot: Slot) -> None:
        """Everything that a slot's process has said, and what became of it."""
        for message in slot.process.receive():
            self._take(slot, message)
            if isinstance(message, (Done, Minimised, Fault)):
                return
        verdict = slot.process.exit_verdict()
        if verdict is None:
            return
        for message in slot.process.receive():  # said between the last look and its end
            self._take(slot, message)
            if isinstance(message, (Done, Minimised, Fault)):
                return
        if isinstance(verdict, WorkerLost):
            self._record_lost(slot)
        else:
            self._record_crash(slot, verdict)

    def _take(self, slot: Slot, message: Message) -> None:
        name = slot.name
        match message:
            case Ready():
                self.store.count(name, "starting", time.monotonic() - slot.since)
            case Begun():
                slot.case, slot.begun = message.case, message.number + 1
                self.store.begin(slot.number, name, message.case, self.now)
            case Checked():
                self._count(slot, message)
            case Minimised():
                self.pool.replace(slot)
                self._triage.minimal(message.finding, self.now)
            case Done():
                self.store.count(name, "drawing", message.drawing)
                self._end_round(slot, fresh=slot.fresh)
                if isinstance(slot.request, Round) and slot.begun == slot.request.skip and not message.lost:
                    self._trouble(name, "a round had no case in it")
                if message.lost:
                    self.store.restart(name, "device lost")
                    self.pool.replace(slot)
                else:
                    self.pool.release(slot)
            case Fault():
                self._record_fault(slot, message)
            case _:
                pass

    def _count(self, slot: Slot, checked: Checked) -> None:
        """Count the case that a slot's process has judged, and keep what is new about it."""
        assert slot.case is not None
        assert isinstance(slot.request, Round)
        name = slot.name
        self.store.end(slot.number, name, checked, self.now)
        self._backoff.judged(name)
        slot.last, slot.case = checked.case, None
        self._compile_budgets[name].learn(checked)
        checking, running = (checked.seconds.get(what, 0.0) for what in ("checking", "running"))
        self._size_budgets[name].learn(checking, slot.request.reach, running=running, compiled=bool(checked.compiled))
        self._drawn[name] += 1
        seen = self._regions[name]
        slot.fresh |= any(label not in seen for label in checked.regions)
        seen.update(checked.regions)
        slot.fresh |= self._triage.add(checked.findings, self.now)

    def _record_crash(self, slot: Slot, verdict: Verdict) -> None:
        """Blame the case in hand for the end of its process, or else the one before, and go on behind it with another."""
        name = slot.name
        self.store.restart(name, verdict.symptom)
        self.store.drop(slot.number)
        self.pool.replace(slot)
        new = False
        blamed = slot.case
        if (
            blamed is None and slot.last is not None and verdict.symptom != "SIGKILL"
        ):  # which the system sends, short of memory
            blamed, verdict = slot.last, liveness.after_judged(verdict)
        if blamed is None:
            self._trouble(name, f"a worker ended between cases: {verdict.message}")
        else:
            subject = self.subjects[name]
            found = finding(subject.spec, subject.implementation, Case.from_json(blamed), verdict)
            if slot.case is not None:
                self._drawn[name] += 1
                self.store.end(slot.number, name, Checked(case=blamed, findings=(found,)), self.now)
            new = self._triage.add((found,), self.now)
            self._backoff.judged(name)
        self._end_round(slot, fresh=new, crashed=not new)
        self._go_on(slot)

    def _record_fault(self, slot: Slot, fault: Fault) -> None:
        """Record a fault of the harness, here or in the slot's process.

        A round goes on behind the case in hand; a finding stays as it was drawn, and the next leg minimises it.
        """
        name = slot.name
        if isinstance(slot.request, Minimise):
            self.pool.replace(slot)
            self.note_fault(name, fault, slot.request.finding.case.json)
            return
        self.store.restart(name, "fault of the harness")
        self.store.drop(slot.number)
        self.pool.replace(slot)
        self.note_fault(name, fault, slot.case)
        if slot.case is not None:
            self._drawn[name] += 1
            self.store.count(name, "faulted", 1)
        self._trouble(name, fault.message)
        self._end_round(slot, fresh=False, crashed=True)
        self._go_on(slot)

    def note_fault(self, name: str, fault: Fault, case: str | None = None) -> None:
        """Record a fault of the harness, which ends nothing."""
        self.faults.record(name, fault, self.now, case)

    def _trouble(self, name: str, why: str) -> None:
        """An implementation met trouble, with no case judged."""
        if self._backoff.met(name):
            told = f"given up: {MOST} times in a row no case could be judged; the last time: {why}"
            self.note_fault(name, Fault(message=told))

    def _leave(self, slot: Slot) -> None:
        """Note what a slot has in hand at the end, where that took long."""
        seconds = time.monotonic() - slot.process.since
        if seconds >= _LONG and (slot.case is not None or slot.process.doing == "starting"):
            what = {"implementation": slot.name, "doing": slot.process.doing, "seconds": seconds, "case": slot.case}
            self._unfinished.append(what)

    def _record_lost(self, slot: Slot) -> None:
        """A machine is gone. What a process had in hand is neither judged nor tried again: it may be why."""
        self.store.restart(slot.name, "node lost")
        self.store.drop(slot.number)
        self.pool.replace(slot)
        self._end_round(slot, fresh=slot.fresh)
        self._go_on(slot)

    def _end_round(self, slot: Slot, *, fresh: bool, crashed: bool = False) -> None:
        """Book the time of a slot's round."""
        if not isinstance(slot.request, Round):
            return
        self._size_budgets[slot.name].ended(slot.request.reach)
        self._scheduler.done(slot.name, time.monotonic() - slot.since, fresh=fresh, crashed=crashed)

    def _go_on(self, slot: Slot) -> None:
        """What is left of the round of a process that ended is handed out again, behind the case in hand."""
        request = slot.request
        if isinstance(request, Round) and slot.begun < request.count and request.rare is None:
            self._waiting[slot.name].append(replace(request, skip=slot.begun))


def _cases(counts: Mapping[str, Any]) -> int:
    return int(counts.get("checked", 0) + counts.get("refused", 0) + counts.get("faulted", 0))
