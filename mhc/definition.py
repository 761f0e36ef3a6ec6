"""Operators from a FlashInfer-Bench `Definition`: a JSON file with axes, tensors and the source of a reference.

The schema is that of https://bench.flashinfer.ai/docs/flashinfer-trace/definition. Reading such a file executes the source.
"""

import ast
import keyword
import linecache
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import Tensor

from mhc import expression
from mhc.declaration import operator
from mhc.notation import DeclarationError
from mhc.operator import Operator

_FLOATS = ("bfloat16", "float16", "float32")
_INTEGERS = ("int32", "int64")
_LARGEST = 2**24
"""Elements of a tensor whose sizes are all constant, at most: the reference is called on it twice when it is declared."""


class DefinitionAxis(msgspec.Struct):
    """An axis: of a constant size, or of any."""

    type: Literal["const", "var"]
    value: int | None = None


class DefinitionTensor(msgspec.Struct):
    """A tensor, or a scalar, whose shape is None."""

    shape: list[str] | None
    dtype: str


class Definition(msgspec.Struct):
    """What is read of a definition; further fields, such as tags, are ignored."""

    name: str
    axes: dict[str, DefinitionAxis]
    inputs: dict[str, DefinitionTensor]
    outputs: dict[str, DefinitionTensor]
    reference: str
    constraints: list[str] | None = None

    @property
    def dtype(self) -> str:
        """Return the dtype of its cases: its 16-bit one, or float32."""
        of_tensors = {one.dtype for one in (*self.inputs.values(), *self.outputs.values()) if one.shape is not None}
        return next((one for one in _FLOATS if one in of_tensors), "float32")


def read_definition(path: str | Path) -> Definition:
    """Return what a file holds; nothing in it is executed.

    Raises:
        DeclarationError: the file is no definition; the message names it.
    """
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=Definition)
    except (OSError, msgspec.DecodeError) as error:  # ValidationError is one too
        raise DeclarationError(f"{path}: is no definition: {error}") from error
    names = (found.name, *found.axes, *found.inputs, *found.outputs)
    wrong = [one for one in names if not one.isidentifier() or keyword.iskeyword(one)]
    unknown = [
        one for two in (*found.inputs.values(), *found.outputs.values()) for one in two.shape or () if one not in found.axes
    ]
    if wrong or unknown:
        raise DeclarationError(f"{path}: {f'{wrong[0]!r} is no name' if wrong else f'{unknown[0]} is no axis of it'}")
    return found


def from_definition(path: str | Path, **declared: Any) -> Operator:
    """Return the operator that a FlashInfer-Bench definition describes; the source of its reference is executed.

    An axis of type `const` has this one size. A tensor in the definition's 16-bit dtype is in the dtype of the case, so that
    an implementation declares `dtypes=("bfloat16",)`, or what the file has. Constraints between sizes become formulas and
    ranges.

    Args:
        declared: what the file does not say, by name: notation of integers, `positions="[T] int64 in 0..S"`; values of
            scalars, `eps=(1e-6, 1e-5)`; and further keywords of `mhc.operator`, such as `tokens`.

    Raises:
        DeclarationError: the file is no definition, holds what cannot be declared, or lacks what must be; the message names
            the file and the part.
    """
    definition = read_definition(path)
    try:
        return _Import(definition, str(path), declared).operator()
    except DeclarationError as error:
        shown = str(error)
        raise DeclarationError(shown if shown.startswith(str(path)) else f"{path}: {shown}") from error


