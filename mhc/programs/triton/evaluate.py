"""The evaluator: what a Triton program computes, bit for bit, and whether it is one whose result Triton must keep.

Nothing here comes from Triton. What operations give is in `mhc.programs.triton.operations`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import INTEGERS, bits_of, range_of
from mhc.programs.triton.functions import with_number
from mhc.programs.triton.grammar import (
    BINARY,
    COMPARISONS,
    FLOATS,
    REDUCTIONS,
    SCANS,
    Atomic,
    BlockLoad,
    BlockStore,
    Buffer,
    Call,
    Carry,
    Descriptor,
    For,
    Function,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.values import LARGEST_BLOCK, MEMORY, NUMPY, Array, Described, Value, from_raw, require, value

POISON = 0x5A
"""The byte of which all elements of an output consist before the program runs."""
STEPS = 4000
"""A program has no more, in all blocks together."""
_ITERATIONS = 64
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
_Env = dict[str, Value]


def inputs_of(program: TritonProgram) -> dict[str, Array]:
    """Return the elements of the buffers before the program runs, by name: inputs by the seed, outputs poisoned."""
    return {one.name: _before(one, [program.seed, number]) for number, one in enumerate(program.buffers)}


def _before(one: Buffer, seed: Sequence[int]) -> Array:
    if one.zeroed:
        return np.zeros(one.size, dtype=MEMORY[one.dtype])
    if one.written and not one.updated:
        return from_raw(np.full(one.size * bits_of(one.dtype) // 8, POISON, dtype=np.uint8), one.dtype)
    require(one.least <= one.most, f"{one.name}: no value from {one.least} to {one.most}")
    drawn = np.dtype(np.uint64 if one.dtype == "uint64" and one.most >= 2**63 else np.int64)
    limits = np.iinfo(drawn)
    require(limits.min <= one.least and one.most <= limits.max, f"{one.name}: numbers that no {drawn} holds")
    whole = np.random.default_rng(seed).integers(one.least, one.most, size=one.size, endpoint=True, dtype=drawn)
    return (whole / 2 if one.dtype in FLOATS else whole).astype(MEMORY[one.dtype])


def evaluate(program: TritonProgram, given: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Return the elements of the outputs, by name.

    Args:
        given: the buffers before the program runs; by default `inputs_of`.

    Raises:
        Invalid: the program breaks a rule of the grammar, or has no one result: an index out of bounds, two values for one
            element of an output, a division by 0, a float that may be rounded, or more than 4,000 steps.
    """
    require(program.outputs and program.body, "a program that does nothing")
    require(len({one.name for one in program.buffers}) == len(program.buffers), "two buffers of one name")
    machine = Machine(program.buffers, program.grid, inputs_of(program) if given is None else given)
    machine.run(program.body)
    return {one.name: machine.memory[one.name] for one in program.outputs}


