"""External implementations: `FILE.py:NAME`, `package.module:NAME`, and the entry-point group `mhc.implementations`."""

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from mhc.implementation import Implementation, ImplementationError, place_of, text_of

ENTRY_POINT_GROUP = "mhc.implementations"


def outside_names() -> tuple[str, ...]:
    """Return the names that installed packages provide through entry points."""
    return tuple(_entry_points())


def load(spec: str, known: Sequence[Implementation]) -> Implementation:
    """Return the implementation named by `spec`: one of `known`, an entry point, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        ImplementationError: no implementation has this name, or the file or module cannot be imported, or lacks the name,
            or the name is not an `Implementation`. The message names the file and says what was expected.
    """
    by_name = {implementation.name: implementation for implementation in known}
    if spec in by_name:
        return by_name[spec]
    if ":" not in spec:
        points = _entry_points()
        if spec not in points:
            raise ImplementationError(f"{spec}: {_unknown(spec, [*by_name, *points])}")
        point = points[spec]
        return _pick(_import_module(point.module), point.module, point.attr, f"{spec} ({point.value})")
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ImplementationError(f"{spec}: must be FILE.py:NAME or package.module:NAME")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    return _pick(module, place, name, spec)


def is_file(spec: str) -> bool:
    """Return whether a name is that of a Python file, without one of its implementations."""
    return spec.endswith(".py") and Path(spec).is_file()


def all_of_file(file: str, known: Sequence[Implementation]) -> list[tuple[str, Implementation]]:
    """Return the implementations of a file that are none of `known`, each with its name for `load`.

    Raises:
        ImplementationError: the file cannot be imported, or has none.
    """
    module, names = _import_file(Path(file)), dict[int, str]()
    for name, value in vars(module).items():
        if isinstance(value, Implementation) and not any(value is one for one in known):
            names.setdefault(id(value), name)
    if not names:
        raise ImplementationError(f"{file}: it has no mhc.Implementation of its own")
    found = (_pick(module, file, name, f"{file}:{name}") for name in names.values())
    return [(one.origin, one) for one in found]


def _unknown(spec: str, names: Sequence[str]) -> str:
    """Return why a name is none of an implementation, and what may have been meant."""
    if is_file(spec):
        return f"a file may have several implementations; give the name of one too, as in {spec}:IMPL"
    of_operator = [name for name in names if name.startswith(f"{spec}.")]
    if of_operator:
        return f"an operator, whose implementations are {', '.join(of_operator)}; --operator {spec} takes all"
    near = difflib.get_close_matches(spec, names, 3)
    meant = f"did you mean {' or '.join(near)}? Or" if near else f"known are {', '.join(names)}, or"
    return f"no such implementation; {meant} give FILE.py:NAME or package.module:NAME"


def spec_of(implementation: Implementation, known: Sequence[Implementation], *, last: str = "") -> str | None:
    """Return how `load` names an implementation, with the whole path of its file; None if no module has it under a name.

    Args:
        last: a module that names it only if no other one does.
    """
    if any(one is implementation for one in known):
        return implementation.name
    if implementation.origin != "built in":
        return relative_spec(implementation.origin, None)
    found = [
        (module.__name__ == last, place, name)
        for module in [*sys.modules.values()]
        for name, value in [*getattr(module, "__dict__", {}).items()]
        if value is implementation and (place := _place_of(module)) is not None
    ]
    return ":".join(min(found)[1:]) if found else None


def _place_of(module: ModuleType) -> str | None:
    """Return how `load` names a module: its file, or its name if it is in a package, where it may import its neighbours."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(file, str) or not file.endswith(".py"):
        return None
    path = Path(file)
    return module.__name__ if (path.parent / "__init__.py").is_file() else str(path.absolute())


def relative_spec(spec: str, folder: Path | None) -> str:
    """Return a name of an implementation with the path of its file from `folder`, or with the whole path."""
    place, _, name = spec.rpartition(":")
    if not place.endswith(".py"):
        return spec
    path = Path(place).absolute()
    return f"{path if folder is None else os.path.relpath(path, folder)}:{name}"


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _import_file(path: Path) -> ModuleType:
    try:
        there = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise ImplementationError(f"{str(path)[:200]}: {error.strerror}") from error
    if not there:
        raise ImplementationError(f"{path}: no such file")
    resolved = path.resolve()
    name = f"mhc_outside_{resolved.stem}_{abs(hash(str(resolved))):x}"
    module_spec = importlib.util.spec_from_file_location(name, resolved)
    if module_spec is None or module_spec.loader is None:
        raise ImplementationError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    if str(resolved.parent) not in sys.path:  # as for a script, but last: it may import the files beside it
        sys.path.append(str(resolved.parent))
    try:
        with importing(str(path)):
            module_spec.loader.exec_module(module)
    except ImplementationError:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    with importing(name):
        return importlib.import_module(name)


@contextmanager
def importing(place: str) -> Iterator[None]:
    """Convert any exception of external code in the block, and any attempt to exit, to an error that names the code.

    Raises:
        ImplementationError: the code raised an exception, or called `sys.exit` or `os._exit`.
    """
    end = os._exit

    def no_end(status: int) -> NoReturn:
        raise SystemExit(status)

    os._exit = no_end
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = f"{type(error).__name__}: {text_of(error)}"
        if isinstance(error, SystemExit):
            why = f"it calls exit({error.code!r})"
        why += f" ({there})" if (there := place_of(error)) else ""
        raise ImplementationError(f"{place}: cannot be imported: {why}") from error
    finally:
        os._exit = end


def _pick(module: ModuleType, place: str, name: str, spec: str) -> Implementation:
    with importing(place):  # a module may define `__getattr__`
        value = getattr(module, name, None)
        missing = not hasattr(module, name)
    if missing:
        there = [key for key, value in vars(module).items() if isinstance(value, Implementation)]
        hint = f"it has {', '.join(there)}" if there else "it has no mhc.Implementation at all"
        raise ImplementationError(f"{place}: has no name {name!r}; {hint}")
    if not isinstance(value, Implementation):
        raise ImplementationError(f"{place}: {name} is {type(value).__name__}; expected an mhc.Implementation")
    with importing(place):  # as may a subclass
        return replace(value, origin=spec)
