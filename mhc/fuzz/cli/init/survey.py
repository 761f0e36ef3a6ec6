"""What a Python file holds, read from its syntax tree: kernels, the functions that launch them, and plain functions.

Nothing is executed. A *kernel* is a function for a compiler, such as one below `@triton.jit`. A *launcher* is a function
that calls a kernel, directly or through other functions, or a custom operator. Everything else is *plain*.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kernel", "launcher", "plain"]

_DRIVERS = re.compile(r"(test|bench|benchmark|profile|run|main)(_|$)|.*_(test|bench|benchmark)$")
"""Names of functions that call kernels, and are none that a model calls."""
_BACKWARD = re.compile(r"(^|_)(bwd|backward|grad|grads)(_|$)")
REFERENCE = re.compile(r"(^|_)(ref|reference|torch|pytorch|naive|golden|eager|baseline|expected)(_|\d|$)")
"""Names of references."""


class SurveyError(Exception):
    """Raised where a file does not hold what is wanted; the message says what it holds."""


@dataclass(frozen=True)
class Function:
    """A function of the file, or something that is called like one.

    Attributes:
        name: how it is called, as in `rms_norm` or `RMSNorm.apply`.
        node: the function whose arguments it takes, without `ctx`.
        mentions: the names in it.
        op: the qualified name of a custom operator, or "".
        differentiable: autograd finds a backward for it.
    """

    name: str
    kind: Kind
    node: ast.FunctionDef
    mentions: frozenset[str]
    op: str = ""
    differentiable: bool = False

    @property
    def parameters(self) -> list[ast.arg]:
        """Return its parameters, without those that only collect others."""
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return named[1:] if named and named[0].arg == "ctx" else named

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """Return the defaults of its parameters."""
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        last = positional[len(positional) - len(arguments.defaults) :]
        found = {one.arg: value for one, value in zip(last, arguments.defaults, strict=True)}
        only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return {**found, **{one.arg: value for one, value in only if value is not None}}


@dataclass(frozen=True)
class Survey:
    """The functions of a file; `dsl` is what its kernels are written in: "triton", "tilelang" or ""."""

    functions: tuple[Function, ...]
    dsl: str

    def kernels(self) -> list[Function]:
        """Return what could be tested: the outermost launchers; of those that have one, no backward and no driver."""
        found = [one for one in self.functions if one.kind == "launcher" and one.parameters and not _is_driver(one.name)]
        inner = {name for one in found for name in one.mentions if name != one.name.partition(".")[0]}
        outer = [one for one in found if one.name.partition(".")[0] not in inner]
        return [one for one in outer if not _BACKWARD.search(_snake(one.name))] or outer

    def references(self) -> list[Function]:
        """Return what could be a reference: plain functions that return something, and which no other calls, or named so."""
        plain = [one for one in self.functions if one.kind == "plain" and one.parameters and not _is_driver(one.name)]
        plain = [one for one in plain if any(isinstance(node, ast.Return) and node.value for node in ast.walk(one.node))]
        inner = {name for one in plain for name in one.mentions if name != one.name}
        return [one for one in plain if one.name not in inner or REFERENCE.search(one.name)]

    def named(self, name: str, option: str) -> Function:
        """Return the function of this name.

        Raises:
            SurveyError: there is none.
        """
        for one in self.functions:
            if name in {one.name, one.op} - {""}:
                return one
        there = ", ".join(one.name for one in self.functions if one.kind != "kernel") or "none"
        raise SurveyError(f"{option} {name}: there is no such function at the top level; there are {there}")


def survey(text: str, path: str) -> Survey:
    """Return what a file holds from its text.

    Raises:
        SurveyError: the text is no Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:  # ValueError: it holds a NUL
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise SurveyError(f"{path}: is no Python: {getattr(error, 'msg', error)}{where}") from error
    statements = list(_top_level(tree.body))
    defined = [one for one in statements if isinstance(one, ast.FunctionDef)]
    classes = [one for one in statements if isinstance(one, ast.ClassDef)]
    kernels = {one.name: dsl for one in defined if (dsl := _dsl(one))}
    ops = {one.name: op for one in defined if (op := _custom_op(one))}
    both: list[ast.FunctionDef | ast.ClassDef] = [*defined, *classes]
    mentions = {one.name: _names(one) for one in both}
    launching = {name for name in mentions if name not in kernels and (name in ops or _launches(name, mentions, kernels))}
    launching |= {one.name for one in both if one.name not in kernels and _subscripted_call(one)}
    while more := {
        name for name in mentions if name not in launching and name not in kernels and mentions[name] & launching
    }:
        launching |= more
    with_backward = {name for name in ops if f"{name}.register_autograd" in text}
    through = {one.name for one in classes if any("Function" in ast.unparse(base) for base in one.bases)} | with_backward
    while more := {name for name in mentions if name not in through and mentions[name] & through}:
        through |= more
    functions = [
        Function(
            one.name,
            "kernel" if one.name in kernels else "launcher" if one.name in launching else "plain",
            one,
            mentions[one.name],
            ops.get(one.name, ""),
            one.name in through or (one.name not in launching and one.name not in kernels),
        )
        for one in defined
    ]
    functions += _applied(statements, classes, launching, mentions)
    dsl = next(iter(kernels.values()), "")
    return Survey(tuple(functions), dsl)


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that the file executes when it is imported, into `if` and `try`."""
    for one in body:
        if isinstance(one, ast.If) and "__main__" in ast.unparse(one.test):
            continue
        yield one
        for part in ("body", "orelse", "finalbody"):
            if isinstance(one, (ast.If, ast.Try, ast.With)):
                yield from _top_level(getattr(one, part, []))


def _dsl(node: ast.FunctionDef) -> str:
    """Return what compiles a function; empty where it is Python."""
    for decorator in map(_decorator, node.decorator_list):
        if decorator.startswith(("triton.", "gluon.")) or decorator == "jit":
            return "triton"
    inside = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef)]
    if any(_decorator(one).endswith(("prim_func", "tilelang.jit")) for two in inside for one in two.decorator_list):
        return "tilelang"
    return ""


def _custom_op(node: ast.FunctionDef) -> str:
    """Return the name of the operator that a function registers with `torch.library`; empty where it registers none."""
    for one in node.decorator_list:
        named = isinstance(one, ast.Call) and one.args and isinstance(one.args[0], ast.Constant)
        if named and _decorator(one).endswith(("custom_op", "triton_op")):
            return str(one.args[0].value)  # type: ignore[attr-defined]
    return ""


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _launches(name: str, mentions: dict[str, frozenset[str]], kernels: dict[str, str]) -> bool:
    return bool(mentions[name] & kernels.keys())


def _subscripted_call(node: ast.AST) -> bool:
    """Return whether something is called as `kernel[grid](...)`, such as a kernel of another file."""
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript) and isinstance(one.func.value, ast.Name)
        for one in ast.walk(node)
    )


def _applied(
    statements: Sequence[ast.stmt],
    classes: Sequence[ast.ClassDef],
    launching: set[str],
    mentions: dict[str, frozenset[str]],
) -> list[Function]:
    """Return the autograd functions that no function calls, under the name that the file gives them or as `Class.apply`."""
    found = []
    for one in classes:
        forward = next((two for two in one.body if isinstance(two, ast.FunctionDef) and two.name == "forward"), None)
        called = any(one.name in names for name, names in mentions.items() if name != one.name)
        if forward is None or one.name not in launching or called or "Function" not in map(_last, one.bases):
            continue
        wanted = f"{one.name}.apply"
        given = [
            two.targets[0].id
            for two in statements
            if isinstance(two, ast.Assign) and isinstance(two.targets[0], ast.Name) and ast.unparse(two.value) == wanted
        ]
        found.append(Function((given or [wanted])[0], "launcher", forward, mentions[one.name], differentiable=True))
    return found


def _last(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[2]


def _is_driver(name: str) -> bool:
    return _DRIVERS.match(name) is not None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
