"""The TileLang source of a program: the text that is compiled is the text that a maintainer reads."""

import math
from collections.abc import Sequence

from mhc.programs import grammar
from mhc.programs.evaluate import block_name
from mhc.programs.grammar import Buffer, Expr, Program, Statement

CPU_OLD = "is_cpu=True"
"""What `T.Kernel` is given for the CPU before TileLang 0.1.9; later the target says it."""
_INFIX = {"+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "/", *grammar.COMPARISONS, *grammar.LOGIC}
_NARROW = ("int8", "uint8", "int16", "uint16", "float16")
_BEYOND = {"uint32": 2**31, "uint64": 2**63}
"""By dtype, the least number that the front end does not take for one of that dtype beside another."""
_LEVELS = [
    ("or",),
    ("and",),
    ("not",),
    grammar.COMPARISONS,
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "//", "%", "/"),
]
_LEVEL = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_UNARY = len(_LEVELS)
_ATOM = _UNARY + 1


def render(program: Program, kernel: str = "") -> str:
    """Return a function `f` decorated by `T.prim_func`.

    Args:
        kernel: further arguments of `T.Kernel`.
    """
    text = _Text(program)
    parameters = ", ".join(_parameter(one, program) for one in program.arguments)
    blocks = [block_name(axis) for axis in range(len(program.grid))]
    bound = blocks[0] if len(blocks) == 1 else f"({', '.join(blocks)})"
    extents = ", ".join([*map(str, program.grid), *([kernel] if kernel else [])])
    symbols = [f'{name} = T.dynamic("{name}")' for name in program.symbols]
    lines = [*symbols, "@T.prim_func", f"def f({parameters}):", f"    with T.Kernel({extents}) as {bound}:"]
    for one in program.buffers:
        if one.scope == "var":
            lines.append(f'        {one.name} = T.alloc_var("{one.dtype}")')
        elif one.scope != "global" and not one.is_scalar:
            lines.append(f'        {one.name} = T.alloc_{one.scope}({_tuple(one.shape)}, "{one.dtype}")')
    lines += text.block(program.body, 2)
    return "\n".join(lines) + "\n"


def expression_text(node: Expr, program: Program) -> str:
    """Return the text of an expression of a program."""
    return _Text(program).expression(node)


def _parameter(one: Buffer, program: Program) -> str:
    if one.scope == "value":
        return f"{one.name}: T.{one.dtype}"
    return f'{one.name}: T.Tensor({_tuple([program.symbol(size) or size for size in one.shape])}, "{one.dtype}")'


