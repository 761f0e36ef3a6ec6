"""Launches of Triton kernels: what a call runs, kept so that later calls skip Triton's look at each argument."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy
import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from mhc.implementation import Refused

# HIP kernels are also specialised on the size of the storage behind a pointer, which a Launch does not know.
REPLAY = torch.version.hip is None and not triton.knobs.runtime.interpret
SCRATCH_ALIGNMENT = 256
_ADDRESSES = 64
"""Descriptions that are kept."""


class _At:
    """A tensor's start, where all that is wanted of a tensor is its address."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def data_ptr(self) -> int:
        return self._pointer


class Tiles:
    """A tensor as the tensor memory accelerator reads and writes it, in tiles of block_shape.

    Triton checks the description once, for the first tensor; later ones must be like it, at a multiple of 16 bytes.

    Args:
        shape, strides: in elements; the last stride is 1, the others are multiples of 16 bytes.
        swizzle: bytes over which the rows of a tile are interleaved in shared memory: 32, 64 or 128.
    """

    def __init__(self, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], swizzle: int) -> None:
        self.shape, self.strides, self.block_shape = list(shape), list(strides), list(block_shape)
        self.swizzle = swizzle
        self._checked: Any = None
        self._described: dict[int, Any] = {}

    def of(self, tensor: Any) -> Any:
        """Return the description of one tensor."""
        if self._checked is None:
            from triton.experimental.gluon import language as gl  # noqa: PLC0415  only where a kernel wants it
            from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: PLC0415

            layout = gl.NVMMASharedLayout(self.swizzle, 8 * tensor.element_size(), len(self.shape))
            checked = TensorDescriptor(tensor, self.shape, self.strides, self.block_shape, layout)
            checked.base = None  # a description must not keep a tensor alive
            self._checked = checked
        return self._with(tensor)

    def at(self, pointer: int) -> Any:
        """Return the description of a tensor like the first, by its address, which an allocator gives out repeatedly."""
        described = self._described.get(pointer)
        if described is None:
            if len(self._described) >= _ADDRESSES:
                self._described.clear()
            described = self._described[pointer] = self._with(_At(pointer))
        return described

    def _with(self, base: Any) -> Any:
        described = copy.copy(self._checked)
        described.base = base
        return described


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `tensors` names the pointers that come first, `constants` is every argument after them.

    overlap: it may start before the launch in front of it has ended (programmatic dependent launch).
    together: all its programs run at the same time, or it does not start (cooperative launch).
    registers: at most this many a thread.
    tiles: for a pointer that goes in as a tensor descriptor, its description.
    """

    kernel: Any
    grid: tuple[int, int, int]
    warps: int
    tensors: tuple[str, ...]
    constants: tuple[Any, ...]
    overlap: bool = False
    together: bool = False
    registers: int | None = None
    tiles: Mapping[str, Tiles] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"num_warps": self.warps}
        if self.overlap:
            options["launch_pdl"] = True
        if self.together:
            options["launch_cooperative_grid"] = True
        if self.registers is not None:
            options["maxnreg"] = self.registers
        return options


@dataclass(frozen=True)
class Program:
    """The launches of one call and its scratch tensors: name to (elements, dtype), one allocation for all of them.

    pinned: a caller fixed a schedule, so that one which the device has no room for is refused and not an error.
    """

    launches: tuple[Launch, ...]
    scratch: Mapping[str, tuple[int, torch.dtype]] = field(default_factory=dict)
    pinned: bool = False
    offsets: dict[str, int] = field(init=False, default_factory=dict)
    compiled: dict[int, list[Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        at = 0
        for name, (elements, dtype) in self.scratch.items():
            self.offsets[name] = at
            at += -(-elements * dtype.itemsize // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        self.offsets[""] = at

    @property
    def scratch_bytes(self) -> int:
        """Return the bytes of device memory beyond inputs and outputs."""
        return self.offsets[""]

    def run(self, tensors: Mapping[str, Tensor]) -> None:
        """Launch on the current stream of the tensors' device, which must be the current device; tensors are `dense`.

        Raises:
            Refused: a pinned schedule needs more shared memory, registers or threads than the device has.
        """
        first = next(iter(tensors.values()))
        scratch = first.new_empty(self.scratch_bytes, dtype=torch.uint8) if self.scratch_bytes else None
        if not REPLAY:
            with numpy.errstate(all="ignore"):  # the interpreter computes in NumPy, which warns of every infinity
                self._first(tensors, scratch)
            return
        pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        device = first.get_device()
        compiled = self.compiled.get(device)
        if compiled is None:
            self.compiled[device] = self._first(tensors, scratch)
            return
        if scratch is not None:
            base = scratch.data_ptr()
            for name in self.scratch:
                pointers[name] = base + self.offsets[name]
        stream = triton.runtime.driver.active.get_current_stream(device)
        for launch, kernel in zip(self.launches, compiled, strict=True):
            kernel.run(
                *launch.grid,
                stream,
                kernel.function,
                kernel.packed_metadata,
                None,
                None,
                None,
                *[
                    launch.tiles[name].at(pointers[name]) if name in launch.tiles else pointers[name]
                    for name in launch.tensors
                ],
                *launch.constants,
            )

    def _first(self, tensors: Mapping[str, Tensor], scratch: Tensor | None) -> list[Any]:
        """Launch through Triton, which compiles; return the compiled kernels."""
        given = dict(tensors)
        for name, (elements, dtype) in self.scratch.items():
            assert scratch is not None
            start = self.offsets[name]
            given[name] = scratch[start : start + elements * dtype.itemsize].view(dtype)
        compiled = []
        for launch in self.launches:
            try:
                arguments = [
                    launch.tiles[name].of(given[name]) if name in launch.tiles else given[name] for name in launch.tensors
                ]
                compiled.append(launch.kernel[launch.grid](*arguments, *launch.constants, **launch.options))
            except OutOfResources as error:
                if self.pinned:
                    raise Refused(f"schedule: {launch.kernel.__name__}: {error}") from error
                raise
        return compiled


@cache
def can_overlap(device: int) -> bool:
    """Return whether the device (-1: the CPU) has programmatic dependent launch."""
    return REPLAY and device >= 0 and torch.cuda.get_device_capability(device) >= (9, 0)
