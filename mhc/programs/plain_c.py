"""A second evaluator: programs as C of our own, which gcc compiles. A difference from the first is a fault of one of them.

It shares nothing with the first but the grammar. What has no one meaning (an overflow, a shift, an index, a division by 0)
is an error here too. Blocks, parallel iterations, sums and copies run in the opposite order, since none may matter.
"""

import ctypes
import itertools
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs import c_library, grammar
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.evaluate import TURNS, block_name
from mhc.programs.grammar import Buffer, Expr, Program, Statement
from mhc.programs.plain_c_prelude import PRELUDE, TYPES

_PLAIN = ("&", "|", "^", "/")
_NAMED = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "floormod", "<<": "shl", ">>": "shr"}
_UNARY = {"-": "neg", "+": "pos", "~": "inv", "abs": "abs", **{one: one for one in grammar.FUNCTIONS}}
_LOGIC = {"and": "&&", "or": "||"}


def release() -> str:
    """Return the version of the C compiler."""
    return subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()


def source_of(program: Program) -> str:
    """Return the program as a C function `f_kernel`."""
    text = _Text(program)
    kinds = ((one, "" if one.scope == "value" else "*") for one in program.arguments)
    parameters = ", ".join(f"{TYPES[one.dtype]}{star} {_name(one.name)}" for one, star in kinds)
    sizes = [f"const int32_t {_name(name)} = {value};" for name, value in program.symbols.items()]
    declared = [line for one in program.buffers if one.scope not in {"global", "value", "index"} for line in _declared(one)]
    body = sizes + declared + text.block(program.body)
    for axis, extent in reversed(list(enumerate(program.grid))):
        body = _backwards(_name(block_name(axis)), extent, body)
    return "\n".join([f"void f_kernel({parameters}) {{", *_indented(body), "}"]) + "\n"


