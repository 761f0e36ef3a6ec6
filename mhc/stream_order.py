"""A call whose inputs are written late on the current stream and overwritten right after the call returns.

A kernel that uses another stream without proper waits still gives the right result where the device is idle or the caller
synchronises. Here the stream is kept busy without any synchronisation, so that unordered work reads NaN, or of integers the
least one.
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
_CYCLES = 2_000_000_000  # per second at 2 GHz; a faster clock shortens the delay


class Stream(Protocol):
    """A stream of a device. All methods but `entered` and `wait` enqueue work that runs later, in order."""

    def entered(self) -> AbstractContextManager[object]:
        """Return a context in which it is the current stream."""

    def delay(self, seconds: float) -> None:
        """Keep the stream busy for this long."""

    def copy(self, to: Tensor, of: Tensor) -> None: ...

    def fill(self, tensor: Tensor, byte: int) -> None: ...

    def clone(self, tensor: Tensor) -> Tensor: ...

    def wait(self) -> None:
        """Return when the device has finished all work on all streams."""


@dataclass(frozen=True)
class CudaStream:
    """A stream that waits for no other stream, not even the default stream."""

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
    """Return a new stream of `device`; None where calls return after their work is done, as on the CPU."""
    if device.type != "cuda":
        return None
    return CudaStream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Late:
    """An argument of a kernel: `view`, a view of `memory`, to which `true` is copied late.

    wrong: what is there before and after that; None for NaN. Integers and booleans all have their least value, which is
    within their range: a kernel may use them as indices.
    """

    true: Tensor
    memory: Tensor
    view: Tensor
    wrong: Tensor | None

    def spoil(self, stream: Stream) -> None:
        """Overwrite the memory."""
        if self.wrong is None:
            stream.fill(self.memory, NAN_FILL)
        else:
            stream.copy(self.memory, self.wrong)


def call_late(
    function: Callable[..., Any], arguments: Sequence[Tensor | None], keywords: dict[str, Any], stream: Stream
) -> tuple[Any, list[Tensor | None]]:
    """Return the results of `function`, and copies of them that `stream` made right after the call.

    The function is called twice. The first call, on wrong inputs, compiles everything, leaves no right values in memory that
    PyTorch reuses, and shows how long the call takes on the host. Then the stream is kept busy for twice that time (at most
    half a second), copies the true inputs, runs the second call, copies its results, and overwrites the inputs again, except
    those whose memory a result shares.
    """
    with stream.entered():
        late = [None if argument is None else _late(argument) for argument in arguments]
        given = [None if one is None else one.view for one in late]
        there = [one for one in late if one is not None]
        for one in there:
            one.spoil(stream)
        stream.wait()
        started = time.perf_counter()
        function(*given, **keywords)
        seconds = time.perf_counter() - started
        stream.wait()
        for one in there:  # a kernel may have written to its arguments
            one.spoil(stream)
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
                one.spoil(stream)
        stream.wait()
    return returned, copies


def _late(view: Tensor) -> _Late:
    """Return a copy of the whole allocation of a view, and the same view of the copy."""
    size = view.untyped_storage().nbytes() // view.element_size()
    true = view.as_strided((size,), (1,), 0)
    memory = true.clone()
    wrong = None if view.is_floating_point() or view.numel() == 0 else torch.full_like(true, view.min().item())
    seen = memory.as_strided(view.shape, view.stride(), view.storage_offset())
    return _Late(true=true, memory=memory, view=seen, wrong=wrong)
