"""The scheduler: which implementation gets the next round. More time goes to those that still yield something new."""

from collections.abc import Iterable

_MEMORY = 0.8  # weight of earlier rounds in the running mean of what rounds yield
_FLOOR = 0.25  # weight of an implementation that yields nothing


class Scheduler:
    """Chooses the implementation with the least time per weight; rounds that are under way count with their expected time.

    weight = (`_FLOOR` + running mean of whether a round yielded something new) / 2^crashes. "Something new" is a region of
    the space of cases, or a finding. A crash with a known fingerprint adds one to `crashes`, a round without one subtracts
    one, so that restarts do not dominate the budget.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._spent = dict.fromkeys(names, 0.0)
        self._round = dict.fromkeys(self._spent, 1.0)  # seconds of the last one
        self._running = dict.fromkeys(self._spent, 0)
        self._yield = dict.fromkeys(self._spent, 1.0)
        self._crashes = dict.fromkeys(self._spent, 0)

    def next(self, names: Iterable[str]) -> str:
        """Return the one of `names` that gets the next round."""
        chosen = min(names, key=self._claim)
        self._running[chosen] += 1
        return chosen

    def done(self, name: str, seconds: float, *, novel: bool, crashed: bool = False) -> None:
        """Record a round. novel: it yielded something new. crashed: its process crashed with a known fingerprint."""
        self._running[name] -= 1
        self._spent[name] += seconds
        self._round[name] = seconds
        self._yield[name] = _MEMORY * self._yield[name] + (1 - _MEMORY) * novel
        self._crashes[name] = min(8, self._crashes[name] + 1) if crashed else max(0, self._crashes[name] - 1)

    def _claim(self, name: str) -> float:
        weight = (_FLOOR + self._yield[name]) / 2.0 ** self._crashes[name]
        return (self._spent[name] + self._running[name] * self._round[name]) / weight
