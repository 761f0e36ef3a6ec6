"""Launches of Triton kernels: what a call runs, kept so that later calls skip Triton's look at each argument."""

import copy
import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
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


Start = Callable[[int, Sequence[int]], None]
"""Starts the compiled launches of a program on a stream, from the addresses of its tensors, scratch last."""


def _start(launches: Sequence[Launch], kernels: Sequence[Any], names: Sequence[str]) -> Start:
    """Return what starts launches again, as directly as Triton lets one; for one thread, which has a context."""
    runs = [kernel.run for kernel in kernels]
    if _TRITON_36 and all(run.global_scratch_size == run.profile_scratch_size == 0 and run.num_ctas == 1 for run in runs):
        return _Driven(launches, kernels, names)
    places = [[names.index(name) for name in launch.tensors] for launch in launches]

    def through_triton(stream: int, pointers: Sequence[int]) -> None:
        for launch, kernel, places_of in zip(launches, kernels, places, strict=True):
            arguments = [
                launch.tiles[i].at(pointers[at], _as_it_is) if i in launch.tiles else pointers[at]
                for i, at in enumerate(places_of)
            ]
            metadata = (kernel.packed_metadata, None, None, None)
            kernel.run(*launch.grid, stream, kernel.function, *metadata, *arguments, *launch.constants)

    return through_triton


def _as_it_is(described: Any) -> Any:
    return described


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, with a value that is a number."""

    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_int * 17))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_COOPERATIVE, _OVERLAP = 2, 6
"""CU_LAUNCH_ATTRIBUTE_COOPERATIVE and CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""

_MAP = 128
"""Bytes of a CUtensorMap, which end Triton's object of one."""

_NUMBERS: Mapping[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip
"""Of a kernel's parameters by Triton's name of the type."""


@cache
def _cuda() -> Any:
    """Return the driver. Its calls release Python's lock: a launch waits where the queue of the device is full."""
    return ctypes.CDLL("libcuda.so.1")


class _Driven:
    """Launches by the driver itself, whose parameters lie in one place that a call fills at once. One thread's.

    Triton 3.6: what its launcher in C does for kernels that want no scratch of Triton's.
    """

    def __init__(self, launches: Sequence[Launch], kernels: Sequence[Any], names: Sequence[str]) -> None:
        layout = struct.Struct(f"={len(names)}Q" + f"{_MAP}s" * sum(len(launch.tiles) for launch in launches))
        self._room = ctypes.create_string_buffer(layout.size)
        self._fill, self._launch, self._stream = layout.pack_into, _cuda().cuLaunchKernelEx, 0
        self._maps: list[tuple[int, Callable[..., bytes], Any]] = []
        self._configs: list[_Config] = []
        self._steps: list[tuple[Any, ctypes.c_void_p, Any]] = []
        self._kept: list[Any] = []
        where = ctypes.addressof(self._room)
        after = iter(range(where + 8 * len(names), where + layout.size, _MAP))
        for launch, kernel in zip(launches, kernels, strict=True):
            metadata = kernel.metadata
            described = iter(getattr(metadata, "tensordesc_meta", None) or ())
            parameters: list[int] = []
            given = (*launch.tensors, *launch.constants)
            for i, (kind, value) in enumerate(zip(kernel.src.signature.values(), given, strict=True)):
                if i in launch.tiles:
                    tiles = launch.tiles[i]
                    self._maps.append((names.index(value), tiles.at, partial(_map, metadata=next(described))))
                    parameters.append(next(after))
                    parameters += (self._number("i32", size) for size in tiles.shape)
                    parameters += (self._number("i64", stride) for stride in tiles.strides)
                elif kind[0] == "*":
                    parameters.append(where + 8 * names.index(value))
                elif kind != "constexpr":
                    parameters.append(self._number(kind, value))
            parameters += (self._number("u64", 0) for _ in range(2))  # Triton's scratch, which there is none of
            marks = [mark for mark, on in ((_OVERLAP, launch.overlap), (_COOPERATIVE, launch.together)) if on]
            attributes = (_Attribute * len(marks))()
            for attribute, mark in zip(attributes, marks, strict=True):
                attribute.id, attribute.value[1] = mark, 1
            threads = 32 * metadata.num_warps
            config = _Config(launch.grid, (threads, 1, 1), metadata.shared, None, attributes, len(marks))
            self._configs.append(config)
            self._steps.append(
                (ctypes.byref(config), ctypes.c_void_p(kernel.function), (ctypes.c_void_p * len(parameters))(*parameters))
            )
            self._kept.append(attributes)

    def _number(self, kind: str, value: float) -> int:
        """Return the address of a number of one of Triton's types."""
        number = _NUMBERS[kind](value)
        self._kept.append(number)
        return ctypes.addressof(number)

    def __call__(self, stream: int, pointers: Sequence[int]) -> None:
        if stream != self._stream:
            for config in self._configs:
                config.stream = stream
            self._stream = stream
        self._fill(self._room, 0, *pointers, *[at(pointers[i], encode) for i, at, encode in self._maps])
        launch = self._launch
        for config, function, parameters in self._steps:
            error = launch(config, function, parameters, None)
            if error:
                _fail(error)


def _map(described: Any, metadata: Any) -> bytes:
    """Return the CUtensorMap of a description."""
    from triton.backends.nvidia.driver import make_tensordesc_arg  # noqa: PLC0415  where there is such a GPU

    encoded = make_tensordesc_arg(described, metadata)[0]
    return ctypes.string_at(id(encoded) + type(encoded).__basicsize__ - _MAP, _MAP)


def _fail(error: int) -> None:
    """Raise what Triton raises for an error of the driver."""
    text = ctypes.c_char_p()
    _cuda().cuGetErrorString(error, ctypes.byref(text))
    raise RuntimeError(f"Triton Error [CUDA]: {(text.value or b'unknown error').decode()}")


class _Starts(threading.local):
    """What starts a program again, by device; each thread has its own."""

    def __init__(self) -> None:
        self.of: dict[int, Start] = {}


@dataclass(frozen=True)
class Program:
    """The launches of one call and its scratch tensors: name to (elements, dtype), one allocation for all of them.

    pinned: a caller fixed a schedule, so that one which the device has no room for is refused and not an error.
    """

    launches: tuple[Launch, ...]
    scratch: Mapping[str, tuple[int, torch.dtype]] = field(default_factory=dict)
    pinned: bool = False
    offsets: dict[str, int] = field(init=False, default_factory=dict)
    starts: _Starts = field(init=False, default_factory=_Starts)

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

        Their order is the same in every call.

        Raises:
            Refused: a pinned schedule needs more shared memory, registers or threads than the device has.
        """
        first = next(iter(tensors.values()))
        size = self.offsets[""]
        scratch = allocator(first)((size,), (1,), torch.uint8) if size else None
        if not REPLAY:
            with numpy.errstate(all="ignore"):  # the interpreter computes in NumPy, which warns of every infinity
                self._first(tensors, scratch)
            return
        device = first.get_device()
        start = self.starts.of.get(device)
        if start is None:  # in each thread: Triton gives it a context
            names = (*tensors, *self.scratch)
            self.starts.of[device] = _start(self.launches, self._first(tensors, scratch), names)
            return
        pointers = [tensor.data_ptr() for tensor in tensors.values()]
        if scratch is not None:
            base = scratch.data_ptr()
            pointers += [base + self.offsets[name] for name in self.scratch]
        start(triton.runtime.driver.active.get_current_stream(device), pointers)

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
