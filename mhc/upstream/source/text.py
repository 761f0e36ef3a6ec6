"""Statements as text: without docstrings, and no line wider than a screen."""

import ast
import io
import tokenize
from collections.abc import Iterable

from mhc.upstream.source.flat import bare

WIDTH = 118
_LONG = 40
"""Characters of a literal that may stand on a line of its own."""


def unparse(statements: Iterable[ast.stmt]) -> list[str]:
    """Lines, with a blank one around functions."""
    lines: list[str] = []
    flat = True
    for statement in statements:
        function = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        if lines and (function or not flat):
            lines.append("")
        written = ast.unparse(ast.fix_missing_locations(bare(statement))).splitlines()
        lines += [part for line in written if line.strip() for part in wrap(line)]
        flat = not function
    return lines


def wrap(line: str) -> list[str]:
    """A logical line, broken within brackets after commas, and before operators, long literals and parts of one."""
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
    """Where a line may be broken: columns, within brackets."""
    commas, operators, strings, depth, last = [], [], [], 0, tokenize.ENCODING
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline):
            at = token.start[1] + len(line) - len(line.lstrip())
            if depth > 0 and token.type == tokenize.STRING and (last == tokenize.STRING or len(token.string) > _LONG):
                strings.append(at)
            last = token.type
            if token.type != tokenize.OP:
                continue
            depth += (token.string in "([{") - (token.string in ")]}")
            if depth > 0 and token.string == ",":
                commas.append(at + 1)
            elif depth > 0 and token.string in {"+", "-", "*", "/", "&", "|"}:
                operators.append(at)
    except (tokenize.TokenError, IndentationError):
        pass  # the head of a compound statement: the tokens before its end are all there are
    return sorted({*commas, *operators, *strings})
