"""What a campaign has found: each bug once, whoever meets it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mhc.case import Case
from mhc.fuzz.campaign.background_minimiser import Reducer
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.findings.finding import Finding, finding, fingerprint, from_document
from mhc.fuzz.findings.known_issues import Known
from mhc.fuzz.worker.protocol import Failure

if TYPE_CHECKING:
    from mhc.fuzz.campaign.campaign import Subject


class Bugs:
    """The findings of a campaign, by the id of their fingerprint; those of earlier legs among them.

    Args:
        ledger, against, reducer, on_finding, on_minimal: as for `Campaign`.

    Attributes:
        known: what rounds need not raise any more.
    """

    def __init__(
        self,
        subjects: "Mapping[str, Subject]",
        store: Store,
        ledger: Sequence[Known],
        against: Mapping[str, str],
        reducer: Reducer,
        on_finding: Callable[[Finding], None],
        on_minimal: Callable[[Finding], None],
    ) -> None:
        self._subjects, self._store, self._against, self._reducer = subjects, store, against, reducer
        self._on_finding, self._on_minimal = on_finding, on_minimal
        rows = store.findings()
        self._states: dict[str, str] = {id_: row["state"] for id_, row in rows.items()}
        self.known = frozenset(entry.fingerprint.id for entry in ledger) | frozenset(self._states)
        for row in rows.values():
            if row["state"] != "minimal":  # an earlier leg did not come so far
                reducer.add(from_document(row["document"]))

    def __len__(self) -> int:
        return len(self._states)

    def meet(self, name: str, text: str, failures: Sequence[Failure], known: frozenset[str], at: float) -> bool:
        """Write a failing case down at once, as it is: shrinking may not live to tell. Of several bugs the first new one.

        Args:
            text: JSON of the case. known: to the round that met it. at: campaign time.

        Returns:
            whether it is new.
        """
        if not failures:
            return False
        case, subject = Case.from_json(text), self._subjects[name]
        for failure in failures:
            id_ = fingerprint(subject.implementation, case, failure).id
            if id_ not in known:
                return self._keep(name, case, failure, "raw", at)
            self._store.seen(id_)
        return False

    def shrunk(self, name: str, text: str, failure: Failure, at: float) -> bool:
        """A round has shrunk a bug as far as it can, or its process ended on it; whether it is new. It is told now."""
        return self._keep(name, Case.from_json(text), failure, "shrunk", at)

    def minimal(self, found: Finding, at: float) -> None:
        """A finding came back from the minimiser."""
        self._states[found.fingerprint.id] = "minimal"
        self._store.keep(found.fingerprint.id, found.document, "minimal", at)
        self._on_minimal(found)

    def _keep(self, name: str, case: Case, failure: Failure, state: str, at: float) -> bool:
        """A raw finding is kept where there is none yet; a shrunk one replaces it, and is told."""
        subject = self._subjects[name]
        id_ = fingerprint(subject.implementation, case, failure).id
        before = self._states.get(id_)
        if before is not None and (state == "raw" or before != "raw"):
            self._store.seen(id_)
            return False
        found = finding(subject.spec, subject.implementation, case, failure, self._against.get(failure.against))
        self._states[id_] = state
        self.known |= {id_}
        self._store.keep(id_, found.document, state, at)
        if state != "raw":
            self._on_finding(found)
            self._reducer.add(found)
        return before is None
