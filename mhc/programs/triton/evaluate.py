"""The evaluator: what a Triton program computes, bit for bit, and whether it is one whose result Triton must keep.

Nothing here comes from Triton. What operations give is in `mhc.programs.triton.operations`.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import bits_of, range_of
from mhc.programs.triton.accesses import Accesses, Env, any_of, get
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
    Pointer,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.values import MEMORY, NUMPY, Array, Value, from_raw, require, value

POISON = 0x5A
"""The byte of which all elements of an output consist before the program runs."""
STEPS = 4000
"""A program has no more, in all blocks together."""
_ITERATIONS = 64


def inputs_of(program: TritonProgram) -> dict[str, Array]:
    """Return the elements of the buffers before the program runs, by name: inputs by the seed, outputs poisoned."""
    return {one.name: before(one, program.seed, number) for number, one in enumerate(program.buffers)}


def before(one: Buffer, program_seed: int, number: int) -> Array:
    """Return the elements of a buffer before a program runs.

    Args:
        number: how many buffers come before it.
    """
    if one.zeroed:
        return np.zeros(one.size, dtype=MEMORY[one.dtype])
    if one.written and not one.updated:
        return from_raw(np.full(one.size * bits_of(one.dtype) // 8, POISON, dtype=np.uint8), one.dtype)
    require(one.least <= one.most, f"{one.name}: no value from {one.least} to {one.most}")
    drawn = np.dtype(np.uint64 if one.dtype == "uint64" and one.most >= 2**63 else np.int64)
    limits = np.iinfo(drawn)
    require(limits.min <= one.least and one.most <= limits.max, f"{one.name}: numbers that no {drawn} holds")
    whole = np.random.default_rng([program_seed, number]).integers(
        one.least, one.most, size=one.size, endpoint=True, dtype=drawn
    )
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


class Machine(Accesses):
    """Runs statements in all blocks of a grid, which do not depend on one another.

    Attributes:
        blocks: the values that have a name, in each block.
        seen: the last value of every name, also of those inside of loops and functions, whichever block it was in.
        dtypes: all that it had. functions: by name.
        constants: of the function that runs. rounds: a cast to bfloat16 rounded.
    """

    def __init__(self, buffers: Iterable[Buffer], grid: Sequence[int], given: Mapping[str, Array]) -> None:
        super().__init__(buffers, given)
        self._grid = tuple(grid)
        self._indices = list(np.ndindex(*self._grid))
        self.blocks: list[Env] = [{} for _ in self._indices]
        self.seen: Env = {}
        self.dtypes: dict[str, set[str]] = {}
        self.rounds = False
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, int] = {}
        self._returned: list[tuple[bool, list[Value]]] | None = None

    def run(self, body: Sequence[Statement]) -> None:
        """Run statements in every block; raises `Invalid`."""
        with np.errstate(over="ignore"):
            for at, env in enumerate(self.blocks):
                self._all(body, env, at)

    def _all(self, body: Sequence[Statement], env: Env, block: int) -> None:
        for one in body:
            self.steps += 1
            require(self.steps <= STEPS, f"more than {STEPS} steps")
            self._one(one, env, block)

    def _one(self, node: Statement, env: Env, block: int) -> None:
        match node:
            case Op(op="program_id" | "num_programs"):
                require(0 <= node.axis < len(self._grid), f"axis {node.axis} of the grid")
                number = self._indices[block][node.axis] if node.op == "program_id" else self._grid[node.axis]
                self._set(env, node.name, value("int32", np.int32(number)))
            case Op():
                node = self._with_constant(node)
                operands = [get(env, name) for name in node.args]
                try:
                    result = TABLE[node.op].compute(node, *operands)
                except TypeError:
                    raise Invalid(f"{node.op} of {len(operands)} operands") from None
                if node.op == "cast" and result.dtype == "bfloat16" != operands[0].dtype:
                    self.rounds = self.rounds or bool((result.data != operands[0].data).any())
                self._set(env, node.name, result)
            case Load():
                self._set(env, node.name, self._load(node, env, block))
            case Store():
                self._store(node, env, block)
            case Atomic():
                before = self._atomic(node, env, block)
                if node.name is not None:
                    self._set(env, node.name, before)
            case Descriptor():
                require(node.name not in env and node.name not in self._buffers, f"{node.name} is set twice")
                env[node.name] = self._described(node, env)
            case Pointer():
                self._set(env, node.name, self._pointed(node, env))
            case BlockLoad():
                buffer, places, inside = self._block(node, env)
                require(not buffer.written, f"{buffer.name} is an output")
                found = np.where(inside, self.memory[buffer.name][places], 0)
                self._set(env, node.name, value(buffer.dtype, found.astype(NUMPY[buffer.dtype])))
            case BlockStore():
                buffer, places, inside = self._block(node, env)
                self._put(buffer, places, inside, get(env, node.value))
            case For():
                self._loop(node, env, block)
            case If():
                self._branch(node, env, block)
            case Function():
                self._define(node)
            case Call():
                self._call(node, env, block)

    def _inside(
        self, body: Sequence[Statement], after: Mapping[str, str], env: Env, block: int, names: Env, *, dry: bool
    ) -> Env:
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
        for name, new in [(name, any_of(inner, other)) for name, other in after.items()]:
            old = env[name]
            require(old.dtype == new.dtype and old.shape == new.shape, f"{name} changes its dtype or shape")
            if not dry:
                env[name] = new
        self.memory, self._stored, self._owners = kept
        return inner

    def _branch(self, node: If, env: Env, block: int) -> None:
        if node.condition in self.constants:
            holds = self.constants[node.condition] != 0
        else:
            condition = get(env, node.condition)
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
            self._returned.append((holds, [get(inner, name) for name in node.results]))

    def _define(self, node: Function) -> None:
        """Take up a function; only statements of its own, and not those in their bodies, may return."""
        inner = [one for outer in node.body if isinstance(outer, (For, If)) for one in walk((outer,)) if one is not outer]
        require(not any(isinstance(one, If) and one.results for one in inner), "a return in a body within a function")
        all_ = list(walk(node.body))
        require(not any(isinstance(one, Function) for one in all_), "a function in a function")
        require(not any(isinstance(one, Op) and one.op == "full" and one.flag for one in all_), "an argument of the kernel")
        require(all(one.function in self.functions for one in all_ if isinstance(one, Call)), "a call of a later function")
        require(self.functions.setdefault(node.name, node) == node, f"{node.name} is defined twice")

    def _call(self, node: Call, env: Env, block: int) -> None:
        function = self.functions.get(node.function)
        if function is None:
            raise Invalid(f"there is no function {node.function}")
        require(len(node.args) == len(function.parameters) and len(node.names) == len(function.results), "a call")
        args = [get(env, name) for name in node.args]
        outer = self.constants, self._returned, self.memory, self._stored, self._owners
        self.constants = {} if function.constant is None else {function.constant: node.constant}
        returned: list[tuple[bool, list[Value]]] = []
        self._returned = returned
        inner: Env = {}
        try:
            for name, one in zip(function.parameters, args, strict=True):
                self._set(inner, name, one)
            for statement in function.body:
                self._all([statement], inner, block)
                if isinstance(statement, If) and statement.results and returned[-1][0]:
                    self._copy()  # what comes after counts no more, but is compiled
            returned.append((True, [get(inner, name) for name in function.results]))
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

    def _set(self, env: Env, name: str, result: Value) -> None:
        require(name not in env and name not in self._buffers and name not in self.constants, f"{name} is set twice")
        env[name] = self.seen[name] = result
        self.dtypes.setdefault(name, set()).add(result.dtype)

    def _start(self, carried: Sequence[Carry], env: Env) -> None:
        for one in carried:
            self._set(env, one.name, any_of(env, one.start))

    def _end(self, node: For, name: str | None, known: int, env: Env) -> int:
        """Return a number of a loop: that of a value, if there is a name."""
        if name is None:
            return known
        one = get(env, name)
        require(one.dtype == node.dtype and not one.shape and node.kind != "tl.static_range", "a bound of a loop")
        return int(one.data)

    def _loop(self, node: For, env: Env, block: int) -> None:
        begin, step = self._end(node, node.first, node.begin, env), self._end(node, node.by, node.step, env)
        end = self.constants[node.bound] if node.bound in self.constants else self._end(node, node.bound, node.end, env)
        plain = not (node.stages or node.unroll or node.flags)
        require(plain or node.kind == "tl.range", f"options of {node.kind}")
        require(node.by is None or (step > 0 and node.step > 0), "a step that is not known ahead, and not above 0")
        require(node.body and step, "a loop without a body or a step")
        indices = range(begin, end, step)
        least, most = range_of(node.dtype)
        require(all(least <= one <= most for one in (begin, end)), f"a loop over {indices} in {node.dtype}")
        require(len(indices) <= _ITERATIONS, f"{len(indices)} iterations")
        self._start(node.carried, env)
        for index in indices or [begin]:
            names = {node.var: value(node.dtype, NUMPY[node.dtype].type(index))}
            self._inside(node.body, _after(node), env, block, names, dry=not indices)


def _after(node: For | If) -> dict[str, str]:
    return {one.name: one.after for one in node.carried}
