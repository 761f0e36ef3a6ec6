"""The size budget: how many elements the tensors of a round may have, and which rounds draw far sizes."""

from mhc.strategies.reach import Reach

QUICK = 0.25
"""Seconds. Where a case takes less, the next ones may be larger."""
FULL_EVERY = 8
ASKED_EVERY = 3
"""Every so many rounds at model sizes use all elements of `--max-elements`, whatever a case takes."""
FIRST = 1 << 11
"""Elements of the largest tensor in the first round."""
CASES = {Reach.STRETCHED: 5, Reach.MODEL: 5}
"""Most cases of a round with far sizes; fewer where they are slow. Sizes grow from round to round."""
PATIENCE = 0.1
"""Share of the time so far that a case may take, as the slowest one foretells it, where that is more than `slow` seconds."""
LARGEST = {"cpu": 1 << 24, "cuda": 1 << 25}
"""Elements of x at model sizes, by device, without `--max-elements`; a parameter may have twice as many."""
OWN = 900 << 20
"""Bytes of memory of a worker, whatever its cases: 400 MiB after small cases, and freed tensors of less than 32 MiB, which
the C allocator keeps for later cases. How many it keeps differs from run to run: with x of 2^20 elements, workers were
seen to need 0.5 to 1.6 GB."""
PER_ELEMENT = 800
"""Bytes of the device's memory that judging a case takes, for each element of `--max-elements`: 540 were seen on the CPU,
and more than 400 on a GPU."""
FORESEEN = 16.0
"""Seconds that the first case of a far reach may be expected to take, if its time grows as the number of elements does. In
Triton's interpreter it grows slower, up to ten times: at once it computes an operation of many programs."""
_STRETCHED = {"cpu": 1 << 20, "cuda": 1 << 22}
_SHARES = {"cpu": {Reach.STRETCHED: 0.2, Reach.MODEL: 0.2}, "cuda": {Reach.STRETCHED: 0.2, Reach.MODEL: 0.25}}
"""Share of an implementation's time, by device. On a GPU a large case costs little more than a small one. What small cases
show, the first hundred show; so in two minutes the time is better spent on large ones."""
_WEIGHT = 0.9  # weight of earlier cases in the running mean of seconds


_ROUND_SECONDS = 8.0
_FEWEST = 3  # the first case of a round is the simplest there is


def room(memory: float) -> int:
    """Return the elements of x at model sizes that a worker can judge within `memory` bytes of the device, at least 2^14."""
    return 1 << 14 if memory < OWN else max(1 << 14, int(min(memory - OWN, 1 << 60) / PER_ELEMENT))


