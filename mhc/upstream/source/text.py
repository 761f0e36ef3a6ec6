"""Statements and tensors as text, no line wider than a screen."""

import ast
import base64
import io
import math
import tokenize
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

WIDTH = 118
_LONG = 40
"""Characters of a literal that may stand on a line of its own."""

LITERAL = 96
_EXCEPTIONS = 8
_PIECE = 100
"""Characters of packed values in a line."""


def unparse(statements: Iterable[ast.stmt]) -> list[str]:
    """Return the lines of statements, with a blank one around functions."""
    lines: list[str] = []
    flat = True
    for statement in statements:
        function = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        if lines and (function or not flat):
            lines.append("")
        written = ast.unparse(ast.fix_missing_locations(statement)).splitlines()
        lines += [part for line in written if line.strip() for part in wrap(line)]
        flat = not function
    return lines


def wrap(line: str) -> list[str]:
    """Return a logical line, broken within brackets after commas, and before operators, long literals and parts of one."""
    if len(line) <= WIDTH:
        return [line]
    indent = len(line) - len(line.lstrip())
    places = _places(line)
    lines: list[str] = []
    start, rest = 0, ""
    while len(rest) + len(line) - start > WIDTH:
        fitting = [place for place in places if start < place <= start + WIDTH - len(rest)]
        if not fitting:
            break
        lines.append(rest + line[start : fitting[-1]].strip() if lines else line[: fitting[-1]].rstrip())
        start, rest = fitting[-1], " " * (indent + 8)
    return [*lines, rest + line[start:].strip() if lines else line]


def _places(line: str) -> list[int]:
    """Return where a line may be broken: columns, within brackets."""
    indent = len(line) - len(line.lstrip())
    places: set[int] = set()
    depth, last = 0, tokenize.ENCODING
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline):
            symbol = token.string if token.type == tokenize.OP else ""
            depth += symbol in {"(", "[", "{"}
            depth -= symbol in {")", "]", "}"}
            literal = token.type == tokenize.STRING and (last == tokenize.STRING or len(token.string) > _LONG)
            if depth > 0 and (literal or symbol in {"+", "-", "*", "/", "&", "|"}):
                places.add(indent + token.start[1])
            elif depth > 0 and symbol == ",":
                places.add(indent + token.end[1])
            last = token.type
    except (tokenize.TokenError, IndentationError):
        pass  # the head of a compound statement: the tokens before its end are all there are
    return sorted(places)


@dataclass(frozen=True)
class Text:
    """An expression, and lines that must stand after the assignment of it, with `{}` for the variable.

    Attributes:
        filled: the number in the expression with which the tensor is filled, if nothing was written to it.
    """

    expression: str
    after: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    filled: str = ""


def tensor_text(tensor: Tensor) -> Text:
    """Return the values of a tensor, dense: literal, one value with exceptions, or packed."""
    value = tensor.detach().cpu().contiguous()
    shape, sizes, dtype = shape_text(value.shape), tuple(value.shape), str(value.dtype)
    if value.numel() == 0:
        return Text(f"torch.empty({sizes}, dtype={dtype})")
    numbers = value.reshape(-1).to(torch.float64 if value.is_floating_point() else torch.int64).tolist()
    usual = max(set(numbers), key=numbers.count) if len(numbers) < 1 << 16 else numbers[0]
    others = [(at, number) for at, number in enumerate(numbers) if _differs(number, usual)]
    if len(others) <= _EXCEPTIONS and (len(numbers) > 4 or not others) and not math.isnan(usual):
        after = tuple(f"{{}}.view(-1)[{at}] = {_number(number)}" for at, number in others)
        return Text(f"torch.full({sizes}, {_number(usual)}, dtype={dtype})", after)
    if len(numbers) <= LITERAL:
        view = "" if value.dim() == 1 else f".view({shape})"
        return Text(f"torch.tensor([{', '.join(map(_number, numbers))}], dtype={dtype}){view}")
    packed = base64.b85encode(zlib.compress(value.view(torch.uint8).numpy().tobytes(), 9)).decode()
    pieces = " ".join(repr(packed[at : at + _PIECE]) for at in range(0, len(packed), _PIECE))
    raw = f"bytearray(zlib.decompress(base64.b85decode({pieces})))"
    return Text(f"torch.frombuffer({raw}, dtype={dtype}).view({shape})", imports=("import base64", "import zlib"))


def strided_text(tensor: Tensor, shape: Iterable[int]) -> tuple[str, ...]:
    """Return the lines that give a dense variable `{}` the strides of `tensor`, in a storage of NaN."""
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    view = f"as_strided({tuple(shape)}, {tuple(tensor.stride())})"
    return (f"{{0}} = torch.full(({reach},), math.nan, dtype={{0}}.dtype).{view}.copy_({{0}})",)


def shape_text(shape: Iterable[int]) -> str:
    return ", ".join(map(str, shape))


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return repr(value)


def _differs(a: float, b: float) -> bool:
    """Return whether two values differ: -0.0 and 0.0 do, NaN and NaN do not."""
    return not (a == b and math.copysign(1, a) == math.copysign(1, b)) and not (math.isnan(a) and math.isnan(b))
