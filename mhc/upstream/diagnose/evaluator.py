"""TileLang's serial kernels, evaluated: what the source says, without TileLang's passes, code generator and C compiler.

A program by itself, which runs where this package cannot be imported: `install` puts it in place of `tilelang.compile`. It
knows what kernels for the `c` target are made of; of everything else it says so.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tilelang
from torch import Tensor
from tvm import tir

Number = Any
"""A NumPy scalar."""

_BINARY: Mapping[type, Callable[[Number, Number], Number]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
    tir.FloorDiv: operator.floordiv,
    tir.FloorMod: operator.mod,
    tir.Max: lambda a, b: a if a > b else b,
    tir.Min: lambda a, b: a if a < b else b,
    tir.EQ: operator.eq,
    tir.NE: operator.ne,
    tir.LT: operator.lt,
    tir.LE: operator.le,
    tir.GT: operator.gt,
    tir.GE: operator.ge,
}
_CALLS: Mapping[str, Callable[..., Number]] = {
    "tir.exp": np.exp,
    "tir.log": np.log,
    "tir.sqrt": np.sqrt,
    "tir.rsqrt": lambda a: 1 / np.sqrt(a),
    "tir.sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "tir.tanh": np.tanh,
    "tir.pow": np.power,
    "tir.fabs": np.abs,
    "tir.floor": np.floor,
    "tir.ceil": np.ceil,
    "tir.isnan": np.isnan,
    "tir.isinf": np.isinf,
    "tir.shift_left": operator.lshift,
    "tir.shift_right": operator.rshift,
    "tir.bitwise_and": operator.and_,
    "tir.bitwise_or": operator.or_,
    "tir.bitwise_xor": operator.xor,
    "tir.likely": lambda a: a,
}
"""Functions of numbers; a float is computed in float64 and rounded once."""
_NODES = (
    *(tir.SeqStmt, tir.For, tir.While, tir.IfThenElse, tir.BufferStore, tir.LetStmt, tir.BlockRealize, tir.Block),
    *(tir.AttrStmt, tir.DeclBuffer, tir.IntImm, tir.FloatImm, tir.StringImm, tir.Var, tir.BufferLoad, tir.Cast),
    *(tir.And, tir.Or, tir.Not, tir.Select, tir.Let, tir.Div, tir.Mod, tir.Evaluate, *_BINARY),
)


class Evaluated:
    """A kernel that may be called like a compiled one.

    Raises:
        NotImplementedError: it has something in it that is not known, also where it would not be reached.
    """

    def __init__(self, function: tir.PrimFunc) -> None:
        nodes: list[Any] = []
        tir.stmt_functor.post_order_visit(function.body, nodes.append)
        for node in nodes:  # not while visiting: TVM would make another exception of it
            if not _known(node):
                raise NotImplementedError(f"evaluated kernels have no {type(node).__name__}: {node}")
        self._function = function
        self._numbers: dict[Any, Number] = {}
        self._memory: dict[Any, np.ndarray] = {}

    def __call__(self, *arguments: Tensor | float) -> None:
        for parameter, argument in zip(self._function.params, arguments, strict=True):
            if parameter in self._function.buffer_map:
                buffer = self._function.buffer_map[parameter]
                assert isinstance(argument, Tensor)
                if not argument.is_contiguous():  # reshape would copy it
                    raise NotImplementedError(f"evaluated kernels have no strides: {buffer.name}")
                self._memory[buffer.data] = argument.numpy().reshape(-1)
                for size, wanted in zip(argument.shape, buffer.shape, strict=True):
                    if isinstance(wanted, tir.Var):
                        self._numbers[wanted] = _typed(size, wanted.dtype)
            else:
                self._numbers[parameter] = _typed(argument, parameter.dtype)
        with np.errstate(all="ignore"):
            self._run(self._function.body)

    def _run(self, statement: Any) -> None:
        match statement:
            case tir.SeqStmt():
                for one in statement.seq:
                    self._run(one)
            case tir.For():
                first = int(self._value(statement.min))
                for at in range(first, first + int(self._value(statement.extent))):
                    self._numbers[statement.loop_var] = _typed(at, statement.loop_var.dtype)
                    self._run(statement.body)
            case tir.While():
                while self._value(statement.condition):
                    self._run(statement.body)
            case tir.IfThenElse():
                if self._value(statement.condition):
                    self._run(statement.then_case)
                elif statement.else_case is not None:
                    self._run(statement.else_case)
            case tir.BufferStore():
                memory, at = self._place(statement)
                memory[at] = self._value(statement.value)
            case tir.LetStmt():
                self._numbers[statement.var] = self._value(statement.value)
                self._run(statement.body)
            case tir.BlockRealize():
                for variable, value in zip(statement.block.iter_vars, statement.iter_values, strict=True):
                    self._numbers[variable.var] = self._value(value)
                for buffer in statement.block.alloc_buffers:
                    self._allocate(buffer)
                self._run(statement.block.body)
            case tir.AttrStmt() | tir.DeclBuffer():
                self._run(statement.body)
            case tir.Evaluate():
                self._value(statement.value)

    def _allocate(self, buffer: tir.Buffer) -> None:
        """Return memory that shows where it is read before it is written: NaN, and -1 in integers."""
        size = math.prod(int(self._value(one)) for one in buffer.shape)
        dtype = np.dtype(buffer.dtype)
        self._memory[buffer.data] = np.full(size, np.nan if dtype.kind == "f" else -1, dtype)

    def _place(self, access: Any) -> tuple[np.ndarray, int]:
        """Return the memory of a load or a store, and which element of it.

        Raises:
            IndexError: it is beside the memory.
        """
        memory, at = self._memory[access.buffer.data], 0
        for index, size in zip(access.indices, access.buffer.shape, strict=True):
            at = at * int(self._value(size)) + int(self._value(index))
        if not 0 <= at < len(memory):
            raise IndexError(f"{access.buffer.name}: element {at} of {len(memory)}")
        return memory, at

    def _value(self, node: Any) -> Number:
        dtype = node.dtype
        match node:
            case tir.IntImm() | tir.FloatImm():
                return _typed(node.value, dtype)
            case tir.Var():
                return self._numbers[node]
            case tir.BufferLoad():
                memory, at = self._place(node)
                return memory[at]
            case tir.Cast():
                return _typed(self._value(node.value), dtype)
            case tir.And():
                return self._value(node.a) and self._value(node.b)
            case tir.Or():
                return self._value(node.a) or self._value(node.b)
            case tir.Not():
                return np.bool_(not self._value(node.a))
            case tir.Select():
                return self._value(node.true_value if self._value(node.condition) else node.false_value)
            case tir.Let():
                self._numbers[node.var] = self._value(node.value)
                return self._value(node.body)
            case tir.Div() | tir.Mod():
                a, b = self._value(node.a), self._value(node.b)
                if dtype.startswith("float"):
                    return a / b
                whole = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)  # towards zero, as in C
                return _typed(whole if isinstance(node, tir.Div) else int(a) - whole * int(b), dtype)
            case tir.Call():
                return self._call(node)
        return _BINARY[type(node)](self._value(node.a), self._value(node.b))

    def _call(self, node: tir.Call) -> Number:
        name = node.op.name
        if name == "tir.if_then_else":
            return self._value(node.args[1] if self._value(node.args[0]) else node.args[2])
        given = [self._value(one) for one in node.args]
        wide = [np.float64(one) if isinstance(one, np.floating) else one for one in given]
        return _typed(_CALLS[name](*wide), node.dtype)


def _known(node: Any) -> bool:
    if isinstance(node, tir.Call):
        return node.op.name in {"tir.if_then_else", *_CALLS}
    return isinstance(node, _NODES)


def _typed(value: Any, dtype: str) -> Number:
    return np.dtype(dtype).type(value)


def install() -> None:
    """Evaluate programs in place of compiling them; any other way to compile than `tilelang.compile` raises."""

    def evaluated(function: tir.PrimFunc, **options: Any) -> Evaluated:
        if options.get("out_idx") is not None or not isinstance(function, tir.PrimFunc):
            raise NotImplementedError("evaluated are kernels that are given all that they write to")
        return Evaluated(function)

    def refused(*_: Any, **__: Any) -> None:
        raise NotImplementedError("evaluated are kernels that tilelang.compile is given")

    tilelang.compile = evaluated
    tilelang.JITKernel.__init__ = refused
