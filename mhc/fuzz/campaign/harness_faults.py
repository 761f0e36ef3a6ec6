"""Faults of the harness that did not end the campaign: each is kept once in the store, for reports and exit status."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mhc import drawn_case
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.worker.protocol import Fault

_MOST = 100
"""Most different faults that are kept."""


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """A fault.

    Attributes:
        implementation: the one that was checked; empty where none was.
        case: JSON of the case in hand, if there was one. seen: how often. at: campaign time of the first.
    """

    implementation: str
    message: str
    trace: str = ""
    case: str | None = None
    seen: int = 1
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.implementation}: {self.message}" if self.implementation else self.message

    @property
    def line(self) -> str:
        """Return the fault with its case and its count, on one line."""
        case = "" if self.case is None else f"; {drawn_case.name_of(self.case)}"
        return f"{self}{case}" + (f"; {self.seen} times" if self.seen > 1 else "")

    @property
    def whole(self) -> str:
        """Return the fault with the case's JSON and its traceback."""
        return "\n".join(one for one in (self.line, self.case, self.trace) if one)


class HarnessFaults:
    """The faults of a run, those of earlier legs among them.

    Args:
        on_fault: called with each new fault.
    """

    def __init__(self, store: Store, on_fault: Callable[[FaultRecord], None] = lambda fault: None) -> None:
        self._store, self._on_fault = store, on_fault
        self._known = {(one.implementation, one.message): one for one in read_faults(store.meta())}

    def __len__(self) -> int:
        return len(self._known)

    def record(self, implementation: str, fault: Fault, at: float, case: str | None = None) -> None:
        """Keep a fault, or count it once more."""
        key = implementation, fault.message
        before = self._known.get(key)
        if before is None and len(self._known) >= _MOST:
            return
        now = FaultRecord(implementation=implementation, message=fault.message, trace=fault.trace, case=case, at=at)
        self._known[key] = now if before is None else replace(before, seen=before.seen + 1)
        self._store.set_meta(faults=[asdict(one) for one in self._known.values()])
        if before is None:
            self._on_fault(now)


def read_faults(meta: Mapping[str, Any]) -> list[FaultRecord]:
    """Return the faults in a store's meta."""
    return [FaultRecord(**one) for one in meta.get("faults", ())]
