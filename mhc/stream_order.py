"""A call whose inputs come late on the current stream, and go again as soon as the call has returned.

A kernel that launches on another stream and does not wait, or is not waited for, gives the right result wherever the device
is idle or the caller synchronises. Here the stream is kept busy, and nobody synchronises: what is out of order reads NaN.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mhc.memory import NAN_FILL

_LEAST, _MOST = 1e-3, 0.5  # seconds of a delay
_CYCLES = 2_000_000_000  # of a second at 2 GHz; where the clock is faster the delay, twice the time of a call, is shorter


class Stream(Protocol):
    """A stream of a device: what is asked of it happens later, in order, but for `entered` and `wait`."""

    def entered(self) -> AbstractContextManager[object]:
        """Make it the current one."""

    def delay(self, seconds: float) -> None:
        """Be busy for so long."""

    def copy(self, to: Tensor, of: Tensor) -> None: ...

    def fill(self, tensor: Tensor, byte: int) -> None: ...

    def clone(self, tensor: Tensor) -> Tensor: ...

    def wait(self) -> None:
        """Return when the device has done everything, on whatever stream."""


@dataclass(frozen=True)
class CudaStream:
    """A stream that waits for no other one, not even the default stream."""

    stream: torch.cuda.Stream

    def entered(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self.stream)

    def delay(self, seconds: float) -> None:
        torch.cuda._sleep(int(seconds * _CYCLES))  # type: ignore[no-untyped-call]

    def copy(self, to: Tensor, of: Tensor) -> None:
        to.copy_(of, non_blocking=True)

    def fill(self, tensor: Tensor, byte: int) -> None:
        tensor.view(torch.uint8).fill_(byte)

    def clone(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def wait(self) -> None:
        torch.cuda.synchronize(self.stream.device)


def new_stream(device: torch.device) -> Stream | None:
    """A stream on which work on `device` can be late; None where a call returns when its work is done, as on the CPU."""
    if device.type != "cuda":
        return None
    return CudaStream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Late:
    """A tensor that a kernel is given: a view of `memory`, which will hold what is in `true`."""

    true: Tensor
    memory: Tensor
    view: Tensor


def call_late(
    function: Callable[..., Any], arguments: Sequence[Tensor | None], keywords: dict[str, Any], stream: Stream
) -> tuple[Any, list[Tensor | None]]:
    """What `function` returns, and copies of it that `stream` made as the next thing after the call.

    The function is called twice. First on NaN: so everything is compiled, memory that PyTorch hands out again holds nothing
    that is right, and it is known how long the call takes on the host. Then the stream is busy for longer than that (half a
    second at most), copies the true inputs, does what the call asks of it, copies the results, and overwrites the inputs
    with NaN, but for those that a result is a view of.
    """
    with stream.entered():
        late = [None if argument is None else _late(argument) for argument in arguments]
        given = [None if one is None else one.view for one in late]
        there = [one for one in late if one is not None]
        for one in there:
            stream.fill(one.memory, NAN_FILL)
        stream.wait()
        started = time.perf_counter()
        function(*given, **keywords)
        seconds = time.perf_counter() - started
        stream.wait()
        for one in there:  # a kernel may have written to what it was given
            stream.fill(one.memory, NAN_FILL)
        stream.wait()
        stream.delay(min(_MOST, max(_LEAST, 2 * seconds)))
        for one in there:
            stream.copy(one.memory, one.true)
        returned = function(*given, **keywords)
        values = returned if isinstance(returned, (tuple, list)) else ()
        copies = [stream.clone(value) if isinstance(value, Tensor) else None for value in values]
        kept = {value.untyped_storage().data_ptr() for value in values if isinstance(value, Tensor)}
        for one in there:
            if one.memory.untyped_storage().data_ptr() not in kept:
                stream.fill(one.memory, NAN_FILL)
        stream.wait()
    return returned, copies


def _late(view: Tensor) -> _Late:
    """A copy of the whole allocation of a view, and the same view of it."""
    size = view.untyped_storage().nbytes() // view.element_size()
    true = view.as_strided((size,), (1,), 0)
    memory = true.clone()
    return _Late(true=true, memory=memory, view=memory.as_strided(view.shape, view.stride(), view.storage_offset()))
