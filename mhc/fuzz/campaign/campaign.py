"""The campaign: hands out rounds and findings to minimise, and takes in results, until the budget is spent."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhc.fuzz.campaign.backoff import Backoff
from mhc.fuzz.campaign.harness_faults import FaultRecord, HarnessFaults
from mhc.fuzz.campaign.planner import Planner, Subject
from mhc.fuzz.campaign.pool import Pool, Slot
from mhc.fuzz.campaign.results import Results
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.triage import Triage
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.worker.protocol import Fault, Minimise, Round

_GRACE = 5.0  # seconds behind the end for what is being minimised, a tenth of the budget at most
_MINIMISE_CHECKS, _MINIMISE_SECONDS = 400, 120.0  # of one finding, beside the rounds; `minimise` alone takes longer
_WATCH = 0.25  # seconds between looks at processes that send nothing
_LONG = 1.0  # seconds that a case must have run at the end to be reported as unfinished


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: seconds of campaign time, or cases on each implementation, of all legs; whichever comes first."""

    seconds: float = float("inf")
    cases: float = float("inf")


class _NotStarted(Exception):
    """A process could not be started."""

    def __init__(self, why: Exception) -> None:
        super().__init__(why)
        self.why = why


class Campaign:
    """One leg of a campaign, which continues what `store` has of earlier legs.

    A failing case is minimised beside the rounds, in a slot of its own. A process that crashes, hangs or exceeds its limits
    is replaced; its current case is the finding, and the round continues behind it. It also continues behind a fault of the
    harness, which is recorded (`faults`). An implementation is disabled after five failures in a row without a judged case;
    the others continue.

    Args:
        known_issues: known issues, which are no findings of this campaign.
        seed, max_elements, largest, device, memory: as for `Planner`.
        minimise: whether findings are minimised; otherwise they stay as they were drawn.
        on_finding: called with each finding once, as it was drawn; on_minimal: when it is minimised; on_other: when it is
            seen to be another one, with both.
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
        memory: float = float("inf"),
        known_issues: Sequence[KnownIssue] = (),
        minimise: bool = False,
        on_finding: Callable[[Finding], None] = lambda found: None,
        on_minimal: Callable[[Finding], None] = lambda found: None,
        on_other: Callable[[Finding, Finding], None] = lambda drawn, found: None,
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
        heard = [self._shielded(hear) for hear in (on_finding, on_minimal, on_other)]
        self._triage = Triage(store, self.subjects, known_issues, *heard)
        self._backoff = Backoff()
        self._unfinished: list[dict[str, Any]] = []
        self._planner = Planner(
            subjects,
            store,
            budget.cases,
            self._under_way,
            seed=seed,
            max_elements=max_elements,
            largest=largest,
            device=device,
            memory=memory,
        )
        self._results = Results(
            self.subjects,
            store,
            pool,
            self._planner,
            self._triage,
            self._backoff,
            now=lambda: self.now,
            stopping=lambda: self.stopping is not None,
            note_fault=self.note_fault,
        )
        self._earlier = store.seconds()
        self._minimised_since: float | None = None
        self._draws_until = 0.0
        self._started = self._turned = time.monotonic()
        for number, _, _ in store.in_hand():
            store.drop(number)

    @property
    def now(self) -> float:
        """Return the seconds of campaign time, earlier legs included."""
        return self._earlier + time.monotonic() - self._started

    @property
    def cases(self) -> int:
        """Return the number of cases on all implementations together."""
        return self._planner.cases

    @property
    def found(self) -> int:
        """Return the number of findings so far."""
        return len(self._triage)

    def stop(self, reason: str) -> None:
        """End soon: begin no case any more, and end what runs. Safe in a signal handler."""
        self.stopping = reason

    def run(self) -> str:
        """Work until the budget is spent or `stop` is called. Return why it ended.

        Raises:
            HarnessError: no worker can be started, or the machines of a cluster run different sources.
        """
        leg = self.store.begin_leg(time.time())
        ended = "fault"
        recorded = 0.0  # when the seconds of the leg were written last
        try:
            while self.stopping is None and not self.pool.free():  # until the first machine of a cluster is there
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
                self._note_failed_ends()
                due = self.now - recorded > 1.0
                recorded = self.now if due else recorded
                try:
                    self._take_in(talking, leg if due else None)
                except (sqlite3.Error, ValueError) as error:
                    # the store refuses a value: the results of this batch are lost
                    self.note_fault("", Fault.of(error))
                self._shielded(self._on_tick)(self)
            ended = self.stopping or "budget spent"
        finally:
            for slot in self.pool.busy():
                self._leave(slot)
            self.store.set_meta(unfinished=self._unfinished)
            self.pool.stop()
            self._note_failed_ends()
            with self.store.batch():
                for number, _, _ in self.store.in_hand():
                    self.store.drop(number)
                self.store.tell_leg(leg, self.now - self._earlier, ended)
        return ended

    def _take_in(self, talking: Sequence[Slot], leg: int | None) -> None:
        """Record all messages since the last look in one transaction; with `leg`, its seconds too."""
        with self.store.batch():
            for slot in talking:
                self._results.take_in(slot)
            if leg is not None:
                if self.store.trouble is not None:
                    self.note_fault("", Fault(message=f"{self.store.trouble}; the run goes on in memory"))
                self.store.tell_leg(leg, self.now - self._earlier)

    def _only_minimising(self) -> bool:
        """End all rounds; what is being minimised may take a little longer. Return whether anything is."""
        for slot in self.pool.busy():
            if isinstance(slot.request, Round):
                self._leave(slot)
                self.pool.replace(slot)
        return bool(self.pool.busy()) and self.now < self.budget.seconds + min(_GRACE, self.budget.seconds / 10)

    def _hand_out(self) -> None:
        """Give every free slot a finding to minimise, or a round; a slot whose device has no room waits."""
        for number in self.pool.free():
            try:
                if self._give_finding(number) or self._give_round(number):
                    self._backoff.started()
            except _NotStarted as error:
                self._backoff.not_started(error.why)
                return

    def _to_minimise(self) -> bool:
        """Return whether a finding waits to be minimised."""
        return self._minimise and bool(self._triage.waiting)

    def _give_finding(self, number: int) -> bool:
        """Have a slot minimise the oldest finding that waits, unless half of the slots do; return whether it does.

        A single slot then draws for as long as it minimised, while there is something to draw.
        """
        minimising = sum(isinstance(slot.request, Minimise) for slot in self.pool.busy())
        if self._minimised_since is not None and not minimising:
            self._draws_until = 2 * self.now - self._minimised_since
            self._minimised_since = None
        if not self._to_minimise() or minimising >= max(1, self.pool.size // 2):
            return False
        if self.pool.size == 1 and self.now < self._draws_until and self._open():
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
        self._minimised_since = self.now
        return True

    def _give_round(self, number: int) -> bool:
        """Hand a round to a slot; return whether there is one to hand out."""
        ready = [name for name in self._open() if not self._backoff.resting(name)]
        if not ready:
            return False
        loaded = self.pool.loaded(number)
        if self._planner.turn(ready, loaded) not in loaded and not self.pool.make_room(number):
            ready = [name for name in ready if name in self.pool.loaded(number)]
            if not ready:
                return False
        name, request = self._planner.next(ready, loaded)
        try:
            self.pool.give(number, name, replace(request, found=self._triage.programs(name)))
        except Exception as error:
            self._planner.not_given(name, request)
            self.note_fault(name, Fault.of(error))
            raise _NotStarted(error) from error
        return True

    def _open(self) -> list[str]:
        """Return the implementations that may still be given cases."""
        return self._planner.open([name for name in self.subjects if not self._backoff.given_up(name)])

    def _under_way(self, name: str) -> int:
        """Return the cases on an implementation that busy slots may still judge."""
        return sum(
            slot.request.count - slot.begun + len(slot.open)
            for slot in self.pool.busy()
            if slot.name == name and isinstance(slot.request, Round)
        )

    def _turn(self) -> None:
        """Do not count the time in which this process was stopped, as by Ctrl-Z."""
        now = time.monotonic()
        if self.woken:
            self.woken = False
            self._started += now - self._turned
        self._turned = now

    def _shielded(self, hear: Callable[..., None]) -> Callable[..., None]:
        """Return `hear` with its exceptions recorded as faults."""

        def shielded(what: Any, *others: Any) -> None:
            try:
                hear(what, *others)
            except Exception as error:  # a folder that cannot be written, a display that fails: the campaign goes on
                name = what.fingerprint.implementation if isinstance(what, Finding) else ""
                self.note_fault(name, Fault.of(error), what.case.json if isinstance(what, Finding) else None)

        return shielded

    def note_fault(self, name: str, fault: Fault, case: str | None = None) -> None:
        """Record a fault of the harness; the campaign continues."""
        self.faults.record(name, fault, self.now, case)

    def _note_failed_ends(self) -> None:
        """Record as faults which processes could not be ended."""
        for error in self.pool.failed_ends():
            self.note_fault("", Fault.of(error))

    def _leave(self, slot: Slot) -> None:
        """Record the current case of a slot at the end, if it has run for long."""
        seconds = time.monotonic() - slot.process.since
        if seconds >= _LONG and (slot.case is not None or slot.process.doing == "starting"):
            what = {"implementation": slot.name, "doing": slot.process.doing, "seconds": seconds, "case": slot.case}
            self._unfinished.append(what)
