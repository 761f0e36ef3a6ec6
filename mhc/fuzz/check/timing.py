"""The time of checks: in implementations, in the reference, and in the framework itself."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Timing:
    """Sums of seconds over checks.

    Attributes:
        running: in implementations.
        reference: in the float64 reference.
        comparing: waiting for peers.
        checking: in checks as a whole, including making inputs and judging.
        drawing: in strategies; the caller adds it.
        runs: calls of the implementation. on_run: called before each of them with its number. on_ran: after each.
    """

    running: float = 0.0
    reference: float = 0.0
    comparing: float = 0.0
    checking: float = 0.0
    drawing: float = 0.0
    runs: int = 0
    on_run: Callable[[int], None] = lambda nth: None
    on_ran: Callable[[], None] = lambda: None

    def run_begins(self) -> None:
        self.runs += 1
        self.on_run(self.runs)

    def run_ended(self, seconds: float) -> None:
        self.running += seconds
        self.on_ran()

    @contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """Add the time of the block to an attribute."""
        start = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.perf_counter() - start)

    @property
    def framework(self) -> float:
        """Return the share of time in neither implementations nor reference nor peers; 0 if no time was spent."""
        whole = self.checking + self.drawing
        return 1 - (self.running + self.reference + self.comparing) / whole if whole else 0.0
