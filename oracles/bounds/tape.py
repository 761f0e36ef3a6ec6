"""The operations of a reading, which can be repeated on numbers of another class without the function and without autograd.

A function whose comparisons no rounding decides does the same operations in each reading. Running its code again, PyTorch's
dispatch and autograd take as long as the rules themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mhc.oracles.bounds import made_nan, place

_CONTAINERS = (tuple, list, dict)
"""What arguments are in; a `Slot` is one."""


class Slot(NamedTuple):
    """What stands for the result of an operation: its place among the results of a tape."""

    at: int


class _Step(NamedTuple):
    """An operation with its arguments, or what makes a tensor of a class of numbers; `rule` is the former's, of numbers."""

    apply: Callable[..., Any]
    args: Sequence[Any]
    makes: bool
    rule: Callable[..., Any] | None
    results: Any
    place: Any


class Tape:
    """What a reading did, operation by operation.

    Attributes:
        whole: all of it was recorded; else it must be read again from the function.
        forward: how many operations are the forward's.
        scalars: the errors of numbers that the function computed from scalars.
        largest: elements of the largest result. device: where results are.
        opens: whether comparisons of NaN are open in the forward, and in the backward.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was recorded."""
        self.whole = True
        self.forward = 0
        self.scalars: dict[float, float] = {}
        self.largest = 0
        self.device = torch.device("cpu")
        self.opens = False, False
        self._steps: list[_Step] = []
        self._plain: list[tuple[Tensor, int]] = []
        self._count = 0
        self._last: list[list[int]] = []
        self._ends: Any = ()

    def add(
        self,
        apply: Callable[..., Any],
        args: Sequence[Any],
        result: Any,
        *,
        makes: bool = False,
        rule: Callable[..., Any] | None = None,
    ) -> None:
        """Record an operation that has run.

        makes: it takes a class of numbers; `args` are plain tensors that it makes its result of.
        rule: does the same on numbers in place of the tensors that carry them; None for what writes into a tensor.
        """
        self._steps.append(_Step(apply, self._slots(args), makes, rule, self._results(result), place.found))

    def end_forward(self) -> None:
        """Record that what follows is the backward's."""
        self.forward = len(self._steps)

    def end(self, *results: Any) -> None:
        """Record what the reading returned. Results that nothing needs later are forgotten when it is repeated."""
        self._ends = self._slots(results)
        last: dict[int, int] = {}
        for at, step in enumerate(self._steps):
            last.update(dict.fromkeys(_places((step.results, step.args)), at))
        kept = set(_places(self._ends))
        self._last = [[] for _ in self._steps]
        for slot, at in last.items():
            if slot not in kept:
                self._last[at].append(slot)

    @property
    def repeatable(self) -> bool:
        """Whether it can be repeated: all was recorded, and no plain tensor that went in was written into since."""
        return self.whole and all(one._version == version for one, version in self._plain)

    def repeat(self, number: type[Any]) -> Any:
        """Do the operations again on numbers of a class, and return what `end` was given.

        Where nothing was written into a tensor, these are numbers, and no tensors that carry them.
        """
        values: dict[int, Any] = {}
        alone = all(step.makes or step.rule is not None for step in self._steps)
        with torch.no_grad(), place.known() as at:
            with number.forward(), made_nan.opened(self.opens[0]):
                self._repeat(number, values, slice(None, self.forward), at, alone=alone)
            with made_nan.opened(self.opens[1]):
                self._repeat(number, values, slice(self.forward, None), at, alone=alone)
        return _filled(self._ends, values)

    def _repeat(
        self, number: type[Any], values: dict[int, Any], part: slice, at: Callable[[Any], None], *, alone: bool
    ) -> None:
        """Do some operations again; alone: on numbers without tensors that carry them."""
        for step, last in zip(self._steps[part], self._last[part], strict=True):
            at(step.place)
            if step.makes:
                result = step.apply(number)
                result = result.number if alone else result
            else:
                function = step.rule if alone else step.apply
                result = function(*_filled(step.args, values))  # type: ignore[misc]  # alone, each has a rule
            _put(step.results, result, values)
            for slot in last:
                del values[slot]

    def _slots(self, given: Any) -> Any:
        """Return arguments with slots for what operations made."""
        if isinstance(given, Tensor):
            slot = getattr(given, "slot", None)
            if slot is not None and slot[0] is self:
                return slot[1]
            if type(given) is Tensor:
                self._plain.append((given, given._version))
            else:
                self.whole = False
        elif isinstance(given, (list, tuple)):
            return type(given)(map(self._slots, given))
        elif isinstance(given, dict):
            return {name: self._slots(one) for name, one in given.items()}
        return given

    def _results(self, made: Any) -> Any:
        """Return the slots of results: None for what holds no number."""
        if isinstance(made, (list, tuple)):
            return [self._results(one) for one in made]
        if not hasattr(made, "slot"):
            return None
        if made.slot is None or made.slot[0] is not self:
            made.slot = self, Slot(self._count)
            self._count += 1
            self.largest = max(self.largest, made.numel())
            self.device = made.device
        return made.slot[1]


recording: Tape | None = None
"""The tape of the reading under way."""


@contextmanager
def recorded(tape: Tape | None) -> Iterator[None]:
    """Record the operations of the block."""
    global recording  # noqa: PLW0603
    recording = tape
    try:
        yield
    finally:
        recording = None


def made(make: Callable[[type[Any]], Any], number: type[Any], *of: Any) -> Any:
    """Make a tensor that carries a number of a class, `of` plain ones, record how, and return it."""
    result = make(number)
    if recording is not None:
        recording.add(make, of, result, makes=True)
    return result


def _places(slots: Any) -> list[int]:
    if isinstance(slots, Slot):
        return [slots.at]
    if isinstance(slots, dict):
        return _places([*slots.values()])
    return [at for one in slots for at in _places(one)] if isinstance(slots, (list, tuple)) else []


def _filled(slots: Any, values: Mapping[int, Any]) -> Any:
    """Return arguments with results in place of their slots."""
    if type(slots) is Slot:
        return values[slots.at]
    if isinstance(slots, (list, tuple)):
        return type(slots)([_filled(one, values) if isinstance(one, _CONTAINERS) else one for one in slots])
    return {name: _filled(one, values) for name, one in slots.items()} if isinstance(slots, dict) else slots


def _put(slots: Any, result: Any, values: dict[int, Any]) -> None:
    """Keep results where their slots say."""
    if isinstance(slots, Slot):
        values[slots.at] = result
    elif isinstance(slots, list):
        for slot, one in zip(slots, result, strict=True):
            _put(slot, one, values)