class Machine:
    """Runs statements in all blocks of a grid, which do not depend on one another.

    Attributes:
        memory: the buffers. blocks: the values that have a name, in each block. steps: how many statements ran.
        seen: the last value of every name, also of those inside of loops and functions, whichever block it was in.
        dtypes: all that it had. functions: by name.
        constants: of the function that runs.
    """

    def __init__(self, buffers: Iterable[Buffer], grid: Sequence[int], given: Mapping[str, Array]) -> None:
        self._buffers = {one.name: one for one in buffers}
        self._grid = tuple(grid)
        self.memory = {name: array.copy() for name, array in given.items()}
        self._stored = {one.name: np.zeros(one.size, dtype=bool) for one in self._buffers.values()}
        self._atomics: dict[str, tuple[str, bool]] = {}
        self._owners = {one.name: np.full(one.size, -1) for one in self._buffers.values() if one.updated}
        self._indices = list(np.ndindex(*self._grid))
        self.blocks: list[_Env] = [{} for _ in self._indices]
        self.seen: _Env = {}
        self.dtypes: dict[str, set[str]] = {}
        self.least_begin = 0  # the least offset of a block that was stored by a descriptor
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, int] = {}
        self._returned: list[tuple[bool, list[Value]]] | None = None
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

    def run(self, body: Sequence[Statement]) -> None:
        """Run statements in every block; raises `Invalid`."""
        with np.errstate(over="ignore"):
            for at, env in enumerate(self.blocks):
                self._all(body, env, at)

    def _all(self, body: Sequence[Statement], env: _Env, block: int) -> None:
        for one in body:
            self.steps += 1
            require(self.steps <= STEPS, f"more than {STEPS} steps")
            self._one(one, env, block)

    def _one(self, node: Statement, env: _Env, block: int) -> None:
        match node:
            case Op(op="program_id" | "num_programs"):
                require(0 <= node.axis < len(self._grid), f"axis {node.axis} of the grid")
                number = self._indices[block][node.axis] if node.op == "program_id" else self._grid[node.axis]
                self._set(env, node.name, value("int32", np.int32(number)))
            case Op():
                node = self._with_constant(node)
                operands = [_get(env, name) for name in node.args]
                try:
                    result = TABLE[node.op].compute(node, *operands)
                except TypeError:
                    raise Invalid(f"{node.op} of {len(operands)} operands") from None
                self._set(env, node.name, result)
            case Load():
                self._set(env, node.name, self._load(node, env, block))
            case Store():
                self._store(node, env, block)
            case Atomic():
                self._atomic(node, env, block)
            case Descriptor():
                require(node.name not in env and node.name not in self._buffers, f"{node.name} is set twice")
                env[node.name] = self._described(node, env)
            case BlockLoad():
                buffer, places, inside = self._block(node, env)
                require(not buffer.written, f"{buffer.name} is an output")
                found = np.where(inside, self.memory[buffer.name][places], 0)
                self._set(env, node.name, value(buffer.dtype, found.astype(NUMPY[buffer.dtype])))
            case BlockStore():
                buffer, places, inside = self._block(node, env)
                self._put(buffer, places, inside, _get(env, node.value))
            case For():
                self._loop(node, env, block)
            case If():
                self._branch(node, env, block)
            case Function():
                self._define(node)
            case Call():
                self._call(node, env, block)

    def _inside(
        self, body: Sequence[Statement], after: Mapping[str, str], env: _Env, block: int, names: _Env, *, dry: bool
    ) -> _Env:
        """Run a body once, pass on what is carried, and return the values.

        Args:
            after: the names of what is passed on, by what it is passed on as. names: what is set in it first. dry: nothing
                of it counts; it must have a meaning all the same.
        """
        kept = self.memory, self._stored, self._owners
        if dry:
            self._copy()
        inner = dict(env)
        for name, one in names.items():
            self._set(inner, name, one)
        self._all(body, inner, block)
        for name, new in [(name, _get(inner, other)) for name, other in after.items()]:
            old = env[name]
            require(old.dtype == new.dtype and old.shape == new.shape, f"{name} changes its dtype or shape")
            if not dry:
                env[name] = new
        self.memory, self._stored, self._owners = kept
        return inner

    def _copy(self) -> None:
        """Let statements write to copies of the buffers."""
        kept = self.memory, self._stored, self._owners
        self.memory, self._stored, self._owners = ({name: one.copy() for name, one in all_.items()} for all_ in kept)

    def _branch(self, node: If, env: _Env, block: int) -> None:
        if node.condition in self.constants:
            holds = self.constants[node.condition] != 0
        else:
            condition = _get(env, node.condition)
            require(condition.dtype == "bool" and not condition.shape, "a condition of several elements")
            holds = bool(condition.data)
        require(bool(node.body) or node.results, "a branch without a body")
        self._start(node.carried, env)
        starts = dict(env)
        inner = self._inside(node.body, _after(node), env, block, {}, dry=not holds)
        if node.otherwise:
            other = {one.name: one.otherwise or one.name for one in node.carried}
            self._inside(node.otherwise, other, starts, block, {}, dry=holds)
            env.update({} if holds else starts)
        require(node.otherwise or not any(one.otherwise for one in node.carried), "a value of a branch that is not there")
        if node.results:
            require(not node.carried and not node.otherwise, "a branch that returns and goes on")
            if self._returned is None:
                raise Invalid("a return outside of a function")
            self._returned.append((holds, [_get(inner, name) for name in node.results]))

    def _define(self, node: Function) -> None:
        """Take up a function; only statements of its own, and not those in their bodies, may return."""
        inner = [one for outer in node.body if isinstance(outer, (For, If)) for one in walk((outer,)) if one is not outer]
        require(not any(isinstance(one, If) and one.results for one in inner), "a return in a body within a function")
        all_ = list(walk(node.body))
        require(not any(isinstance(one, Function) for one in all_), "a function in a function")
        require(not any(isinstance(one, Op) and one.op == "full" and one.flag for one in all_), "an argument of the kernel")
        require(all(one.function in self.functions for one in all_ if isinstance(one, Call)), "a call of a later function")
        require(self.functions.setdefault(node.name, node) == node, f"{node.name} is defined twice")

    def _call(self, node: Call, env: _Env, block: int) -> None:
        function = self.functions.get(node.function)
        if function is None:
            raise Invalid(f"there is no function {node.function}")
        require(len(node.args) == len(function.parameters) and len(node.names) == len(function.results), "a call")
        args = [_get(env, name) for name in node.args]
        outer = self.constants, self._returned, self.memory, self._stored, self._owners
        self.constants = {} if function.constant is None else {function.constant: node.constant}
        returned: list[tuple[bool, list[Value]]] = []
        self._returned = returned
        inner: _Env = {}
        try:
            for name, one in zip(function.parameters, args, strict=True):
                self._set(inner, name, one)
            for statement in function.body:
                self._all([statement], inner, block)
                if isinstance(statement, If) and statement.results and returned[-1][0]:
                    self._copy()  # what comes after counts no more, but is compiled
            returned.append((True, [_get(inner, name) for name in function.results]))
        finally:
            self.constants, self._returned, self.memory, self._stored, self._owners = outer
        kinds = {tuple((one.dtype, one.shape) for one in results) for _, results in returned}
        require(len(kinds) == 1, f"{node.function} returns values of several dtypes or shapes")
        for name, one in zip(node.names, next(results for holds, results in returned if holds), strict=True):
            self._set(env, name, one)

    def _with_constant(self, node: Op) -> Op:
        """Return an operation with the number that its constant is."""
        if node.constant is None:
            return node
        require(node.constant in self.constants, f"there is no constant {node.constant}")
        number = self.constants[node.constant]
        require(node.op != "arange" or (number > 0 and not node.value), "an arange of this size")
        known = node.op in {*REDUCTIONS, *SCANS, "arange", "full"} or (node.flag and node.op in {*BINARY, *COMPARISONS})
        require(known, f"a constant of {node.op}")
        return with_number(node, number)

    def _set(self, env: _Env, name: str, result: Value) -> None:
        require(name not in env and name not in self._buffers and name not in self.constants, f"{name} is set twice")
        env[name] = self.seen[name] = result
        self.dtypes.setdefault(name, set()).add(result.dtype)

    def _start(self, carried: Sequence[Carry], env: _Env) -> None:
        for one in carried:
            self._set(env, one.name, _get(env, one.start))

    def _loop(self, node: For, env: _Env, block: int) -> None:
        end = node.end
        if node.bound in self.constants:
            end = self.constants[node.bound]
        elif node.bound is not None:
            bound = _get(env, node.bound)
            require(bound.dtype == node.dtype and not bound.shape and node.kind != "tl.static_range", "a bound of a loop")
            end = int(bound.data)
        require(node.stages == 0 or node.kind == "tl.range", f"stages of {node.kind}")
        indices = range(node.begin, end, node.step or 1)
        require(node.body and node.step, "a loop without a body or a step")
        least, most = range_of(node.dtype)
        require(all(least <= one <= most for one in (node.begin, end)), f"a loop over {indices} in {node.dtype}")
        require(len(indices) <= _ITERATIONS, f"{len(indices)} iterations")
        self._start(node.carried, env)
        for index in indices or [node.begin]:
            names = {node.var: value(node.dtype, NUMPY[node.dtype].type(index))}
            self._inside(node.body, _after(node), env, block, names, dry=not indices)

    def _places(self, node: Load | Store | Atomic, env: _Env, shape: tuple[int, ...] | None) -> tuple[Array, Array]:
        """Return the indices and the mask, of one shape."""
        buffer = self._buffers.get(node.buffer)
        if buffer is None:
            raise Invalid(f"there is no buffer {node.buffer}")
        index = _get(env, node.index)
        require(index.dtype in INTEGERS, f"an index of {index.dtype}")
        require(shape is None or _spreads(shape, index.shape), f"indices {index.shape} of a block {shape}")
        mask = np.ones(index.shape, dtype=bool)
        if node.mask is not None:
            masked = _get(env, node.mask)
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
        require(np.isin(owners[at], (-1, block)).all(), f"two blocks with one element of {buffer.name}")
        owners[at] = block

    def _load(self, node: Load, env: _Env, block: int) -> Value:
        places, mask = self._places(node, env, None)
        buffer = self._buffers[node.buffer]
        require(not buffer.written or buffer.updated, f"{node.buffer} is an output")
        if buffer.updated:
            self._own(buffer, places, mask, block)
        require((node.mask is None) == (node.other is None), "a mask without what is loaded elsewhere")
        found = self.memory[node.buffer][places].astype(NUMPY[buffer.dtype])
        if node.other is not None:
            other = _get(env, node.other)
            fits = other.dtype == buffer.dtype and _spreads(other.shape, places.shape)
            require(fits, "what is loaded elsewhere")
            found = np.where(mask, found, other.data)
        return value(buffer.dtype, found)

    def _target(self, node: Store | Atomic, env: _Env) -> tuple[Value, Array, Array]:
        new = _get(env, node.value)
        places, mask = self._places(node, env, new.shape)
        buffer = self._buffers[node.buffer]
        require(buffer.written and buffer.dtype == new.dtype, f"a store of {new.dtype} to {node.buffer}")
        return Value(new.dtype, np.broadcast_to(new.data, places.shape)), places, mask

    def _store(self, node: Store, env: _Env, block: int) -> None:
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

    def _atomic(self, node: Atomic, env: _Env, block: int) -> None:
        new, places, mask = self._target(node, env)
        dtype, buffer, sets = new.dtype, self._buffers[node.buffer], node.op in {"xchg", "cas"}
        require(buffer.zeroed or buffer.updated, f"{node.buffer} is not for atomic operations")
        dtypes = {"int32", "uint32", "int64", "uint64", *(("int16", "uint16") if node.op == "cas" else ())}
        require(dtype in dtypes, f"an atomic operation of {dtype}")
        kind = node.op, node.name is not None
        require(
            buffer.updated or self._atomics.setdefault(node.buffer, kind) == kind, f"two atomic operations on {node.buffer}"
        )
        memory, at = self.memory[node.buffer], places[mask].reshape(-1)
        if node.name is not None or sets or buffer.updated:
            met = self._stored[node.buffer]
            alone = (mask.all() or node.name is None) and len(np.unique(at)) == at.size
            alone = alone and (buffer.updated or not met[at].any())
            require(alone, f"what an atomic operation on {node.buffer} finds depends on the order")
            met[at] = True
            if buffer.updated:
                self._own(buffer, places, mask, block)
        require((node.op == "cas") == (node.compare is not None), f"what {node.op} compares with")
        before = memory[places]
        if node.name is not None:
            self._set(env, node.name, value(dtype, before))
        if node.compare is not None:
            compare = _get(env, node.compare)
            fits = compare.dtype == dtype and compare.shape == new.shape == _get(env, node.value).shape
            require(node.mask is None and fits, "what cas compares with")
            memory[places] = np.where(before == compare.data, new.data, before)
        elif sets:
            memory[at] = new.data[mask].reshape(-1)
        else:
            _ATOMIC[node.op].at(memory, at, new.data[mask].reshape(-1))

    def _described(self, node: Descriptor, env: _Env) -> Described:
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

    def _block(self, node: BlockLoad | BlockStore, env: _Env) -> tuple[Buffer, Array, Array]:
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


def _after(node: For | If) -> dict[str, str]:
    return {one.name: one.after for one in node.carried}


def _spreads(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether Triton brings a mask or a value to the shape of indices: it is one element, or has axes of length 1."""
    return not shape or (len(shape) == len(other) and all(one in {1, two} for one, two in zip(shape, other, strict=True)))


def _get(env: Mapping[str, Value], name: str) -> Value:
    found = env.get(name)
    if found is None or isinstance(found, Described):
        raise Invalid(f"there is no value {name}")
    return found


def _numbers(env: Mapping[str, Value], names: Sequence[str]) -> list[int]:
    """Return int32 values of one element."""
    found = [_get(env, one) for one in names]
    require(all(one.dtype == "int32" and not one.shape for one in found), "a size or an offset that is no int32")
    return [int(one.data) for one in found]
