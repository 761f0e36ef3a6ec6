"""The scheduler: which implementation gets the next round. More time goes to those that still yield something new."""

import time
from collections.abc import Collection, Iterable

_MEMORY = 0.8  # weight of earlier rounds in the running mean of what rounds yield
_WORTH = 8.0  # a new process is worth it where its implementation is behind by so many times what it takes to start
_FLOOR = 0.25  # weight of an implementation that yields nothing


class Scheduler:
    """Chooses the implementation with the least time per weight.

    A round under way counts with the time of the last one, or with its own if that is longer, as where it compiles or waits
    for a compiler. A round that needs a new process counts with `_WORTH` times what the last process of that implementation
    took to start: where few processes can stay loaded, workers would otherwise start processes most of the time.

    weight = (`_FLOOR` + running mean of whether a round yielded something new) / 2^crashes. "Something new" is a region of
    the space of cases, or a finding. A crash with a known fingerprint adds one to `crashes`, a round without one subtracts
    one, so that restarts do not dominate the budget.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._spent = dict.fromkeys(names, 0.0)
        self._round = dict.fromkeys(self._spent, 1.0)  # seconds of the last one
        self._begun = {name: list[float]() for name in self._spent}  # monotonic times when the rounds under way began
        self._starting = dict.fromkeys(self._spent, 0.0)
        self._yield = dict.fromkeys(self._spent, 1.0)
        self._crashes = dict.fromkeys(self._spent, 0)

    def turn(self, names: Iterable[str], loaded: Collection[str] = ()) -> str:
        """Return the one of `names` that gets the next round. loaded: those with a process that waits for one."""
        now = time.monotonic()
        return min(names, key=lambda name: self._claim(name, now, loaded=name in loaded))

    def begun(self, name: str) -> None:
        """Record that a round begins."""
        self._begun[name].append(time.monotonic())

    def started(self, name: str, seconds: float) -> None:
        """Record how long a process took to start."""
        self._starting[name] = seconds

    def done(self, name: str, seconds: float, *, novel: bool, crashed: bool = False) -> None:
        """Record a round. novel: it yielded something new. crashed: its process crashed with a known fingerprint."""
        begun, began = self._begun[name], time.monotonic() - seconds
        if begun:
            begun.remove(min(begun, key=lambda one: abs(one - began)))
        self._spent[name] += seconds
        self._round[name] = seconds
        self._yield[name] = _MEMORY * self._yield[name] + (1 - _MEMORY) * novel
        self._crashes[name] = min(8, self._crashes[name] + 1) if crashed else max(0, self._crashes[name] - 1)

    def _claim(self, name: str, now: float, *, loaded: bool) -> float:
        weight = (_FLOOR + self._yield[name]) / 2.0 ** self._crashes[name]
        under_way = sum(max(self._round[name], now - began) for began in self._begun[name])
        return (self._spent[name] + under_way + (0.0 if loaded else _WORTH * self._starting[name])) / weight
