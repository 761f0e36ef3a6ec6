"""The campaign: hands out rounds and findings to minimise, and takes in results, until the budget is spent."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mhc.case import Case
from mhc.fuzz.campaign.backoff import MOST, Backoff
from mhc.fuzz.campaign.harness_faults import FaultRecord, HarnessFaults
from mhc.fuzz.campaign.planner import Planner, Subject
from mhc.fuzz.campaign.pool import Pool, Slot
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.triage import Triage
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.worker.process import HarnessError, WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Fault, Message, Minimise, Minimised, Ready, Round
from oracles import liveness
from oracles.verdict import Verdict

_GRACE = 5.0  # seconds behind the end for what is being minimised, a tenth of the budget at most
_MINIMISE_CHECKS, _MINIMISE_SECONDS = 400, 120.0  # of one finding, beside the rounds; `minimise` alone takes longer
_WATCH = 0.25  # seconds between looks at processes that send nothing
_LONG = 1.0  # seconds that a case must have run at the end to be reported as unfinished


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: seconds of campaign time, or cases on each implementation, of all legs together; the first counts."""

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
        memory: float = float("inf"),
        known_issues: Sequence[KnownIssue] = (),
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
        self._earlier = store.seconds()
        self._started = self._turned = time.monotonic()
        for number, _, _ in store.in_hand():
            store.drop(number)

    @property
    def now(self) -> float:
        """Seconds of campaign time, earlier legs included."""
        return self._earlier + time.monotonic() - self._started

    @property
    def cases(self) -> int:
        """Cases on all implementations together."""
        return self._planner.cases

    @property
    def found(self) -> int:
        """Findings so far."""
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
            with self.store.batch():
                for number, _, _ in self.store.in_hand():
                    self.store.drop(number)
                self.store.tell_leg(leg, self.now - self._earlier, ended)
        return ended

    def _take_in(self, talking: Sequence[Slot], leg: int | None) -> None:
        """Record all messages since the last look in one transaction; with `leg`, its seconds too."""
        with self.store.batch():
            for slot in talking:
                self._attend(slot)
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
        name, request = self._planner.next(ready)
        try:
            self.pool.give(number, name, request)
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
            slot.request.count - slot.begun + (slot.case is not None)
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

    def _shielded(self, hear: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return `hear` with its exceptions recorded as faults."""

        def shielded(what: Any) -> None:
            try:
                hear(what)
            except Exception as error:  # a folder that cannot be written, a display that fails: the campaign goes on
                name = what.fingerprint.implementation if isinstance(what, Finding) else ""
                self.note_fault(name, Fault.of(error), what.case.json if isinstance(what, Finding) else None)

        return shielded

    def _attend(self, slot: Slot) -> None:
        """Run `_hear`; if it raises, the slot continues with another process."""
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
        """Handle the messages of a slot's process, and its end."""
        for message in slot.process.receive():
            self._take(slot, message)
            if isinstance(message, (Done, Minimised, Fault)):
                return
        verdict = slot.process.exit_verdict()
        if verdict is None:
            return
        for message in slot.process.receive():  # sent between the last look and its end
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
                self._planner.ended(slot, fresh=slot.fresh)
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
        """Record the case that a slot's process has judged."""
        assert slot.case is not None
        assert isinstance(slot.request, Round)
        name = slot.name
        self.store.end(slot.number, name, checked, self.now)
        self._backoff.judged(name)
        slot.last, slot.case = checked.case, None
        slot.fresh |= self._planner.learn(name, slot.request, checked)
        slot.fresh |= self._triage.add(checked.findings, self.now)

    def _record_crash(self, slot: Slot, verdict: Verdict) -> None:
        """Record the current case of a crashed process as a finding, or the case before; the round continues behind it."""
        name = slot.name
        self.store.restart(name, verdict.symptom)
        self.store.drop(slot.number)
        self.pool.replace(slot)
        new = False
        blamed = slot.case
        # SIGKILL between cases comes from the system, short of memory
        if blamed is None and slot.last is not None and verdict.symptom != "SIGKILL":
            blamed, verdict = slot.last, liveness.after_judged(verdict)
        if blamed is None:
            self._trouble(name, f"a worker ended between cases: {verdict.message}")
        else:
            subject = self.subjects[name]
            found = finding(subject.spec, subject.implementation, Case.from_json(blamed), verdict)
            if slot.case is not None:
                self._planner.drawn(name)
                self.store.end(slot.number, name, Checked(case=blamed, findings=(found,)), self.now)
            new = self._triage.add((found,), self.now)
            self._backoff.judged(name)
        self._planner.interrupted(slot, fresh=new, crashed=not new)

    def _record_fault(self, slot: Slot, fault: Fault) -> None:
        """Record a fault of the harness, here or in the slot's process.

        A round continues behind its current case; a finding stays as it was drawn, and the next leg minimises it.
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
            self._planner.drawn(name)
            self.store.count(name, "faulted", 1)
        self._trouble(name, fault.message)
        self._planner.interrupted(slot, fresh=False, crashed=True)

    def note_fault(self, name: str, fault: Fault, case: str | None = None) -> None:
        """Record a fault of the harness; the campaign continues."""
        self.faults.record(name, fault, self.now, case)

    def _trouble(self, name: str, why: str) -> None:
        """Record a failure without a judged case, and whether it disables the implementation."""
        if self._backoff.met(name):
            message = f"given up: {MOST} times in a row no case could be judged; the last time: {why}"
            self.note_fault(name, Fault(message=message))

    def _leave(self, slot: Slot) -> None:
        """Record the current case of a slot at the end, if it has run for long."""
        seconds = time.monotonic() - slot.process.since
        if seconds >= _LONG and (slot.case is not None or slot.process.doing == "starting"):
            what = {"implementation": slot.name, "doing": slot.process.doing, "seconds": seconds, "case": slot.case}
            self._unfinished.append(what)

    def _record_lost(self, slot: Slot) -> None:
        """Record a lost machine. The current case is neither judged nor tried again, since it may be the cause."""
        self.store.restart(slot.name, "node lost")
        self.store.drop(slot.number)
        self.pool.replace(slot)
        self._planner.interrupted(slot, fresh=slot.fresh)
