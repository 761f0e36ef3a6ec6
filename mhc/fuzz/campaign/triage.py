"""Triage: the findings of a campaign, each bug once, whichever worker met it."""

from collections.abc import Callable, Collection, Sequence

from mhc.fuzz.campaign.store import Store
from mhc.fuzz.findings.finding import Finding, from_document
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.programs.drawn_program import DrawnProgram


class Triage:
    """The findings of a campaign by the id of their fingerprint, those of earlier legs among them.

    Args:
        names: implementations of the run; findings of others are kept, and not minimised.
        known_issues: findings that are not kept, since they are known.
        on_finding: called with each finding once; on_minimal: with each that comes back from the minimiser.
        on_other: called with each finding that the minimiser has seen to be another one, and with that one.

    Attributes:
        waiting: findings to minimise, the oldest first.
    """

    def __init__(
        self,
        store: Store,
        names: Collection[str],
        known_issues: Sequence[KnownIssue],
        on_finding: Callable[[Finding], None],
        on_minimal: Callable[[Finding], None],
        on_other: Callable[[Finding, Finding], None],
    ) -> None:
        self._store, self._on_finding, self._on_minimal, self._on_other = store, on_finding, on_minimal, on_other
        rows = store.findings()
        self._found = set(rows)
        self._known = {entry.fingerprint.id for entry in known_issues}
        read = [(row["state"], from_document(row["document"])) for row in rows.values()]
        self.waiting = [one for state, one in read if state != "minimal" and one.fingerprint.implementation in names]
        self._programs = {one.fingerprint.id: one for _, one in read if _is_minimal_program(one)}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, findings: Sequence[Finding], at: float) -> bool:
        """Keep the first finding of a case that is new, and count the ones before it. Return whether there is a new one.

        The others of the case may follow from the first; where they do not, another case shows them.

        Args:
            at: campaign time.
        """
        for found in findings:
            id_ = found.fingerprint.id
            if id_ not in self._found and id_ not in self._known:
                self._found.add(id_)
                self._store.keep(id_, found.document, "raw", at)
                self.waiting.append(found)
                if _is_minimal_program(found):
                    self._programs[id_] = found
                self._on_finding(found)
                return True
            self._store.seen(id_)
        return False

    def programs(self, name: str) -> tuple[Finding, ...]:
        """Return the findings of a compiler on minimal programs."""
        return tuple(found for found in self._programs.values() if found.fingerprint.implementation == name)

    def minimal(self, drawn: Finding, found: Finding, at: float) -> None:
        """Keep a finding as it came back from the minimiser: the one that was drawn, or another one in its place.

        Where it is another one, the one that was drawn is not kept again in this leg.
        """
        if found.fingerprint == drawn.fingerprint:
            self._store.keep(found.fingerprint.id, found.document, "minimal", at)
            if _is_minimal_program(found):
                self._programs[found.fingerprint.id] = found
            self._on_minimal(found)
            return
        gone = drawn.fingerprint.id
        self._store.forget(gone)
        self._found.discard(gone)
        self._known.add(gone)
        self._on_other(drawn, found)
        if self.add((found,), at) and found.reduction is not None:
            self.waiting.remove(found)
            self.minimal(found, found, at)


def _is_minimal_program(found: Finding) -> bool:
    return isinstance(found.case, DrawnProgram) and found.reduction is not None
