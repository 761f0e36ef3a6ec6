"""TVM's arithmetic on a program's integer expressions, without the rest of the compiler.

Each index, condition and value of integers goes through what TileLang's passes call on it: `Analyzer.simplify`, then

- a condition: `can_prove` of it and of its contrary;
- an index: the flat index through `iter_map_simplify`, as `FlattenBuffer` does;
- any: `const_int_bound`.

The evaluator then runs the program with what came out, so that a wrong rewriting is a wrong value. TVM's arithmetic takes
signed integers to be unbounded, and so they are here; a program that overflows is not judged at all.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs import arithmetic, grammar
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.evaluate import Machine, block_name, evaluate
from mhc.programs.grammar import Expr, Program
from mhc.programs.tilelang_lower import tilelang

Term = Any
"""An expression of TVM's."""
_Env = dict[str, Any]
_Run = Callable[[_Env], Any]
_LEAVES = (grammar.Const, grammar.Var, grammar.Load)
"""What nothing rewrites."""


def lower(program: Program) -> str:
    """Return each expression that changes, and what becomes of it, a line each.

    Raises:
        CompileError: TVM refuses one.
    """
    machine = Rewritten(program)
    machine.block(program.body)
    return "\n".join(machine.lines) + "\n"


def prepare(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Return what runs each program with its expressions rewritten. The other arguments make no difference."""
    return [_run for _ in programs]


def _run(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    try:
        return evaluate(program, machine=Rewritten)
    except (arithmetic.Invalid, ZeroDivisionError, OverflowError) as error:  # the program is valid; what became of it is not
        raise CompileError("run", str(error)) from error


class Rewritten(Machine):
    """Makes Python functions of a program's nodes, and of integer expressions after TVM has rewritten them."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.lines: list[str] = []
        self.ranges = {block_name(axis): (0, extent) for axis, extent in enumerate(program.grid)}

    def _loop(self, node: grammar.For) -> _Run:
        around = self.ranges
        low, high = min(node.indices), max(node.indices)
        if node.first is None:
            self.ranges = {**around, node.var: (low, high - low + 1)}
        run = super()._loop(node)
        self.ranges = around
        return run

    def expression(self, node: Expr) -> _Run:
        if isinstance(node, _LEAVES) or not self._is_integral(node):
            return super().expression(node)
        return self.rewritten(node, lambda terms, term: _simplified(terms, term, proves=self._dtype(node) == "bool"))

    def place(self, name: str, at: Sequence[Expr]) -> Callable[[_Env], int]:
        buffer = self._buffers[name]
        if any(self._dtype(one) != "int32" for one in at):
            return super().place(name, at)
        flat = at[0]
        for index, size in zip(at[1:], buffer.shape[1:], strict=True):
            flat = grammar.Binary("+", grammar.Binary("*", flat, grammar.Const(size)), index)
        if isinstance(flat, _LEAVES) or not self._is_integral(flat):
            return super().place(name, at)
        return self.rewritten(flat, _iter_map, buffer.size)

    def _is_integral(self, node: Expr) -> bool:
        """Return whether TVM's arithmetic may rewrite an expression: all of it but its loads is of integers and bool."""
        if isinstance(node, grammar.Bits) or self._dtype(node) in grammar.FLOATS:
            return False
        return isinstance(node, grammar.Load) or all(map(self._is_integral, _operands(node)))

    def rewritten(self, node: Expr, rewrite: Callable[["_Terms", Term], Term], size: int = 0) -> _Run:
        """Return what computes an expression after a rewriting.

        Args:
            size: of the buffer that it is an index of: a value that is none is invalid.
        """
        terms = _Terms(self.ranges, self._dtype)
        try:
            term = terms.term(node)
            after = rewrite(terms, term)
        except Exception as error:
            raise CompileError("lower", f"{type(error).__name__}: {error}") from error
        if str(after) != str(term):
            self.lines.append(f"{term}  ->  {after}")
        opaque = {var.name: self.expression(leaf) for leaf, var in terms.variables.items()}
        run = computed(after, lambda one: opaque[one.name] if type(one).__name__ == "Var" else None)
        if not size:
            return run

        def place(memory: _Env) -> int:
            index: int = run(memory)
            if not 0 <= index < size:
                raise arithmetic.Invalid(f"there is no element {index} of {size}")
            return index

        return place


@dataclass
class _Terms:
    """Makes TVM's expressions of a program's.

    Attributes:
        ranges: of loops and blocks, as begin and extent. dtype: returns an expression's.
        variables: what stands for each load and each variable.
    """

    ranges: Mapping[str, tuple[int, int]]
    dtype: Callable[[Expr], str]
    variables: dict[Expr, Term] = field(default_factory=dict)

    def term(self, node: Expr) -> Term:
        """Return an expression as the front end makes it, with its folding of constants."""
        tir = _tir()
        dtype = self.dtype(node)
        match node:
            case grammar.Const():
                return tir.const(int(node.value), dtype)
            case grammar.Var() | grammar.Load():
                return self._variable(node, dtype)
            case grammar.Unary():
                return _UNARY[node.op](self.term(node.a))
            case grammar.Cast():
                return self.term(node.a).astype(dtype)
            case grammar.Select():
                return tir.Select(*map(self.term, (node.condition, node.a, node.b)))
            case grammar.Binary():
                return _binary(node.op)(self.term(node.a), self.term(node.b))
        raise AssertionError(node)

    def _variable(self, node: grammar.Var | grammar.Load, dtype: str) -> Term:
        if node not in self.variables:
            name = node.name if isinstance(node, grammar.Var) else f"{node.buffer}{len(self.variables)}"
            self.variables[node] = _tir().Var(name, dtype)
        return self.variables[node]

    @property
    def loops(self) -> dict[Term, Any]:
        """Return the ranges of the variables that are indices of loops and blocks."""
        made, const = tilelang().tvm.ir.Range.from_min_extent, _tir().const
        known = [var for var in self.variables.values() if var.name in self.ranges]
        return {var: made(*(const(end, var.dtype) for end in self.ranges[var.name])) for var in known}

    def analyzer(self) -> Any:
        """Return an analyzer that knows the ranges of loops."""
        made = tilelang().tvm.arith.Analyzer()
        for one, range_ in self.loops.items():
            made.bind(one, range_)
        return made


def _simplified(terms: _Terms, term: Term, *, proves: bool = False) -> Term:
    """Return an expression simplified, within the bounds that are found for it."""
    tir, analyzer = _tir(), terms.analyzer()
    after = analyzer.simplify(term)
    if proves:
        if analyzer.can_prove(term):
            return tir.const(True, "bool")
        return tir.const(False, "bool") if analyzer.can_prove(tir.Not(term)) else after
    bound = analyzer.const_int_bound(term)
    limits = grammar.range_of("int32")
    least, most = max(limits[0], bound.min_value), min(limits[1], bound.max_value)
    if term.dtype != "int32" or (least, most) == limits:
        return after
    return tir.Min(tir.Max(after, tir.const(least, "int32")), tir.const(most, "int32"))


def _iter_map(terms: _Terms, term: Term) -> Term:
    """Return a flat index as `FlattenBuffer` simplifies it."""
    arith = tilelang().tvm.arith
    level = arith.iter_affine_map.IterMapLevel.Surjective
    (after,) = arith.iter_map_simplify([terms.analyzer().simplify(term)], terms.loops, True, level)
    return after


def _tir() -> Any:
    tvm = tilelang().tvm
    return tvm.tirx if hasattr(tvm, "tirx") else tvm.tir  # its name since TileLang 0.1.10 or so


def _operands(node: Expr) -> tuple[Any, ...]:
    return () if isinstance(node, grammar.Load) else grammar.children(node)


@functools.cache
def _binary(op: str) -> Callable[[Term, Term], Term]:
    tir = _tir()
    made: Mapping[str, Callable[[Any, Any], Any]] = {
        "min": tir.min,
        "max": tir.max,
        "truncdiv": tir.truncdiv,
        "truncmod": tir.truncmod,
        "ceildiv": tir.ceildiv,
        "and": tir.And,
        "or": tir.Or,
        "//": tir.floordiv,
        "%": tir.floormod,
        "==": tir.EQ,
        "!=": tir.NE,
    }
    return {**arithmetic.PLAIN, **arithmetic.COMPARE, **_SHIFTS, **made}[op]


_SHIFTS: Mapping[str, Callable[[Any, Any], Any]] = {"<<": operator.lshift, ">>": operator.rshift}
_UNARY: Mapping[str, Callable[[Term], Term]] = {
    "-": operator.neg,
    "+": lambda a: a,
    "~": operator.invert,
    "not": lambda a: _tir().Not(a),
    "abs": lambda a: _tir().abs(a),
}


def computed(term: Term, leaf: Callable[[Term], _Run | None]) -> _Run:
    """Return what computes one of TVM's expressions: signed integers unbounded, unsigned ones wrapped.

    Args:
        leaf: returns what computes a variable or a load; None for a node of arithmetic.

    Raises:
        NotImplementedError: it has another node.
    """
    known = leaf(term)
    if known is not None:
        return known
    kind = type(term).__name__
    if kind == "IntImm":
        value = int(term.value)
        return lambda memory: value
    if kind == "Cast":
        convert, inner = arithmetic.converter(term.value.dtype, term.dtype), computed(term.value, leaf)
        return lambda memory: convert(inner(memory))
    name = term.op.name.rpartition(".")[2] if kind == "Call" else kind
    if name not in _LAZY and name not in _NODES:
        raise NotImplementedError(f"a rewritten expression has {name}: {term}")
    below = term.args if kind == "Call" else [getattr(term, one) for one in _FIELDS.get(kind, ("a", "b"))]
    operands = [computed(one, leaf) for one in below]
    if name in _LAZY:
        return _LAZY[name](*operands)
    if term.dtype in grammar.FLOATS:
        compute = operator.truediv if name == "Div" else _NODES[name]
        return lambda memory: compute(*(one(memory) for one in operands))
    if name == "bitwise_not" and term.dtype == "bool":
        name = "Not"
    compute, fit = _NODES[name], arithmetic.fitting(term.dtype) if term.dtype in grammar.UNSIGNED else int
    return lambda memory: fit(compute(*(one(memory) for one in operands)))


def _chosen(condition: _Run, a: _Run, b: _Run) -> _Run:
    return lambda memory: a(memory) if condition(memory) else b(memory)


_FIELDS = {"Select": ("condition", "true_value", "false_value"), "Not": ("a",)}
_LAZY: Mapping[str, Callable[..., _Run]] = {
    "Select": _chosen,
    "if_then_else": _chosen,
    "And": lambda a, b: lambda memory: a(memory) and b(memory),
    "Or": lambda a, b: lambda memory: a(memory) or b(memory),
}
"""Nodes that do not evaluate all of their operands."""
_OPS = {
    **{"Add": "+", "Sub": "-", "Mul": "*", "Min": "min", "Max": "max"},
    **{"FloorDiv": "//", "FloorMod": "%", "Div": "truncdiv", "Mod": "truncmod"},
    **{"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="},
    **{"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"},
}
"""The grammar's operation for each of TVM's."""
_COMPUTE = {**arithmetic.PLAIN, **arithmetic.DIVIDE, **arithmetic.COMPARE, **_SHIFTS}
_NODES: Mapping[str, Callable[..., int]] = {
    **{name: _COMPUTE[op] for name, op in _OPS.items()},
    "Not": operator.not_,
    "bitwise_not": operator.invert,
    "abs": abs,
    "likely": lambda a: a,
    "large_uint_imm": lambda low, high: (high << 32) + low,
}
