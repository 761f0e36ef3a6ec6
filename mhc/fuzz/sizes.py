"""How large the tensors of drawn cases may be, so that a campaign is of many cases and not of a few slow ones."""

from strategies.reach import Reach

_SLOW, QUICK = 1.0, 0.25  # seconds a case
_LEAST, FIRST = 1 << 9, 1 << 11
FULL_EVERY = 8
_REACHES = {3: Reach.STRETCHED, 8: Reach.STRETCHED, 6: Reach.MODEL}  # of ten rounds
_MEMORY = 0.9  # of a case's seconds, how much the next one's mean keeps


class Sizes:
    """The budget of elements of one implementation's rounds: what lets a case take a second; every eighth has all of it.

    It begins with little: where cases are quick that costs few of them, where they are slow much would cost minutes.

    Args:
        most: elements of the largest tensor, where time does not matter.
    """

    def __init__(self, most: int) -> None:
        self.most, self._now = most, min(most, FIRST)
        self._mean: float | None = None
        self._rounds = 0

    def learn(self, seconds: float) -> None:
        """A case took so long. What was compiled for it must not be in it."""
        self._mean = seconds if self._mean is None else _MEMORY * self._mean + (1 - _MEMORY) * seconds

    def next(self) -> int:
        """The budget of the next round."""
        self._rounds += 1
        if self._mean is not None and self._mean > _SLOW and self._now > _LEAST:
            self._now //= 2
        elif self._mean is not None and self._mean < QUICK and self._now < self.most:
            self._now *= 2
        return self.most if self._rounds % FULL_EVERY == 0 else self._now


def reach(number: int) -> Reach:
    """What the `number`-th round of an implementation reaches for, from 1."""
    return _REACHES.get(number % 10, Reach.USUAL)
