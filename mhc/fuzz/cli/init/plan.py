"""Which functions of a file are the kernel and the reference, how they are called, and in which shapes."""

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mhc.fuzz.cli.init.hints import MISSING, Hint, hints, merged
from mhc.fuzz.cli.init.shapes import Guess, ShapesError, guess
from mhc.fuzz.cli.init.survey import REFERENCE, Function, Survey, SurveyError
from mhc.fuzz.cli.init.text import Plan
from mhc.implementation import ImplementationError
from mhc.loading import importing

_OUT = ("out", "output", "y", "o", "result", "dst")
"""Names of an argument into which a kernel writes its result."""


def kernel_of(found: Survey, name: str | None, reference: str | None, path: Path, *, asks: bool) -> Function:
    """Return the function to check: the one named, or the only one, or the one that is chosen on the terminal.

    Raises:
        SurveyError: there is none, or which is not clear.
    """
    if name is not None:
        one = found.named(name, "--kernel")
        if one.kind == "kernel":
            raise SurveyError(f"--kernel {name}: is compiled; give the Python function that launches it, with its arguments")
        return one
    options = [one for one in found.kernels() if one.name != reference]
    if not options:
        options = [one for one in found.references() if one.name != reference and not REFERENCE.search(one.name)]
        others = [one for one in found.references() if one not in options]
        if not (options and others):
            if any(one.kind == "kernel" for one in found.functions):
                raise SurveyError(f"{path}: has a kernel, but no function at the top level that launches it")
            raise SurveyError(f"{path}: has no kernel; give --kernel and --reference for two plain functions")
    return _chosen(options, "--kernel", "Which function is to be checked?", path, asks=asks)


def reference_of(found: Survey, name: str | None, kernel: Function, path: Path, *, asks: bool) -> Function | None:
    """Return the reference: the one named, or the only plain function, or the only one with such a name; None without one.

    Raises:
        SurveyError: which is not clear.
    """
    if name is not None:
        one = found.named(name, "--reference")
        if one.name == kernel.name:
            raise SurveyError(f"--reference {name}: is the kernel, and nothing is compared with itself")
        if one.kind != "plain":
            raise SurveyError(f"--reference {name}: launches a kernel; a reference is plain PyTorch")
        return one
    options = [one for one in found.references() if one.name != kernel.name]
    named = [one for one in options if REFERENCE.search(one.name)]
    wanted = {one.arg for one in kernel.parameters}
    like = [one for one in named or options if len(wanted & {two.arg for two in one.parameters}) * 2 >= len(one.parameters)]
    options = named if len(named) == 1 else like or named or options
    return _chosen(options, "--reference", "Which function is the reference?", path, asks=asks) if options else None


def _chosen(options: Sequence[Function], option: str, question: str, path: Path, *, asks: bool) -> Function:
    if len(options) == 1:
        return options[0]
    names = [one.name for one in options]
    if asks:
        name = click.prompt(question, type=click.Choice(names))
        return next(one for one in options if one.name == name)
    raise SurveyError(f"{path}: has {len(names)} functions that it could be, {', '.join(names)}; give {option}")


