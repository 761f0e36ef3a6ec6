"""How the implementations of a campaign share its time: more goes where it still yields."""

from collections.abc import Iterable

_MEMORY = 0.8  # of what a round yielded, how much the next one's estimate keeps
_FLOOR = 0.25  # weight of an implementation that yields nothing


class Share:
    """Which implementation is next: the one with the least time for its weight, rounds on their way counted.

    The weight is `_FLOOR` plus a running mean of whether rounds yielded anything (a region that was new, a finding). Each
    crash that is known already halves it, each healthy round undoes that: restarts must not eat the night.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._spent = dict.fromkeys(names, 0.0)
        self._round = dict.fromkeys(self._spent, 1.0)  # seconds of the last one
        self._running = dict.fromkeys(self._spent, 0)
        self._yield = dict.fromkeys(self._spent, 1.0)
        self._crashes = dict.fromkeys(self._spent, 0)

    def next(self, names: Iterable[str]) -> str:
        """The one of `names` whose turn it is."""
        chosen = min(names, key=self._claim)
        self._running[chosen] += 1
        return chosen

    def done(self, name: str, seconds: float, *, fresh: bool, crashed: bool = False) -> None:
        """A round ended after `seconds`; fresh: it yielded something; crashed: on something that was known."""
        self._running[name] -= 1
        self._spent[name] += seconds
        self._round[name] = seconds
        self._yield[name] = _MEMORY * self._yield[name] + (1 - _MEMORY) * fresh
        self._crashes[name] = min(8, self._crashes[name] + 1) if crashed else max(0, self._crashes[name] - 1)

    def _claim(self, name: str) -> float:
        weight = (_FLOOR + self._yield[name]) / 2.0 ** self._crashes[name]
        return (self._spent[name] + self._running[name] * self._round[name]) / weight