class _Growing:
    """A number of elements that grows while cases are quick and halves while they are slow.

    It begins small: quick cases soon reach the limit, and slow ones at the limit would take minutes. It does not grow where
    the slowest case so far, times the factor, would take too long: it would end a short campaign.

    Args:
        factor: of growth, each time. quick, slow: seconds of a case.
    """

    def __init__(self, first: int, least: int, most: int, *, factor: int, quick: float, slow: float) -> None:
        self.most, self._least, self._now = most, min(least, most), min(first, most)
        self._factor, self._quick, self._slow = factor, quick, slow
        self._mean: float | None = None
        self._slowest = 0.0  # seconds of a case since the number changed

    @property
    def mean(self) -> float:
        """Return the running mean of the seconds of a case."""
        return self._quick if self._mean is None else self._mean

    @property
    def per_element(self) -> float:
        """Return the seconds of a case for each of the elements that it may have; 0 where no case is known."""
        return 0.0 if self._mean is None else self._mean / self._now

    def learn(self, seconds: float) -> None:
        self._mean = seconds if self._mean is None else _WEIGHT * self._mean + (1 - _WEIGHT) * seconds
        self._slowest = max(self._slowest, seconds)

    def begin(self, per_element: float) -> None:
        """Begin with fewer elements where these would take more than `FORESEEN` seconds, if no case is known yet."""
        while self._mean is None and self._now > self._least and self._now * per_element > FORESEEN:
            self._now = max(self._least, self._now // self._factor)

    def next(self, allowed: float = 0.0) -> int:
        """Return the number of elements. allowed: seconds that a case may take, if it is more than `slow`."""
        before, soon = self._now, self._slowest * self._factor <= max(self._slow, allowed)
        if self._mean is not None and self._mean > self._slow and self._now > self._least:
            self._now //= 2
        elif self._mean is not None and self._mean < self._quick and soon:
            self._now = min(self.most, self._now * self._factor)
        if self._now != before:
            self._slowest = 0.0
        return self._now


class SizeBudget:
    """Chooses for each round of an implementation how far sizes reach and how many elements the largest tensor may have.

    Each far reach has its share of the time (`_SHARES`). In usual rounds the elements grow until a case takes about a
    second; every eighth of them uses all elements.

    Args:
        most: elements in usual rounds. largest: elements at model sizes; None: the device's `LARGEST`, or fewer where a
            worker has no room for them in its `memory` on the device, in bytes.
    """

    def __init__(self, most: int, largest: int | None = None, device: str = "cpu", memory: float = float("inf")) -> None:
        self.most = most
        most_far = largest if largest is not None else min(LARGEST[device], room(memory))
        self._usual = _Growing(FIRST, 1 << 9, most, factor=2, quick=QUICK, slow=1.0)
        stretched = min(_STRETCHED[device], most_far)
        self._far = {
            Reach.STRETCHED: _Growing(1 << 13, 1 << 11, stretched, factor=4, quick=1.0, slow=4.0),
            Reach.MODEL: _Growing(1 << 18, 1 << 14, most_far, factor=4, quick=1.0, slow=4.0),
        }
        self._shares = _SHARES[device]
        self._spent = dict.fromkeys(Reach, 0.0)
        self._running = dict.fromkeys(Reach, 0)  # rounds that were given and have not ended
        self._rounds = self._model_rounds = 0
        self._asked = largest

    def learn(self, seconds: float, reach: Reach = Reach.USUAL, *, running: float = 0.0, compiled: bool = False) -> None:
        """Record the seconds of a case, of which `running` in the implementation.

        Where something was compiled, `running` says nothing about the number of elements. A kernel that is compiled for its
        sizes compiles in most far cases; there only the rest, which grows with the elements, is counted.
        """
        self._spent[reach] += seconds
        if not compiled:
            self._far.get(reach, self._usual).learn(seconds)
        elif reach in self._far:
            self._far[reach].learn(seconds - running)

    def next(self) -> tuple[Reach, int]:
        """Return the reach and the elements of the next round. Call `ended` when that round ends."""
        whole = sum(self._spent.values())
        behind = {reach: share * whole - self._claimed(reach) for reach, share in self._shares.items()}
        reach = max(behind, key=lambda one: behind[one])
        if behind[reach] > 0:
            self._running[reach] += 1
            self._far[reach].begin(self._usual.per_element)
            elements = self._far[reach].next(PATIENCE * whole)
            self._model_rounds += reach is Reach.MODEL
            if reach is Reach.MODEL and self._asked is not None and self._model_rounds % ASKED_EVERY == 0:
                elements = self._asked
            return reach, elements
        self._rounds += 1
        elements = self._usual.next(PATIENCE * whole)
        return Reach.USUAL, self.most if self._rounds % FULL_EVERY == 0 else elements

    def count(self, reach: Reach) -> int:
        """Return the number of cases of a far round: as many as take about `_ROUND_SECONDS`."""
        return min(CASES[reach], max(_FEWEST, int(_ROUND_SECONDS / max(self._far[reach].mean, 1e-9))))

    def goes_on(self, reach: Reach) -> None:
        """Record that the rest of a round, whose process ended, is handed out again."""
        self._running[reach] += 1

    def ended(self, reach: Reach) -> None:
        """Record that a round or its process ended."""
        self._running[reach] = max(0, self._running[reach] - 1)

    def _claimed(self, reach: Reach) -> float:
        """Return the seconds spent, with those that rounds under way are expected to take."""
        return self._spent[reach] + self._running[reach] * self.count(reach) * self._far[reach].mean
