"""What a Triton program that is being drawn has so far: its buffers, its statements, and the values that they give."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mhc.programs.arithmetic import Invalid
from mhc.programs.triton.evaluate import STEPS, Machine, before
from mhc.programs.triton.grammar import Buffer, Op, Statement, TritonProgram
from mhc.programs.triton.values import Array, Value, require
from mhc.strategies.programs.indices import Draw, integers

LARGEST = 1024
"""No block that is made has more elements."""
ITERATIONS = 4
"""An input has enough elements for so many iterations of a loop to load a block of its own."""


class Begun:
    """A program that is being drawn.

    Attributes:
        brain: whether it computes in bfloat16; where it does not, it loads and stores such elements all the same.
    """

    def __init__(self, draw: Draw, release: str, *, interpreted: bool = False) -> None:
        self._draw, self.release = draw, release
        self.brain: bool = not interpreted or self.pick(*[False] * 5, True)
        self.grid: tuple[int, ...] = self.pick(
            (1,), (1,), (1,), (1,), (2,), (3,), (2, 2), (2, 3), (3, 1), (1, 4), (2, 1, 2), (1, 3, 2)
        )
        self._seed: int = draw(st.integers(0, 999))
        self._buffers: list[Buffer] = []
        self._before: dict[Buffer, Array] = {}  # what they hold at first
        self._given = self.pick(False, False, True)  # whether constants are arguments of the kernel, half of them
        self._names = 0
        self.body: list[Statement] = []
        self.pool: list[str] = []
        self._machine = Machine((), self.grid, {})
        self._indices: dict[tuple[int, ...], str] = {}  # the last of each shape
        self._number = ""  # the last name of the block's number
        self.in_function = False  # which knows its parameters only
        self._stored: set[str] = set()

    def pick(self, *options: Any) -> Any:
        """Draw one of the options, of which the first is the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        """Draw an integer."""
        number: int = self._draw(integers(low, high)) if low < high else low
        return number

    def shuffled(self, some: Sequence[Any]) -> list[Any]:
        """Draw an order."""
        rest, drawn = [*some], []
        while rest:
            drawn.append(rest.pop(self.integer(0, len(rest) - 1)))
        return drawn

    # --- values

    def value(self, name: str) -> Value:
        """Return a value as it is in the first block."""
        return self._machine.blocks[0][name]

    def name(self) -> str:
        """Return a name that is not used."""
        self._names += 1
        return f"v{self._names - 1}"

    def chosen(self, holds: Callable[[Value], bool]) -> str | None:
        """Draw a value that fits, most often one of the last, else one of any dtype that there is; None where none fits."""
        fitting = [one for one in self.pool if holds(self.value(one))]
        if not fitting:
            return None
        if self.pick(True, True, False):
            return self.pick_late(fitting[-3:])
        dtypes = dict.fromkeys(self.value(one).dtype for one in reversed(fitting))
        dtype = self.pick(*dtypes)
        return self.pick_late([one for one in fitting if self.value(one).dtype == dtype])

    def pick_late(self, names: Sequence[str]) -> str:
        """Draw one of the names, of which the last is the simplest."""
        return str(self.pick(*reversed(names)))

    def add(self, statement: Statement) -> bool:
        """Add a statement, unless it has no one meaning; return whether it was added."""
        machine = self._machine
        if isinstance(statement, Op):  # it sets its name, and nothing else
            return self._added(statement)
        before = [dict(env) for env in machine.blocks]
        memory = machine.snapshot()
        try:
            machine.run([statement])
        except Invalid:
            machine.blocks[:] = before
            machine.restore(memory)
            return False
        self.body.append(statement)
        return True

    def _added(self, op: Op) -> bool:
        """Add an operation, unless it has no one meaning; return whether it was added."""
        machine, steps = self._machine, self._machine.steps
        try:
            machine.run([op])
            require(self.brain or not machine.rounds, "a bfloat16 that is rounded, which counts as computing in bfloat16")
        except Invalid:
            machine.steps, machine.rounds = steps, False
            for env in machine.blocks:
                env.pop(op.name, None)
            return False
        self.body.append(op)
        return True

    def op(self, op: str, *args: str, keep: bool = True, **fields: Any) -> str | None:
        """Add an operation, and return its name; None where it has no one meaning.

        Args:
            keep: later statements may use it.
        """
        name = self.name()
        if not self.add(Op(name, op, args, **fields)):
            return None
        if keep:
            self.pool.append(name)
        return name

    def must(self, op: str, *args: str, keep: bool = False, **fields: Any) -> str:
        """Add an operation that has a meaning, and return its name."""
        name = self.op(op, *args, keep=keep, **fields)
        assert name is not None, (op, args, fields)
        return name

    def beside(self, op: str, name: str, number: int) -> str:
        """Add an operation of a value and a number, as a Python number or as a constant, and return its name."""
        if self.pick(True, False):
            return self.must(op, name, value=number, flag=True)
        return self.must(op, name, self.full(None, number, self.value(name).dtype))

    def full(self, value: Value | None, number: float, dtype: str | None = None, shape: Sequence[int] | None = None) -> str:
        """Add a constant of a value's dtype and shape, and return its name."""
        dtype = dtype or (value.dtype if value is not None else "int32")
        shape = shape if shape is not None else value.shape if value is not None else ()
        given = self._given and not self.in_function and dtype != "bool" and self.pick(False, True)
        return self.must("full", dtype=dtype, shape=tuple(shape), value=number, flag=given)

    # --- bodies of loops and branches

    def enter(self, names: Mapping[str, Value | str], constants: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """Begin a body in which further names are set, each to a value or to that of another name.

        Args:
            constants: those of the function whose body it is.
        """
        machine = self._machine
        scope = machine.constants, self._indices, self._number, self.in_function
        kept = self.body, [dict(env) for env in machine.blocks], list(self.pool), machine.updated(), scope
        if constants is not None:
            machine.constants, self._indices, self._number, self.in_function = dict(constants), {}, "", True
        self.body = []
        for env in self._machine.blocks:
            for name, one in names.items():
                env[name] = env[one] if isinstance(one, str) else one
        self.pool += list(names)
        return kept

    def carry(self, name: str, start: str) -> None:
        """Let a name in a body be what another one is before it."""
        for env in self._machine.blocks:
            env[name] = env[start]

    def leave(self, kept: tuple[Any, ...]) -> tuple[Statement, ...]:
        """End a body, and return its statements."""
        inner = tuple(self.body)
        self.body, envs, self.pool, updated, scope = kept
        self._machine.constants, self._indices, self._number, self.in_function = scope
        self._machine.blocks[:] = envs
        self._machine.go_on(updated)  # the body runs again as a whole
        return inner

    # --- buffers

    def inputs_so_far(self) -> list[Buffer]:
        """Return the inputs."""
        return [one for one in self._buffers if not one.written]

    def _restart(self) -> None:
        """Take up a new buffer: run what there is again."""
        for number, one in enumerate(self._buffers):
            if one not in self._before:
                self._before[one] = before(one, self._seed, number)
        machine = self._machine
        self._machine = Machine(self._buffers, self.grid, {one.name: self._before[one] for one in self._buffers})
        self._machine.blocks[:] = machine.blocks
        self._machine.functions, self._machine.constants = machine.functions, machine.constants
        self._machine.go_on(machine.updated())

    def is_long(self) -> bool:
        """Return whether there is room for no more than what is needed to store values."""
        return self._machine.steps > STEPS // 4

    def program(self) -> TritonProgram:
        """Return the program."""
        return TritonProgram(
            buffers=tuple(self._buffers),
            body=tuple(self.body),
            grid=self.grid,
            num_warps=self.pick(4, 1, 2, 8),
            num_stages=self.pick(3, 1, 2, 4),
            seed=self._seed,
        )


def fit(a: Value, b: Value) -> bool:
    """Return whether two blocks broadcast to a block that is not too large."""
    try:
        return math.prod(np.broadcast_shapes(a.shape, b.shape)) <= LARGEST
    except ValueError:
        return False