def _tuple(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


class _Text:
    """Writes the nodes of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def block(self, body: Sequence[Statement], depth: int) -> list[str]:
        """Return the lines of statements."""
        return [line for one in body for line in self._statement(one, depth)] or [f"{'    ' * depth}pass"]

    def _statement(self, node: Statement, depth: int) -> list[str]:
        space = "    " * depth
        match node:
            case grammar.For():
                return self._loop(node, depth)
            case grammar.While():
                return [f"{space}while {self.expression(node.condition)}:", *self.block(node.body, depth + 1)]
            case grammar.Leave():
                return [f"{space}{node.how}"]
            case grammar.Store():
                return [f"{space}{node.buffer}[{self._list(node.at)}] = {self.expression(node.value)}"]
            case grammar.Assign():
                return [f"{space}{node.name} = {self.expression(node.value)}"]
            case grammar.If():
                lines = [f"{space}if {self.expression(node.condition)}:", *self.block(node.then, depth + 1)]
                if node.otherwise:
                    lines += [f"{space}else:", *self.block(node.otherwise, depth + 1)]
                return lines
            case grammar.Assume():
                return [f"{space}T.assume({self.expression(node.condition)})"]
            case grammar.AtomicAdd():
                return [f"{space}T.atomic_add({node.buffer}[{self._list(node.at)}], {self.expression(node.value)})"]
        return [f"{space}T.{self._tile(node)}"]

    def _loop(self, node: grammar.For, depth: int) -> list[str]:
        end = node.begin + node.extent * node.step - (node.rest if node.step > 0 else -node.rest)
        begin, last = str(node.begin), str(end)
        if (dtype := self._program.index_dtype(node)) != "int32":
            begin, last = f"T.{dtype}({begin})", f"T.{dtype}({last})"
        extents = f"{begin}, {last}" if node.begin else last
        if node.step != 1:
            extents = f"{begin}, {last}, {node.step}"
        if self._program.is_symbolic(node):
            extents = self._program.symbol(node.extent) or extents
        if node.first is not None and node.count is not None:
            known = isinstance(node.count, grammar.Binary) and (node.count.op, node.count.b) == ("-", node.first)
            after = node.count.a if known else grammar.Binary("+", node.first, node.count)  # type: ignore[union-attr]
            extents = f"{self.expression(node.first)}, {self.expression(after)}"
        elif node.count is not None:
            after = grammar.Binary("+", grammar.Const(node.begin), node.count) if node.begin else node.count
            extents = f"{node.begin}, {self.expression(after)}" if node.begin else self.expression(after)
        names, body = node.var, node.body
        if node.kind == "Pipelined":
            extents += f", num_stages={node.stages}"
        while node.kind == "Parallel" and len(body) == 1 and isinstance(body[0], grammar.For) and body[0].kind == "Parallel":
            names, extents, body = f"{names}, {body[0].var}", f"{extents}, {body[0].extent}", body[0].body
        return [f"{'    ' * depth}for {names} in T.{node.kind}({extents}):", *self.block(body, depth + 1)]

    def _tile(self, node: grammar.Tile) -> str:
        """Return the call of a tile operation, without `T.`."""
        match node:
            case grammar.Copy():
                source = self._region(node.source, node.source_at, node.extents)
                return f"copy({source}, {self._region(node.target, node.target_at, node.extents)})"
            case grammar.Fill():
                return f"fill({node.buffer}, {_literal(node.value)})"
            case grammar.Reduce():
                return (
                    f"reduce_{node.op}({node.source}, {node.target}, dim={node.axis}{'' if node.clear else ', clear=False'})"
                )
            case grammar.Scan():
                both = node.source if node.source == node.target else f"{node.source}, {node.target}"
                return f"cumsum({both}, dim={node.axis}{', reverse=True' if node.reverse else ''})"
            case grammar.Gemm():
                named = {"transpose_A": node.transpose_a, "transpose_B": node.transpose_b, "clear_accum": node.clear}
                options = "".join(f", {name}=True" for name, on in named.items() if on)
                return f"gemm({node.a}, {node.b}, {node.c}{options})"

    def _region(self, name: str, at: Sequence[int | Expr], extents: Sequence[int]) -> str:
        one = self._program.buffer(name)
        symbolic = one.scope == "global" and any(map(self._program.symbol, one.shape))
        if tuple(extents) == one.shape and not any(at) and not symbolic:
            return name
        return f"{name}[{', '.join(map(self._slice, at, extents))}]"

    def _slice(self, begin: int | Expr, size: int) -> str:
        if isinstance(begin, int):
            return f"{begin}:{begin + size}"
        return f"{self.expression(begin)}:{self.expression(grammar.Binary('+', begin, grammar.Const(size)))}"

    def _list(self, nodes: Sequence[Expr]) -> str:
        return ", ".join(self.expression(one) for one in nodes)

    def expression(self, node: Expr) -> str:
        """Return an expression's text."""
        return self._leveled(node)[0]

    def _leveled(self, node: Expr) -> tuple[str, int]:
        """Return the text of an expression, and how tightly it binds."""
        match node:
            case grammar.Const():
                return self._constant(node)
            case grammar.Var():
                return node.name, _ATOM
            case grammar.Load():
                return f"{node.buffer}[{self._list(node.at)}]", _ATOM
            case grammar.Cast():
                return f'T.cast({self.expression(node.a)}, "{node.dtype}")', _ATOM
            case grammar.Bits():
                return f'T.reinterpret("{node.dtype}", {self.expression(node.a)})', _ATOM
            case grammar.Select():
                return f"T.if_then_else({self._list((node.condition, node.a, node.b))})", _ATOM
            case grammar.Unary() if node.op in {"abs", *grammar.FUNCTIONS}:
                return f"T.{node.op}({self.expression(node.a)})", _ATOM
            case grammar.Unary(op="not"):
                return f"not {self._below(node.a, _LEVEL['not'])}", _LEVEL["not"]
            case grammar.Unary():
                return f"{node.op}{self._below(node.a, _UNARY)}", _UNARY
            case grammar.Binary():
                return self._binary(node)
        raise AssertionError(node)

    def _binary(self, node: grammar.Binary) -> tuple[str, int]:
        if node.op not in _INFIX:
            return f"T.{node.op}({self._operand(node.a, node.b)}, {self._operand(node.b, node.a)})", _ATOM
        level = _LEVEL[node.op]
        chained = node.op in grammar.COMPARISONS  # a < b < c means something else
        left = self._below(node.a, level + chained, node.b)
        return f"{left} {node.op} {self._below(node.b, level + 1, node.a)}", level

    def _below(self, node: Expr, level: int, other: Expr | None = None) -> str:
        """Return an operand's text, in brackets where it binds less tightly than the level."""
        if other is not None and isinstance(node, grammar.Const) and _is_bare(node, other):
            text, own = _literal(node), _ATOM if node.value >= 0 else _UNARY
        else:
            text, own = self._leveled(node)
        return f"({text})" if own < level else text

    def _operand(self, node: Expr, other: Expr) -> str:
        """Return an argument's text."""
        bare = isinstance(node, grammar.Const) and _is_bare(node, other)
        return _literal(node) if bare and isinstance(node, grammar.Const) else self.expression(node)

    def _constant(self, node: grammar.Const) -> tuple[str, int]:
        """Return a constant that stands alone, of which the text must say the dtype."""
        if node.dtype == "bool":
            return f"T.bool({bool(node.value)})", _ATOM
        if node.dtype == "int32":
            return _literal(node), _ATOM if node.value >= 0 else _UNARY
        return f"T.{node.dtype}({_literal(node)})", _ATOM


def _is_bare(node: grammar.Const, other: Expr) -> bool:
    """Return whether a constant beside another operand has that one's dtype without saying so.

    The front end takes a bare number for int32, float32 or, where it is beyond int32, for int64, which win over narrower
    dtypes, and folds what is constant.
    """
    beyond = node.value >= _BEYOND.get(node.dtype, math.inf)
    return node.dtype not in _NARROW and not beyond and not _is_folded(other)


def _is_folded(node: Expr) -> bool:
    """Return whether an expression has only constants, which the front end folds."""
    return not any(isinstance(one, (grammar.Var, grammar.Load)) for one in grammar.walk(node))


def _literal(node: grammar.Const) -> str:
    if node.dtype == "bool":
        return repr(bool(node.value))
    return repr(float(node.value)) if node.dtype in grammar.FLOATS else repr(node.value)
