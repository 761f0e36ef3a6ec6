"""Launches of Triton kernels: what a call runs, kept so that later calls skip Triton's look at each argument."""

import copy
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import BuiltinFunctionType
from typing import Any

import numpy
import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from mhc.implementation import Refused
from mhc.operators.mhc_pre.tensors import allocator

# HIP kernels are also specialised on the size of the storage behind a pointer, which a Launch does not know.
REPLAY = torch.version.hip is None and not triton.knobs.runtime.interpret
SCRATCH_ALIGNMENT = 256
_TRITON_36 = triton.__version__.split(".")[:2] == ["3", "6"]
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

    def at(self, pointer: int, encode: Callable[[Any], Any]) -> Any:
        """Return the encoded description of a tensor like the first, by its address, which an allocator gives out again."""
        described = self._described.get(pointer)
        if described is None:
            if len(self._described) >= _ADDRESSES:
                self._described.clear()
            described = self._described[pointer] = encode(self._with(_At(pointer)))
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
    tiles: for the position of a pointer that goes in as a tensor descriptor, its description.
    """

    kernel: Any
    grid: tuple[int, int, int]
    warps: int
    tensors: tuple[str, ...]
    constants: tuple[Any, ...]
    overlap: bool = False
    together: bool = False
    registers: int | None = None
    tiles: Mapping[int, Tiles] = field(default_factory=dict)

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


Start = Callable[[int, Mapping[str, int]], None]
"""Starts a compiled launch on a stream, with tensors given by the addresses of their names."""


def _start(launch: Launch, kernel: Any) -> Start:
    """Return what starts a launch again, as directly as Triton lets one."""
    grid, names, constants, tiles = launch.grid, launch.tensors, launch.constants, launch.tiles
    begin, middle, encoders = _direct(kernel, len(tiles))
    if not tiles and len(names) > 1:  # of one name it would be no tuple
        chosen = operator.itemgetter(*names)

        def plain(stream: int, pointers: Mapping[str, int]) -> None:
            begin(*grid, stream, *middle, *chosen(pointers), *constants)

        return plain
    encode = dict(zip(sorted(tiles), encoders, strict=True))

    def described(stream: int, pointers: Mapping[str, int]) -> None:
        arguments: list[Any] = []
        for i, name in enumerate(names):
            if i in tiles:
                arguments.extend(tiles[i].at(pointers[name], encode[i]))
            else:
                arguments.append(pointers[name])
        begin(*grid, stream, *middle, *arguments, *constants)

    return described


def _direct(kernel: Any, tiles: int) -> tuple[Callable[..., None], tuple[Any, ...], list[Callable[[Any], Sequence[Any]]]]:
    """Return what launches a kernel, its arguments between stream and tensors, and what encodes each of its descriptors.

    Triton 3.6: the function in C behind `kernel.run`, which allocates nothing for our kernels and would encode each
    descriptor again. Other releases: `kernel.run` itself.
    """
    run = kernel.run
    metadata = (kernel.packed_metadata, None, None, None)
    if _TRITON_36 and run.global_scratch_size == run.profile_scratch_size == 0:
        middle = (kernel.function, run.launch_cooperative_grid, run.launch_pdl, None, None, *metadata)
        if isinstance(run.launch, BuiltinFunctionType):
            return run.launch, middle, []
        from triton.backends.nvidia.driver import make_tensordesc_arg  # noqa: PLC0415  where there is such a GPU

        inside = inspect.getclosurevars(run.launch).nonlocals
        return inside["launcher"], middle, [partial(make_tensordesc_arg, metadata=one) for one in inside["tensordesc_meta"]]
    return run, (kernel.function, *metadata), [lambda described: (described,)] * tiles


@dataclass(frozen=True)
class Program:
    """The launches of one call and its scratch tensors: name to (elements, dtype), one allocation for all of them.

    pinned: a caller fixed a schedule, so that one which the device has no room for is refused and not an error.
    """

    launches: tuple[Launch, ...]
    scratch: Mapping[str, tuple[int, torch.dtype]] = field(default_factory=dict)
    pinned: bool = False
    offsets: dict[str, int] = field(init=False, default_factory=dict)
    starts: dict[int, list[Start]] = field(init=False, default_factory=dict)

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
        scratch = allocator(first)((self.scratch_bytes,), (1,), torch.uint8) if self.scratch_bytes else None
        if not REPLAY:
            with numpy.errstate(all="ignore"):  # the interpreter computes in NumPy, which warns of every infinity
                self._first(tensors, scratch)
            return
        device = first.get_device()
        starts = self.starts.get(device)
        if starts is None:
            kernels = self._first(tensors, scratch)
            self.starts[device] = [_start(launch, kernel) for launch, kernel in zip(self.launches, kernels, strict=True)]
            return
        pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        if scratch is not None:
            base = scratch.data_ptr()
            for name in self.scratch:
                pointers[name] = base + self.offsets[name]
        stream = triton.runtime.driver.active.get_current_stream(device)
        for start in starts:
            start(stream, pointers)

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
                    launch.tiles[i].of(given[name]) if i in launch.tiles else given[name]
                    for i, name in enumerate(launch.tensors)
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