class _Import:
    """One definition on its way to an operator."""

    def __init__(self, definition: Definition, path: str, declared: Mapping[str, Any]) -> None:
        self.definition, self.path = definition, path
        self.given = dict(declared)
        self.keywords: dict[str, Any] = {}
        self.constant = {name: one.value for name, one in definition.axes.items() if one.type == "const"}

    def operator(self) -> Operator:
        run, defaults = self._run()
        tensors = [name for name, one in self.definition.inputs.items() if one.shape is not None]
        fixed = self._scalars(defaults)
        for name in tensors:
            self.keywords[name] = self.given.pop(name, None) or self._notation(name)
        for name, size in self.constant.items():
            if size is None:
                raise DeclarationError(f"axis {name} is constant, and has no value")
            self.keywords[name] = (size, size)
        for constraint in self.definition.constraints or ():
            self._constrain(constraint)
        used = {one for name in tensors for one in self.definition.inputs[name].shape or ()}
        used |= {one for text in self.keywords.values() if isinstance(text, str) for one in re.findall(r"\w+", text)}
        unused = [name for name in self.definition.axes if name not in used]
        for name in unused:
            self.keywords.pop(name, None)
        self._limit(tensors)
        scalars = [name for name in self.definition.inputs if name not in tensors and name not in fixed]
        function = self._function(run, tensors, scalars, fixed)
        return operator(**{**self.keywords, **self.given})(function)

    def _notation(self, name: str) -> str:
        tensor = self.definition.inputs[name]
        axes, dtype = f"[{', '.join(tensor.shape or ())}]", tensor.dtype
        if dtype == self.definition.dtype:
            return f"{axes} storage"
        if dtype in {"float32", "bool"}:
            return f"{axes} {dtype}"
        if dtype in _INTEGERS:
            raise DeclarationError(f"no range is given for {name}, which is {dtype}; give {name}='{axes} {dtype} in 0..N'")
        raise DeclarationError(f"{name} is {dtype} in a definition of {self.definition.dtype}, which cannot be declared")

    def _scalars(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Declare scalars that are floats or have several values, and return the values of the others."""
        fixed: dict[str, Any] = {}
        for name, one in self.definition.inputs.items():
            if one.shape is not None:
                continue
            default = self.constant.get(name, defaults.get(name))
            value = self.given.pop(name, default)
            if value is None:
                example = f"{name}=(1e-6, 1e-5)" if one.dtype in _FLOATS else f"{name}=1"
                raise DeclarationError(f"{name} is a scalar, and no value is given; give it, as in {example}")
            if one.dtype in _FLOATS or isinstance(value, tuple):
                self.keywords[name] = value
            else:
                fixed[name] = value
        return fixed

    def _constrain(self, text: str) -> None:
        """Declare a constraint between sizes.

        Raises:
            DeclarationError: it is about values of tensors, or no formula or range says it.
        """
        plain = re.sub(r"\b(\w+)\.shape\[(-?\d+)\]", self._axis_of, text)
        refused = DeclarationError(f"constraint {text!r} cannot be declared; write the operator by hand (docs/operators.md)")
        try:
            tree = ast.parse(plain.strip(), mode="eval").body
        except SyntaxError:
            raise refused from None
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            raise refused
        left, right = ast.unparse(tree.left), ast.unparse(tree.comparators[0])
        if any(isinstance(one, (ast.Call, ast.Subscript, ast.Attribute)) for one in ast.walk(tree)):
            raise DeclarationError(
                f"constraint {text!r} is about values of tensors, which no size expresses; write the operator by hand"
            )
        names = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
        if names - self.definition.axes.keys():
            raise refused
        if left == right and isinstance(tree.ops[0], ast.Eq):
            return
        if names <= {one for one, size in self.constant.items() if size is not None}:
            if not eval(plain, {"__builtins__": {}}, dict(self.constant)):  # names of axes, numbers and operators
                raise DeclarationError(f"constraint {text!r} does not hold for its constant axes")
            return
        free = {one for one in names if self._variable(one)}
        if isinstance(tree.ops[0], ast.Eq):
            for one, other in ((left, right), (right, left)):
                if one in free and one not in expression.symbols(other):
                    self.keywords[one] = other
                    return
            raise refused
        self._bound(type(tree.ops[0]), left, right, refused)

    def _variable(self, name: str) -> bool:
        return self.definition.axes[name].type == "var" and name not in self.keywords

    def _axis_of(self, found: re.Match[str]) -> str:
        shape = self.definition.inputs[found[1]].shape if found[1] in self.definition.inputs else None
        at = int(found[2])
        return shape[at] if shape and -len(shape) <= at < len(shape) else found[0]

    def _bound(self, kind: type[ast.cmpop], left: str, right: str, refused: DeclarationError) -> None:
        """Declare `left` at least, or at most, as large as `right`."""
        if kind in {ast.Lt, ast.LtE}:
            left, right, kind = right, left, {ast.Lt: ast.Gt, ast.LtE: ast.GtE}[kind]
        more = {ast.Gt: 1, ast.GtE: 0}.get(kind)
        if more is None or left not in self.definition.axes or not self._variable(left):
            raise refused
        names = expression.symbols(right)
        if any(self._variable(one) for one in names):
            extra = f"{left}_more"
            self.keywords |= {left: f"{right}+{extra}", extra: (more, 8192)}
        else:
            least = expression.evaluate(right, {one: self.constant[one] or 0 for one in names}) + more
            self.keywords[left] = (least, max(8192, least))

    def _limit(self, tensors: list[str]) -> None:
        for name in tensors:
            elements = 1
            for axis in self.definition.inputs[name].shape or ():
                size = self.given.get(axis, self.keywords.get(axis))
                elements *= size[0] if isinstance(size, tuple) else 1
            if elements > _LARGEST:
                raise DeclarationError(f"{name} has at least {elements:,} elements, and at most {_LARGEST:,} can be checked")

    def _run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Execute the source, and return its names and the defaults of `run`."""
        file = f"{Path(self.path).resolve()} (reference)"
        source = self.definition.reference
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for tracebacks and messages
        names: dict[str, Any] = {"__name__": f"mhc_definition_{self.definition.name}"}
        try:
            exec(compile(source, file, "exec"), names)  # noqa: S102  the file's reference, which its user names
        except Exception as error:
            raise DeclarationError(f"its reference cannot be executed: {type(error).__name__}: {error}") from error
        run = names.get("run")
        if not callable(run):
            raise DeclarationError("its reference has no function `run`")
        tree = next(
            (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef) and one.name == "run"), None
        )
        wanted = list(self.definition.inputs)
        given = [] if tree is None else [one.arg for one in tree.args.args]
        if given and set(given) != set(wanted):
            raise DeclarationError(f"run({', '.join(given)}) does not take its inputs, {', '.join(wanted)}")
        defaults = [] if tree is None else tree.args.defaults
        last = given[len(given) - len(defaults) :]
        return names, {name: ast.literal_eval(value) for name, value in zip(last, defaults, strict=True)}

    def _function(
        self, names: dict[str, Any], tensors: list[str], scalars: list[str], fixed: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Return `run` under the definition's name: tensors are positional, scalars keyword-only arguments."""
        arguments = ", ".join([*tensors, *(["*", *scalars] if scalars else [])])
        passed = ", ".join(f"{one}={fixed[one]!r}" if one in fixed else f"{one}={one}" for one in self.definition.inputs)
        text = f"def {self.definition.name}({arguments}):\n    return run({passed})\n"
        exec(compile(text, f"{Path(self.path).resolve()} (reference)", "exec"), names)  # noqa: S102  names were checked
        made: Callable[..., Tensor] = names[self.definition.name]
        return made
