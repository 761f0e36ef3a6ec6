"""Where the time of checks goes: running implementations and the reference, and the framework's own share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds, added up over checks.

    Attributes:
        running: in implementations.
        reference: in the float64 reference.
        comparing: waiting for implementations that results are compared with.
        checking: in checks as a whole; what is in none of the others is making inputs and judging.
        drawing: in strategies; added by whoever draws.
        runs: how often the implementation was called. on_run: hears of each call before it is made.
    """

    running: float = 0.0
    reference: float = 0.0
    comparing: float = 0.0
    checking: float = 0.0
    drawing: float = 0.0
    runs: int = 0
    on_run: Callable[[int], None] = lambda nth: None

    def run_begins(self) -> None:
        self.runs += 1
        self.on_run(self.runs)

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
        """The share of everything but implementations and reference; 0 of nothing."""
        whole = self.checking + self.drawing
        return 1 - (self.running + self.reference + self.comparing) / whole if whole else 0.0
