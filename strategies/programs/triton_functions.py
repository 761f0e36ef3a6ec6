"""Draws functions beside the kernel of a Triton program, and calls of them with blocks of several shapes and dtypes."""

from collections.abc import Callable

import numpy as np

from mhc.programs.grammar import INTEGERS, SIGNED, UNSIGNED, bits_of
from mhc.programs.triton.grammar import COMPARISONS, FLOATS, Call, Carry, For, Function, If, Statement, walk
from mhc.programs.triton.values import Value, value
from mhc.strategies.programs.triton_descriptors import DescribedBlocks
from mhc.strategies.programs.triton_statements import Statements

_INTEGER_OPS = ("add", "mul", "sub", "xor", "and", "or", "minimum", "maximum")
_FLOAT_OPS = ("add", "sub", "maximum", "minimum")


class Functions(Statements):
    """Draws statements, functions and calls into a program."""

    def __init__(self, blocks: DescribedBlocks) -> None:
        super().__init__(blocks)
        self._functions: list[tuple[Function, Call, list[Value]]] = []

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each."""
        return [*super().kinds(), *[self._call] * (12 if self._functions else 0)]

    def define(self) -> None:
        """Draw up to two functions, each with a first call, which shows that it has a meaning, and more calls."""
        for _ in range(self._blocks.pick(*[0] * 16, 1, 2, 2)):
            self._function()
        for _ in range(self._blocks.pick(1, 2, 3) if self._functions else 0):
            self._call()

    def _function(self) -> None:
        blocks = self._blocks
        args = [blocks.chosen(lambda one: one.dtype != "bool") for _ in range(blocks.pick(1, 2, 3))]
        given = list(dict.fromkeys(one for one in args if one is not None))
        if not given:
            return
        parameters = [blocks.name() for _ in given]
        constant = blocks.name() if blocks.pick(True, True, False) else None
        number = blocks.pick(1, 2, 0, 4)
        kept = blocks.enter(dict(zip(parameters, given, strict=True)), {} if constant is None else {constant: number})
        blocks.pool = list(parameters)
        if self._functions and blocks.pick(True, False):
            self._call()
        for _ in range(blocks.integer(0, 2)):
            self._inner(constant)
        early = self._early(constant) if blocks.pick(False, True) else []
        for _ in range(blocks.integer(1, 3)):
            self._inner(constant)
        wanted = early or [*reversed(blocks.pool[-3:])][: blocks.pick(1, 2)]
        results = tuple(self._result(one, bool(early)) for one in wanted)
        body = blocks.leave(kept)
        named = {getattr(one, field, None) for one in walk(body) for field in ("constant", "bound", "condition")}
        constant = constant if constant in named else None
        function = Function(f"g_{len(self._functions)}", tuple(parameters), body, results, constant)
        names = tuple(blocks.name() for _ in results)
        call = Call(names, function.name, tuple(given), number if constant else 0)
        if blocks.add(function) and blocks.add(call):
            blocks.pool += names
            self._functions.append((function, call, [blocks.value(one) for one in given]))

    def _early(self, constant: str | None) -> list[str]:
        """Add a branch in which the function returns values of the dtypes and shapes of those that are returned here."""
        blocks = self._blocks
        condition = constant if constant is not None and blocks.pick(True, True, False) else self._one_condition()
        if condition is None:
            return []
        wanted = [*reversed(blocks.pool[-2:])][: blocks.pick(1, 1, 2)]
        kept = blocks.enter({})
        results = tuple(self._result(one, blocks.pick(True, False)) for one in wanted)
        branch = If(condition, blocks.leave(kept), results=results)
        blocks.body.append(branch)  # it has a meaning in a function only
        return wanted

    def _result(self, name: str, other: bool) -> str:
        """Return a value, or another one of its dtype and shape."""
        blocks = self._blocks
        one = blocks.value(name)
        if not other:
            return name
        alike = blocks.chosen(lambda each: (each.dtype, each.shape) == (one.dtype, one.shape) and each is not one)
        if alike is not None and blocks.pick(True, False):
            return alike
        op = "xor" if one.dtype == "bool" else blocks.pick(*(_FLOAT_OPS if one.dtype in FLOATS else _INTEGER_OPS[:4]))
        return blocks.op(op, name, alike or blocks.must("full_like", name, value=1)) or name

    def _inner(self, constant: str | None) -> None:
        """Draw a statement of a function, most often one that has a meaning for blocks of other shapes and dtypes too."""
        kinds = [self._number_beside, self._alike, self._alike, self._chosen, self._unary, self._cast, self._binary]
        kinds += [self._scan, self._reduction, lambda: self.statement(1), lambda: self.statement(1), self._part]
        kinds += [self._call] * (5 if self._functions else 0)
        if constant is not None:
            kinds += [lambda: self._known(constant)] * 6
        self._blocks.pick(*kinds)()

    def _any(self) -> str | None:
        return self._blocks.chosen(lambda one: one.dtype != "bool")

    def _ops(self, name: str) -> tuple[str, ...]:
        return _FLOAT_OPS if self._blocks.value(name).dtype in FLOATS else _INTEGER_OPS

    def _number_beside(self) -> None:
        """Draw an operation of a block and a Python number that every dtype holds."""
        blocks, a = self._blocks, self._any()
        if a is not None:
            ops = [one for one in self._ops(a) if one not in {"minimum", "maximum"}]
            blocks.op(blocks.pick(*ops), a, value=blocks.pick(1, 2, 3, 7), flag=True, axis=blocks.pick(0, 0, 1))

    def _alike(self) -> None:
        """Draw an operation of two blocks, of which one is a constant of the other's shape and dtype."""
        blocks, a = self._blocks, self._any()
        if a is not None:
            b = blocks.must("full_like", a, value=blocks.pick(1, 2, 3))
            blocks.op(blocks.pick(*self._ops(a), *COMPARISONS), *blocks.pick((a, b), (b, a)))

    def _chosen(self) -> None:
        """Draw a choice between a block and what is like it."""
        blocks, a = self._blocks, self._any()
        if a is not None:
            condition = blocks.op(blocks.pick(*COMPARISONS), a, value=blocks.pick(1, 2), flag=True, keep=False)
            b = self._result(a, True)
            if condition is not None:
                blocks.op("where", condition, *blocks.pick((a, b), (b, a)))

    def _part(self) -> None:
        """Draw a load in the function, which is given the buffer."""
        blocks = self._blocks
        one = blocks.pick(*blocks.inputs_so_far())
        size = blocks.pick(4, 8, 1)
        if one.size >= size * int(np.prod(blocks.grid)):
            blocks.load(one.name, (size,))

    def _known(self, constant: str) -> None:
        """Draw what depends on the function's constant."""
        blocks, a = self._blocks, self._any()
        if a is None:
            return
        match blocks.pick("beside", "axis", "loop", "loop", "branch", "full", "size"):
            case "beside":
                ops = [one for one in self._ops(a) if one not in {"minimum", "maximum"}]
                blocks.op(blocks.pick(*ops, *COMPARISONS[:2]), a, flag=True, axis=blocks.pick(0, 1), constant=constant)
            case "axis":
                blocks.op(
                    blocks.pick("sum", "max", "min", "cumsum", "argmax"), a, flag=blocks.pick(False, True), constant=constant
                )
            case "full":
                dtype = blocks.value(a).dtype
                blocks.op("add", a, blocks.must("full", dtype=blocks.pick(dtype, "int32"), constant=constant))
            case "size":
                line = blocks.op("arange", constant=constant, keep=False)
                if line is not None and blocks.value(a).dtype in INTEGERS:
                    blocks.op(blocks.pick("add", "mul"), line, blocks.op("max", a, axis=-1) or line)
            case "loop":
                self._body(a, lambda name, body, carry: self._loop_to(constant, name, body, carry))
            case "branch":
                self._body(a, lambda _, body, carry: If(constant, body, (carry,)))

    def _body(self, start: str, made: Callable[[str, tuple[Statement, ...], Carry], Statement]) -> None:
        """Draw a loop or a branch that carries one value.

        Args:
            made: returns it, from the name of a loop's index, its body and what it carries.
        """
        blocks = self._blocks
        var, name = blocks.name(), blocks.name()
        kept = blocks.enter({name: start, var: value("int32", np.int32(0))})
        one = blocks.value(name)
        mixed = blocks.op("add", name, var) if blocks.pick(True, False) else None
        if mixed is None or blocks.value(mixed).dtype != one.dtype or blocks.value(mixed).shape != one.shape:
            mixed = name
        after = self._result(mixed, True)
        statement = made(var, blocks.leave(kept), Carry(name, start, after))
        if blocks.add(statement):
            blocks.pool.append(name)

    def _loop_to(self, constant: str, var: str, body: tuple[Statement, ...], carry: Carry) -> For:
        kind = self._blocks.pick("tl.static_range", "range", "tl.range")
        return For(var, 0, body, carried=(carry,), kind=kind, bound=constant)

    def _call(self) -> None:
        """Draw another call, most often with blocks of other shapes or dtypes than before, or with another constant."""
        blocks = self._blocks
        function, first, before = blocks.pick(*reversed(self._functions))
        args: list[str] = []
        if {*first.args, *first.names} <= {*blocks.pool} and blocks.pick(True, False):
            self._call_alike(function, first)
            return
        for one in before:
            shape = blocks.value(args[0]).shape if args and before[0].shape == one.shape else None
            dtype = blocks.value(args[0]).dtype if args and before[0].dtype == one.dtype else None
            found = self._argument(shape, dtype, one)
            if found is None:
                return
            args.append(found)
        names = tuple(blocks.name() for _ in function.results)
        if blocks.add(Call(names, function.name, tuple(args), blocks.pick(1, 0, 2, 4) if function.constant else 0)):
            blocks.pool += names

    def _call_alike(self, function: Function, first: Call) -> None:
        """Draw a call that differs from the first one in its constant or in the sign of dtypes alone; compare the two."""
        blocks = self._blocks
        args, constant = first.args, first.constant
        if function.constant and blocks.pick(True, False):
            constant = blocks.pick(*(one for one in (1, 0, 2, 4) if one != constant))
        else:
            dtypes = [blocks.value(one).dtype for one in args]
            signs = {**{one: f"u{one}" for one in SIGNED}, **{one: one[1:] for one in UNSIGNED}}
            args = tuple(
                blocks.must("cast", one, dtype=signs[dtype]) if dtype in signs else one
                for one, dtype in zip(args, dtypes, strict=True)
            )
        names = tuple(blocks.name() for _ in function.results)
        if blocks.add(Call(names, function.name, args, constant)):
            blocks.pool += names
            blocks.op("eq" if blocks.value(names[0]).dtype in FLOATS else "xor", first.names[0], names[0])

    def _argument(self, shape: tuple[int, ...] | None, dtype: str | None, before: Value) -> str | None:
        """Return a value of a shape and a dtype, of any where there is none to keep to.

        Args:
            before: what the first call has, often of the same shape, and of a dtype that differs in the sign alone.
        """
        blocks = self._blocks
        if shape is None and blocks.pick(True, False):
            shape = before.shape
        found = blocks.chosen(
            lambda one: (
                one.dtype != "bool"
                and (shape is None or one.shape == shape)
                and (dtype is None or dtype == one.dtype or shape is not None)
            )
        )
        if found is None or (dtype is None and blocks.pick(True, False)):
            return found
        twins = [other for other in INTEGERS if bits_of(other) == bits_of(before.dtype) and other != before.dtype]
        wanted = dtype or blocks.pick(*twins * 8, *INTEGERS, "float32", "float16")
        return found if blocks.value(found).dtype == wanted else blocks.op("cast", found, dtype=wanted, keep=False)