def plan_of(source: Path, output: Path, found: Survey, kernel: Function, reference: Function | None, device: str) -> Plan:
    """Return what the file is to hold. The source is imported, and the reference called, if there is one.

    Raises:
        SurveyError: the source cannot be imported, or its reference called, or the kernel needs an argument that the
            reference does not have.
    """
    root, module = _module(source)
    shown = reference or kernel
    seen = hints(shown)
    names = _matched(seen, kernel)
    merged(seen, hints(kernel), names)
    required = [one.arg for one in kernel.parameters if one.arg not in kernel.defaults and one.arg not in names.values()]
    out = next((one for one in required if one in _OUT), "") if reference else ""
    missing = [one for one in required if one != out]
    if missing:
        raise SurveyError(
            f"{source}: {kernel.name} needs {', '.join(missing)}, which {shown.name} does not have; write a function "
            f"with the arguments of {shown.name} that calls {kernel.name}, and name it with --kernel"
        )
    fixed = {name: one.default for name, one in seen.items() if one.kind == "fixed"}
    unknown = [name for name, value in fixed.items() if value is MISSING]
    if unknown and reference is not None:
        raise SurveyError(
            f"{source}: {unknown[0]} of {shown.name} is no tensor and has no default; give it one, since an operator has "
            "tensors and scalars of type float, and other arguments are constants"
        )
    fixed = {name: None if value is MISSING else value for name, value in fixed.items()}
    seen = {
        name: one
        for name, one in seen.items()
        if name in names or name in fixed or reference is None or _needed(name, shown)
    }
    tensors = {name: one for name, one in seen.items() if one.kind in {"tensor", "index"}}
    if reference is None:
        proposed = Guess({name: _proposed(one) for name, one in tensors.items()}, {}, {})
    else:
        callable_ = _imported(source, root, module, reference.name)
        scalars = {name: one.values[0] for name, one in seen.items() if one.kind == "float"}
        try:
            proposed = guess(callable_, tensors, {**scalars, **fixed})
        except ShapesError as error:
            raise SurveyError(
                f"{source}: no shapes were found in which {reference.name} can be called; the last call raised {error}"
            ) from error
    return Plan(
        source=source,
        module=module,
        root=root,
        output=output.absolute(),
        kernel=kernel,
        reference=reference,
        hints=seen,
        fixed=fixed,
        names=names,
        guess=proposed,
        dsl=found.dsl,
        device=device,
        out=out,
        results=_results(reference, kernel) if reference else None,
    )


def _needed(name: str, function: Function) -> bool:
    return name not in function.defaults


def _matched(seen: dict[str, Hint], kernel: Function) -> dict[str, str]:
    """Return the kernel's parameter for each argument of the reference: of the same name, or else at the same position."""
    parameters = [one.arg for one in kernel.parameters]
    names = {name: name for name in seen if name in parameters}
    for at, name in enumerate(seen):
        if name not in names and at < len(parameters) and parameters[at] not in seen:
            names[name] = parameters[at]
    return names


def _proposed(hint: Hint) -> str:
    """Return a notation from the text alone."""
    rank = hint.rank or max(hint.least, len(hint.symbols), 1)
    axes = [hint.symbols.get(at, hint.symbols.get(at - rank, f"{hint.name.upper()}{at}")) for at in range(rank)]
    words = " int64 in 0..2" if hint.kind == "index" else " storage"
    return f"[{', '.join(axes)}]{words}{' optional' if hint.optional else ''}"


def _module(source: Path) -> tuple[Path, str]:
    """Return the folder and the name by which a file is imported: in a package, that of the package's parent."""
    resolved = source.resolve()
    parts, root = [resolved.stem], resolved.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _imported(source: Path, root: Path, module: str, name: str) -> Any:
    """Return a function of the source, imported under the name that the written file imports.

    Raises:
        SurveyError: it cannot be imported, or another module has its name.
    """
    sys.path.insert(0, str(root))
    try:
        with importing(str(source)):
            made = importlib.import_module(module)
    except ImplementationError as error:
        raise SurveyError(str(error)) from error
    finally:
        sys.path.remove(str(root))
    if Path(str(made.__file__)).resolve() != source.resolve():
        raise SurveyError(f"{source}: `import {module}` finds {made.__file__}; give the file another name")
    found = made
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise SurveyError(f"{source}: {name} is no function once the file is imported")
    return found


def _results(reference: Function, kernel: Function) -> int | None:
    """Return how many results of the kernel are compared, where it returns more than the reference; None for all."""
    there, here = _returned(reference.node), _returned(kernel.node)
    if kernel.differentiable and "forward" in kernel.node.name:  # what an autograd function saves is not returned
        return None
    return there if there and here and here > there else None


def _returned(node: ast.FunctionDef) -> int:
    """Return the number of values that a function returns, 0 where its text does not say it."""
    counts = {
        len(one.value.elts) if isinstance(one.value, ast.Tuple) else 1
        for one in ast.walk(node)
        if isinstance(one, ast.Return) and one.value is not None and not isinstance(one.value, ast.Call)
    }
    return counts.pop() if len(counts) == 1 else 0
