"""What Triton programs do in memory: loads, stores, atomic operations, and blocks of descriptors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import INTEGERS, bits_of
from mhc.programs.triton.grammar import FLOATS, Atomic, BlockLoad, BlockStore, Buffer, Descriptor, Load, Pointer, Store
from mhc.programs.triton.values import LARGEST_BLOCK, NUMPY, Array, Described, Pointed, Value, exact, require, value

_FARTHEST = 1 << 20
"""No block of a descriptor begins further away."""
_ATOMIC = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
Env = dict[str, Value]


def atomic_dtypes(op: str) -> tuple[str, ...]:
    """Return the dtypes of an atomic operation."""
    more = {"cas": ("int16", "uint16"), "add": ("float32", "float64", "float16")}
    extremes = ("float32", "float64") if op in {"max", "min"} else ()
    return "int32", "uint32", "int64", "uint64", *more.get(op, ()), *extremes


class Accesses:
    """The memory of a program that runs.

    Attributes:
        memory: the buffers. steps: how many statements ran.
        least_begin: the least offset of a block that was stored by a descriptor.
    """

    def __init__(self, buffers: Iterable[Buffer], given: Mapping[str, Array]) -> None:
        self._buffers = {one.name: one for one in buffers}
        self.memory = {name: array.copy() for name, array in given.items()}
        self._stored = {one.name: np.zeros(one.size, dtype=bool) for one in self._buffers.values()}
        self._atomics: dict[str, tuple[str, bool]] = {}
        self._owners = {one.name: np.full(one.size, -1) for one in self._buffers.values() if one.updated}
        self.least_begin = 0
        self.steps = 0

    def snapshot(self) -> Any:
        """Return what `restore` needs to undo statements, beside `blocks`."""
        copied = ({name: one.copy() for name, one in all_.items()} for all_ in (self.memory, self._stored, self._owners))
        return *copied, dict(self._atomics), self.steps

    def restore(self, snapshot: Any) -> None:
        """Undo what was run since `snapshot`."""
        self.memory, self._stored, self._owners, self._atomics, self.steps = snapshot

    def updated(self) -> dict[str, tuple[Array, Array]]:
        """Return what the buffers that are updated hold, and which block has which element, by name."""
        return {name: (self.memory[name].copy(), owners.copy()) for name, owners in self._owners.items()}

    def go_on(self, updated: Mapping[str, tuple[Array, Array]]) -> None:
        """Let buffers hold what `updated` returned."""
        for name, (elements, owners) in updated.items():
            self.memory[name], self._owners[name] = elements, owners

    def _copy(self) -> None:
        """Let statements write to copies of the buffers."""
        kept = self.memory, self._stored, self._owners
        self.memory, self._stored, self._owners = ({name: one.copy() for name, one in all_.items()} for all_ in kept)

    def _places(self, node: Load | Store | Atomic, env: Env, shape: tuple[int, ...] | None) -> tuple[Array, Array]:
        """Return the indices and the mask, of one shape."""
        buffer = self._buffers.get(node.buffer)
        if buffer is None:
            raise Invalid(f"there is no buffer {node.buffer}")
        index = any_of(env, node.index)
        is_pointer = index.dtype == _pointer_to(node.buffer)
        require(index.dtype in INTEGERS or is_pointer, f"an index of {index.dtype}")
        require(shape is None or _spreads(shape, index.shape), f"indices {index.shape} of a block {shape}")
        mask = np.ones(index.shape, dtype=bool)
        if node.mask is not None:
            masked = get(env, node.mask)
            fits = masked.dtype == "bool" and _spreads(masked.shape, index.shape)
            require(fits, f"a mask {masked.dtype} {masked.shape} of indices {index.shape}")
            mask = np.broadcast_to(masked.data, index.shape)
        places = index.data.astype(np.int64)
        require(index.dtype != "uint64" or (places >= 0).all(), "an index that is too large")
        inside = (places >= 0) & (places < buffer.size)
        require((inside | ~mask).all(), f"{node.buffer} has no such element")
        return np.where(mask, places, 0), np.asarray(mask)

    def _own(self, buffer: Buffer, places: Array, mask: Array, block: int) -> None:
        """Let a block have elements, which no other one has."""
        owners, at = self._owners[buffer.name], places[mask].reshape(-1)
        before = owners[at]
        require(((before == -1) | (before == block)).all(), f"two blocks with one element of {buffer.name}")
        owners[at] = block

    def _load(self, node: Load, env: Env, block: int) -> Value:
        places, mask = self._places(node, env, None)
        buffer = self._buffers[node.buffer]
        require(not buffer.written or buffer.updated, f"{node.buffer} is an output")
        if buffer.updated:
            self._own(buffer, places, mask, block)
        require((node.mask is None) == (node.other is None), "a mask without what is loaded elsewhere")
        require(node.mask is not None or not node.late, "nothing is loaded elsewhere")
        found = self.memory[node.buffer][places].astype(NUMPY[buffer.dtype])
        if node.other is not None:
            other = get(env, node.other)
            fits = other.dtype == buffer.dtype and _spreads(other.shape, places.shape)
            require(fits, "what is loaded elsewhere")
            found = np.where(mask, found, other.data)
        return value(buffer.dtype, found)

    def _target(self, node: Store | Atomic, env: Env) -> tuple[Value, Array, Array]:
        new = get(env, node.value)
        places, mask = self._places(node, env, new.shape)
        buffer = self._buffers[node.buffer]
        require(buffer.written and buffer.dtype == new.dtype, f"a store of {new.dtype} to {node.buffer}")
        return Value(new.dtype, np.broadcast_to(new.data, places.shape)), places, mask

    def _store(self, node: Store, env: Env, block: int) -> None:
        new, places, mask = self._target(node, env)
        if self._buffers[node.buffer].updated:
            self._own(self._buffers[node.buffer], places, mask, block)
        self._put(self._buffers[node.buffer], places, mask, new)

    def _put(self, buffer: Buffer, places: Array, mask: Array, new: Value) -> None:
        """Set elements of an output, which no other value may have been stored in."""
        require(buffer.written and buffer.dtype == new.dtype, f"a store of {new.dtype} to {buffer.name}")
        require(new.shape == places.shape, f"a store of {new.shape} to a block {places.shape}")
        memory, stored = self.memory[buffer.name], self._stored[buffer.name]
        require(not buffer.zeroed, f"{buffer.name} is for atomic operations")
        at, elements = places[mask].reshape(-1), new.data[mask].astype(memory.dtype).reshape(-1)
        before = stored[at] & (not buffer.updated)
        require((memory[at][before] == elements[before]).all(), f"two values for one element of {buffer.name}")
        memory[at] = elements
        require((memory[at] == elements).all(), f"two values for one element of {buffer.name}")
        stored[at] = True

    def _atomic(self, node: Atomic, env: Env, block: int) -> Value:
        """Change elements, and return what was there before."""
        new, places, mask = self._target(node, env)
        dtype, buffer, sets = new.dtype, self._buffers[node.buffer], node.op in {"xchg", "cas"}
        require(buffer.zeroed or buffer.updated, f"{node.buffer} is not for atomic operations")
        require(dtype in atomic_dtypes(node.op), f"atomic_{node.op} of {dtype}")
        kind = node.op, node.name is not None
        require(
            buffer.updated or self._atomics.setdefault(node.buffer, kind) == kind, f"two atomic operations on {node.buffer}"
        )
        memory, at = self.memory[node.buffer], places[mask].reshape(-1)
        if node.name is not None or sets or buffer.updated:
            met = self._stored[node.buffer]
            alone = len(np.unique(at)) == at.size
            alone = alone and (buffer.updated or not met[at].any())
            require(alone, f"what an atomic operation on {node.buffer} finds depends on the order")
            met[at] = True
            if buffer.updated:
                self._own(buffer, places, mask, block)
        require((node.op == "cas") == (node.compare is not None), f"what {node.op} compares with")
        before = memory[places]
        if node.compare is not None:
            compare = get(env, node.compare)
            fits = compare.dtype == dtype and compare.shape == new.shape == get(env, node.value).shape
            require(node.mask is None and fits, "what cas compares with")
            memory[places] = np.where(before == compare.data, new.data, before)
        elif sets:
            memory[at] = new.data[mask].reshape(-1)
        else:
            if dtype in FLOATS:  # in any order
                total = np.abs(memory).astype(np.float64)
                np.add.at(total, at, np.abs(new.data[mask].reshape(-1)))
                exact(total, dtype)
            _ATOMIC[node.op].at(memory, at, new.data[mask].reshape(-1))
        return value(dtype, np.where(mask, before, np.zeros_like(before)).astype(NUMPY[dtype]))

    def _pointed(self, node: Pointer, env: Env) -> Pointed:
        """Return pointers, which may be outside of the buffer."""
        index, start = get(env, node.index), None if node.start is None else any_of(env, node.start)
        require(node.buffer in self._buffers and index.dtype in INTEGERS, f"pointers to {node.buffer}")
        places = index.data.astype(np.int64)
        require(index.dtype != "uint64" or (places >= 0).all(), "an index that is too large")
        if start is not None:
            require(start.dtype == _pointer_to(node.buffer) and index.shape in {(), start.shape}, "a move of a pointer")
            places = places + start.data
        require((np.abs(places) < 1 << 40).all(), "a pointer that is far away")
        return Pointed(_pointer_to(node.buffer), np.asarray(places))

    def _described(self, node: Descriptor, env: Env) -> Described:
        """Return a descriptor that Triton allows: with multiples of 16 bytes, and all of it in the buffer."""
        buffer = self._buffers.get(node.buffer)
        if buffer is None:
            raise Invalid(f"there is no buffer {node.buffer}")
        require(not (buffer.zeroed or buffer.updated or buffer.dtype == "bool"), f"a descriptor of {node.buffer}")
        sizes = _numbers(env, node.sizes)
        aligned = (buffer.offset, node.stride, node.block[-1])
        require(all(one * bits_of(buffer.dtype) % 128 == 0 for one in aligned), "a descriptor of parts of 16 bytes")
        require(all(one & (one - 1) == 0 for one in node.block), f"a descriptor of blocks {node.block}")
        require(math.prod(node.block) <= LARGEST_BLOCK, f"a descriptor of blocks {node.block}")
        strides = (1,) if len(sizes) == 1 else (node.stride, 1)
        require(len(node.block) == len(sizes) and (node.stride == 0) == (len(sizes) == 1), "axes of a descriptor")
        require(min(sizes) > 0 and (len(sizes) == 1 or sizes[1] <= node.stride), f"a descriptor of sizes {sizes}")
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        require(last < buffer.size, f"a descriptor of more than {node.buffer}")
        return Described("descriptor", np.array(sizes), node.buffer, node.block, strides)

    def _block(self, node: BlockLoad | BlockStore, env: Env) -> tuple[Buffer, Array, Array]:
        """Return the buffer, the places of a block in it, and which of them are in the line or in the matrix."""
        one = env.get(node.descriptor)
        if not isinstance(one, Described):
            raise Invalid(f"there is no descriptor {node.descriptor}")
        buffer, begins = self._buffers[one.buffer], _numbers(env, node.offsets)
        require(len(begins) == len(one.block) and max(map(abs, begins)) <= _FARTHEST, f"a block at {begins}")
        require(begins[-1] * bits_of(buffer.dtype) % 128 == 0, "a block that begins within 16 bytes")
        if isinstance(node, BlockStore):
            self.least_begin = min(self.least_begin, *begins)
        lines = np.ix_(*(begin + np.arange(extent) for begin, extent in zip(begins, one.block, strict=True)))
        inside, places = np.ones(one.block, dtype=bool), np.zeros(one.block, dtype=np.int64)
        for line, size, stride in zip(lines, one.data, one.strides, strict=True):
            inside, places = inside & (line >= 0) & (line < size), places + line * stride
        return buffer, np.where(inside, places, 0), inside


def _spreads(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether Triton brings a mask or a value to the shape of indices: it is one element, or has axes of length 1."""
    return not shape or (len(shape) == len(other) and all(one in {1, two} for one, two in zip(shape, other, strict=True)))


def get(env: Mapping[str, Value], name: str) -> Value:
    """Return the value of a name; raises `Invalid`."""
    found = env.get(name)
    if found is None or isinstance(found, (Described, Pointed)):
        raise Invalid(f"there is no value {name}")
    return found


def any_of(env: Mapping[str, Value], name: str) -> Value:
    """Return the value of a name, or a pointer; raises `Invalid`."""
    found = env.get(name)
    return found if isinstance(found, Pointed) else get(env, name)


def _pointer_to(buffer: str) -> str:
    """Return what stands for the dtype of pointers to a buffer."""
    return f"pointer to {buffer}"


def _numbers(env: Mapping[str, Value], names: Sequence[str]) -> list[int]:
    """Return int32 values of one element."""
    found = [get(env, one) for one in names]
    require(all(one.dtype == "int32" and not one.shape for one in found), "a size or an offset that is no int32")
    return [int(one.data) for one in found]