def prepare(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Compile what was rendered, all in one file, and return what runs each program.

    Args:
        folder: as for `mhc.programs.tilelang_c.prepare`. exact: makes no difference.
    """
    texts = [c_library.renamed(source, number) for number, source in enumerate(sources)]
    found = c_library.libraries(texts, PRELUDE, folder)
    return [
        one if isinstance(one, CompileError) else partial(_called, one, f"f_kernel_{number}")
        for number, one in enumerate(found)
    ]


def _called(library: c_library.Library, function: str, program: Program) -> dict[str, np.ndarray[Any, Any]]:
    error = ctypes.c_char_p.in_dll(library, "program_error")
    error.value = None
    outputs = c_library.call(library, function, [one.name for one in program.arguments], program)
    if error.value is not None:
        raise CompileError("run", error.value.decode())
    return outputs


def _name(name: str) -> str:
    """Return the name of a buffer or an index, which is none of C's own."""
    return f"{name}_"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _loop(name: str, begin: str, extent: int, body: Sequence[str], count: str = "", step: int = 1) -> list[str]:
    """Return a loop; `count` computes its number of iterations, once."""
    first, end = (f", {name}end = {name} + {count}", f"{name}end") if count else ("", f"{begin} + {extent * step}")
    goes_on = f"{name} {'<' if step > 0 else '>'} {end}"
    return [f"for (int32_t {name} = {begin}{first}; {goes_on}; {name} += {step}) {{", *_indented(body), "}"]


def _backwards(name: str, extent: int, body: Sequence[str], begin: int = 0) -> list[str]:
    """Return a loop whose order does not matter: from the end."""
    return [f"for (int32_t {name} = {begin + extent - 1}; {name} >= {begin}; --{name}) {{", *_indented(body), "}"]


def _declared(one: Buffer) -> list[str]:
    """Return what makes a temporary buffer, filled with a byte that no program reads."""
    name = _name(one.name)
    return [f"{TYPES[one.dtype]} {name}[{one.size}];", f"memset({name}, 0xA5, sizeof {name});"]


def _flat(index: Sequence[str], shape: Sequence[int]) -> str:
    """Return where an element lies, of indices that are in bounds."""
    place = index[0]
    for one, size in zip(index[1:], shape[1:], strict=True):
        place = f"({place}) * {size} + {one}"
    return place


class _Text:
    """Writes the nodes of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loops = itertools.count()

    def block(self, body: Sequence[Statement]) -> list[str]:
        """Return the lines of statements."""
        return [line for one in body for line in self._statement(one)]

    def _statement(self, node: Statement) -> list[str]:
        match node:
            case grammar.For(kind="Parallel" | "vectorized"):
                return _backwards(_name(node.var), node.extent, self.block(node.body), node.begin)
            case grammar.For():
                count = "" if node.count is None else f"at({self.expression(node.count)}, {node.extent + 1})"
                begin = str(node.begin) if node.first is None else self.expression(node.first)
                return _loop(_name(node.var), begin, node.extent, self.block(node.body), count, node.step)
            case grammar.While():
                turns = f"turns{next(self._loops)}"
                checked = [f'check(++{turns} <= {TURNS}, "too many turns");', f"if ({turns} > {TURNS}) break;"]
                body = [*checked, *self.block(node.body)]
                return [f"int {turns} = 0;", f"while ({self.expression(node.condition)}) {{", *_indented(body), "}"]
            case grammar.Leave():
                return [f"{node.how};"]
            case grammar.Store():
                return [f"{self._element(node.buffer, node.at)} = {self.expression(node.value)};"]
            case grammar.Assign():
                return [f"{_name(node.name)}[0] = {self.expression(node.value)};"]
            case grammar.If():
                lines = [f"if ({self.expression(node.condition)}) {{", *_indented(self.block(node.then))]
                return [*lines, "} else {", *_indented(self.block(node.otherwise)), "}"]
            case grammar.Assume():
                return [f'check({self.expression(node.condition)}, "an assumption that does not hold");']
            case grammar.AtomicAdd():
                at, dtype = self._element(node.buffer, node.at), self._buffer(node.buffer).dtype
                return [f"{at} = {_binary('+', dtype, at, self.expression(node.value))};"]
            case grammar.Copy():
                return self._copy(node)
            case grammar.Fill():
                name, size = _name(node.buffer), self._buffer(node.buffer).size
                return _backwards("o", size, [f"{name}[o] = {self.expression(node.value)};"])
            case grammar.Reduce():
                return self._reduce(node)
            case grammar.Scan():
                return self._scan(node)
            case grammar.Gemm():
                return self._gemm(node)
        raise AssertionError(node)

    # --- tile operations

    def _copy(self, node: grammar.Copy) -> list[str]:
        source, target = self._buffer(node.source), self._buffer(node.target)
        lines = []
        for prefix, at in (("s", node.source_at), ("t", node.target_at)):
            for axis, begin in enumerate(at):
                start = str(begin) if isinstance(begin, int) else self.expression(begin)
                lines.append(f"int64_t {prefix}{axis} = {start};")
        value = self._part(source, "s", lambda element: _cast(source.dtype, target.dtype, element), "0")
        inner = [f"{TYPES[target.dtype]} value = {value};", f"{self._part(target, 't', '{} = value'.format, '(void)0')};"]
        for axis, extent in reversed(list(enumerate(node.extents))):
            inner = _backwards(f"o{axis}", extent, inner)
        return ["{", *_indented([*lines, *inner]), "}"]

    def _part(self, one: Buffer, prefix: str, use: Callable[[str], str], beyond: str) -> str:
        """Return the use of an element of a part, or what is in its place over the end of a parameter."""
        places = [(f"{prefix}{axis} + o{axis}", size) for axis, size in enumerate(one.shape)]
        checked = [f"at({place}, {size})" for place, size in places]
        element = use(f"{_name(one.name)}[{_flat(checked, one.shape)}]")
        if one.scope != "global":
            return element
        return f"({' | '.join(f'over({place}, {size})' for place, size in places)}) ? {beyond} : ({element})"

    def _reduce(self, node: grammar.Reduce) -> list[str]:
        source, target, dtype = _name(node.source), _name(node.target), self._buffer(node.source).dtype
        before, count, after = self._around(node.source, node.axis)
        value, place = f"{source}[(o * {count} + k) * {after} + i]", f"o * {after} + i"
        if node.op.startswith("abs"):
            value = f"abs_{dtype}({value})"
        op = "+" if node.op.endswith("sum") else node.op.removeprefix("abs")
        begin = "0" if op == "+" else value.replace("+ k", "+ 0")
        body = [
            f"{TYPES[dtype]} all = {begin if node.clear else f'{target}[{place}]'};",
            *_backwards("k", count, [f"all = {_binary(op, dtype, 'all', value)};"]),
            f"{target}[{place}] = all;",
        ]
        return _backwards("o", before, _backwards("i", after, body))

    def _scan(self, node: grammar.Scan) -> list[str]:
        source, target, dtype = _name(node.source), _name(node.target), self._buffer(node.source).dtype
        before, count, after = self._around(node.source, node.axis)
        place = f"(o * {count} + k) * {after} + i"
        step = [f"all = {_binary('+', dtype, 'all', f'{source}[{place}]')};", f"{target}[{place}] = all;"]
        line = _backwards("k", count, step) if node.reverse else _loop("k", "0", count, step)
        return _backwards("o", before, _backwards("i", after, [f"{TYPES[dtype]} all = 0;", *line]))

    def _around(self, name: str, axis: int) -> tuple[int, int, int]:
        """Return how many elements there are along the axes before one, along it, and along those after it."""
        shape = self._buffer(name).shape
        return int(np.prod(shape[:axis])), shape[axis], int(np.prod(shape[axis + 1 :]))

    def _gemm(self, node: grammar.Gemm) -> list[str]:
        dtype, (m, n) = self._buffer(node.c).dtype, self._buffer(node.c).shape
        k = self._buffer(node.a).shape[0 if node.transpose_a else 1]
        a = f"{_name(node.a)}[{f'k * {m} + i' if node.transpose_a else f'i * {k} + k'}]"
        b = f"{_name(node.b)}[{f'j * {k} + k' if node.transpose_b else f'k * {n} + j'}]"
        operands = [_cast(self._buffer(name).dtype, dtype, text) for name, text in ((node.a, a), (node.b, b))]
        c = f"{_name(node.c)}[i * {n} + j]"
        body = [
            f"{TYPES[dtype]} all = {'0' if node.clear else c};",
            *_backwards("k", k, [f"all = {_binary('+', dtype, 'all', _binary('*', dtype, *operands))};"]),
            f"{c} = all;",
        ]
        return _backwards("i", m, _backwards("j", n, body))

    # --- expressions

    def expression(self, node: Expr) -> str:
        """Return an expression, whose value is one of its dtype."""
        match node:
            case grammar.Const():
                return _constant(node)
            case grammar.Var():
                is_array = any(one.name == node.name and one.scope in {"var", "let"} for one in self._program.buffers)
                return f"{_name(node.name)}[0]" if is_array else _name(node.name)
            case grammar.Load():
                return self._element(node.buffer, node.at)
            case grammar.Cast():
                return _cast(self._dtype(node.a), node.dtype, self.expression(node.a))
            case grammar.Bits():
                return f"{node.dtype}_of_{self._dtype(node.a)}({self.expression(node.a)})"
            case grammar.Select():
                return f"({self.expression(node.condition)} ? {self.expression(node.a)} : {self.expression(node.b)})"
            case grammar.Unary(op="not"):
                return f"(!{self.expression(node.a)})"
            case grammar.Unary():
                return f"{_UNARY[node.op]}_{self._dtype(node.a)}({self.expression(node.a)})"
            case grammar.Binary(op="<<", a=grammar.Const(dtype=dtype) as a, b=grammar.Const() as b):
                return f"fold_shl_{dtype}({_constant(a)}, {_constant(b)})"
            case grammar.Binary():
                return _binary(node.op, self._dtype(node.a), self.expression(node.a), self.expression(node.b))
        raise AssertionError(node)

    def _element(self, name: str, at: Sequence[Expr]) -> str:
        shape = self._buffer(name).shape
        checked = [f"at({self.expression(one)}, {size})" for one, size in zip(at, shape, strict=True)]
        return f"{_name(name)}[{_flat(checked, shape)}]"

    def _buffer(self, name: str) -> Buffer:
        return self._program.buffer(name)

    def _dtype(self, node: Expr) -> str:
        return grammar.dtype_of(node, self._program)


def _binary(op: str, dtype: str, a: str, b: str) -> str:
    if op in grammar.COMPARISONS:
        return f"({a} {op} {b})"
    if op in grammar.LOGIC:
        return f"({a} {_LOGIC[op]} {b})"
    if op in _PLAIN:
        return f"(({TYPES[dtype]})({a} {op} {b}))"
    return f"{_NAMED.get(op, op)}_{dtype}({a}, {b})"


def _cast(before: str, after: str, value: str) -> str:
    if after == "bool":
        return f"({value} != 0)"
    if before in grammar.FLOATS and after in grammar.INTEGERS:
        return f"{after}_of_float({value})"
    return f"(({TYPES[after]}){value})"


def _constant(node: grammar.Const) -> str:
    if node.dtype in grammar.FLOATS:
        return f"(({TYPES[node.dtype]}){float(node.value)!r})"
    if node.value == -(2**63):
        return "INT64_MIN"
    suffix = "ULL" if node.dtype == "uint64" else "LL"
    return f"(({TYPES[node.dtype]}){int(node.value)}{suffix})"
