"""Two streams of a device that is not there: what is launched on them is done when the device is waited for.

As on a GPU whose host is far ahead: at a delay of the current stream the other one does what it can; from then on the
current one goes first. Nothing else orders the two but waiting for one another.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mhc import Implementation
from tests.support.helpers import altered

Work = Callable[[], object]


@dataclass
class _Queue:
    """What is to be done, in order: work, None for a delay, or how much of the other queue must be done first."""

    items: list[Work | int | None] = field(default_factory=list)
    done: int = 0

    def step(self, other: "_Queue", *, through_delays: bool) -> bool:
        """Do the next thing, if that can be done now."""
        if self.done == len(self.items):
            return False
        item = self.items[self.done]
        if item is None and not through_delays:
            return False
        if isinstance(item, int) and other.done < item:
            return False
        if callable(item):
            item()
        self.done += 1
        return True


class Streams:
    """The current stream, as `mhc.stream_order.Stream`, and another one."""

    def __init__(self) -> None:
        self.current, self.side = _Queue(), _Queue()
        self.busy = False

    def entered(self) -> AbstractContextManager[object]:
        @contextmanager
        def late() -> Iterator[None]:
            self.busy = True
            yield
            self.busy = False

        return late()

    def delay(self, seconds: float) -> None:
        assert 0 < seconds < 1
        self.current.items.append(None)

    def copy(self, to: Tensor, of: Tensor) -> None:
        self.current.items.append(lambda: to.copy_(of))

    def fill(self, tensor: Tensor, byte: int) -> None:
        self.current.items.append(lambda: tensor.view(torch.uint8).fill_(byte))

    def clone(self, tensor: Tensor) -> Tensor:
        copy = torch.full_like(tensor, torch.nan)
        self.copy(copy, tensor)
        return copy

    def wait(self) -> None:
        while True:
            while self.current.step(self.side, through_delays=False):
                pass
            if self.side.step(self.current, through_delays=True):
                continue
            if not self.current.step(self.side, through_delays=True):
                break
        assert (self.current.done, self.side.done) == (len(self.current.items), len(self.side.items)), "a deadlock"

    def ordered(self, one: _Queue, other: _Queue) -> None:
        """`one` waits for what is launched on `other` by now."""
        one.items.append(len(other.items))


def launched(
    base: Implementation, streams: Streams, *, waits: bool = True, awaited: bool = True, on_side: bool = True
) -> Implementation:
    """`base`, whose forward is done by one of the streams.

    Args:
        waits: the other stream waits for the current one before. awaited: the current one waits for it behind.
    """

    def edit(out: Any, arguments: tuple[Any, ...]) -> Any:
        results = tuple(torch.full_like(one, torch.nan) for one in out)
        del out

        def work() -> None:
            for result, value in zip(results, base.forward(*arguments, norm_eps=1e-6, hc_eps=1e-6), strict=True):  # type: ignore[misc]
                result.copy_(value)

        if waits:
            streams.ordered(streams.side, streams.current)
        (streams.side if on_side else streams.current).items.append(work)
        if awaited:
            streams.ordered(streams.current, streams.side)
        if not streams.busy:
            streams.wait()
        return results

    return altered(base, forward=edit)
