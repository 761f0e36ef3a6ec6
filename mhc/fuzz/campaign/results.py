"""Results: what the messages and the ends of workers mean for the store, the findings and the next rounds."""

import time
from collections.abc import Callable, Mapping

from mhc import drawn_case
from mhc.fuzz.campaign.backoff import MOST, Backoff
from mhc.fuzz.campaign.planner import Planner, Subject
from mhc.fuzz.campaign.pool import Pool, Slot
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.triage import Triage
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.worker.process import HarnessError, WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Fault, Message, Minimise, Minimised, Ready, Round
from mhc.oracles import liveness
from mhc.oracles.verdict import Verdict


class Results:
    """Takes in the results of slots, and hands each to the parts of the campaign that keep it.

    Args:
        now: returns the campaign time. stopping: returns whether the campaign was told to end.
        note_fault: records a fault of the harness: of an implementation, and on a case.
    """

    def __init__(
        self,
        subjects: Mapping[str, Subject],
        store: Store,
        pool: Pool,
        planner: Planner,
        triage: Triage,
        backoff: Backoff,
        *,
        now: Callable[[], float],
        stopping: Callable[[], bool],
        note_fault: Callable[[str, Fault, str | None], None],
    ) -> None:
        self._subjects, self._store, self._pool = subjects, store, pool
        self._planner, self._triage, self._backoff = planner, triage, backoff
        self._now, self._stopping, self._note_fault = now, stopping, note_fault

    def take_in(self, slot: Slot) -> None:
        """Handle what a slot's process sent, and its end; if that raises, the slot continues with another process."""
        try:
            self._hear(slot)
        except HarnessError:
            raise
        except Exception as error:
            if slot in self._pool.busy():
                self._record_fault(slot, Fault.of(error))
            else:
                self._note_fault(slot.name, Fault.of(error), slot.case)

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
            self._record_lost(slot, verdict)
        elif isinstance(verdict, Fault):
            self._record_fault(slot, verdict)
        else:
            self._record_crash(slot, verdict)

    def _take(self, slot: Slot, message: Message) -> None:
        name = slot.name
        match message:
            case Ready():
                seconds = time.monotonic() - slot.since
                self._planner.started(name, seconds)
                self._store.count(name, "starting", seconds)
            case Begun():
                slot.case, slot.at, slot.begun = message.case, message.number, max(slot.begun, message.number + 1)
                slot.open.add(message.number)
                self._store.begin(slot.number, name, message.case, self._now())
            case Checked():
                self._count(slot, message)
            case Minimised():
                assert isinstance(slot.request, Minimise)
                drawn = slot.request.finding
                self._pool.replace(slot)
                self._triage.minimal(drawn, message.finding, self._now())
            case Done():
                self._store.count(name, "drawing", message.drawing)
                self._planner.ended(slot, novel=slot.novel)
                request = slot.request
                empty = isinstance(request, Round) and slot.begun == request.skip and not request.again
                if empty and not message.left_out and not message.lost:
                    self._trouble(name, "a round had no case in it")
                if message.lost:
                    self._store.restart(name, "device lost")
                    self._pool.replace(slot)
                else:
                    self._pool.release(slot)
            case Fault():
                self._record_fault(slot, message)
            case _:
                pass

    def _count(self, slot: Slot, checked: Checked) -> None:
        """Record the case that a slot's process has judged."""
        assert slot.case is not None
        assert isinstance(slot.request, Round)
        name = slot.name
        self._store.end(slot.number, name, checked, self._now())
        self._backoff.judged(name)
        slot.last, slot.case = checked.case, None
        slot.open.discard(slot.at)
        slot.novel |= self._planner.learn(name, slot.request, checked)
        slot.novel |= self._triage.add(checked.findings, self._now())

    def _record_crash(self, slot: Slot, verdict: Verdict) -> None:
        """Record the current case of a crashed process as a finding, or the case before; the round continues behind it."""
        name = slot.name
        self._store.restart(name, verdict.symptom)
        self._store.drop(slot.number)
        self._pool.replace(slot)
        new = False
        blamed = slot.case
        # SIGKILL between cases comes from the system, short of memory
        if blamed is None and slot.last is not None and verdict.symptom != "SIGKILL":
            blamed, verdict = slot.last, liveness.after_judged(verdict)
        if blamed is None:
            how = verdict.how if isinstance(verdict, liveness.Died) else verdict.message
            self._trouble(name, f"a worker ended between cases: {how}")
        else:
            subject = self._subjects[name]
            found = finding(subject.spec, subject.implementation, drawn_case.read(blamed), verdict)
            if slot.case is not None:
                self._planner.drawn(name)
                self._store.end(slot.number, name, Checked(case=blamed, findings=(found,)), self._now())
            new = self._triage.add((found,), self._now())
            self._backoff.judged(name)
        self._planner.interrupted(slot, novel=new, crashed=not new)

    def _record_fault(self, slot: Slot, fault: Fault) -> None:
        """Record a fault of the harness, here or in the slot's process.

        A round continues behind its current case; a finding stays as it was drawn, and the next leg minimises it.
        """
        name = slot.name
        if isinstance(slot.request, Minimise):
            self._pool.replace(slot)
            self._note_fault(name, fault, slot.request.finding.case.json)
            return
        self._store.restart(name, "fault of the harness")
        self._store.drop(slot.number)
        self._pool.replace(slot)
        self._note_fault(name, fault, slot.case)
        if slot.case is not None:
            self._planner.drawn(name)
            self._store.count(name, "faulted", 1)
        self._trouble(name, fault.message)
        self._planner.interrupted(slot, novel=False, crashed=True)

    def _trouble(self, name: str, why: str) -> None:
        """Record a failure without a judged case, and whether it disables the implementation."""
        if self._backoff.met(name):
            message = f"given up: {MOST} times in a row no case could be judged; the last time: {why}"
            self._note_fault(name, Fault(message=message), None)

    def _record_lost(self, slot: Slot, lost: WorkerLost) -> None:
        """Record a lost machine or server. The current case is neither judged nor tried again, since it may be the cause.

        A lost server is a fault, which counts against the implementation if it had a case in hand.
        """
        if lost.server and not self._stopping():  # a signal to the whole group ends the server too
            fault = Fault(message=f"{lost.message}; a case that ran may have killed it")
            if slot.case is not None:
                self._record_fault(slot, fault)
                return
            self._note_fault(slot.name, fault, None)
        self._store.restart(slot.name, "server lost" if lost.server else "node lost")
        self._store.drop(slot.number)
        self._pool.replace(slot)
        self._planner.interrupted(slot, novel=slot.novel)
