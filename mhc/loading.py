"""Implementations from outside: `FILE.py:NAME`, `package.module:NAME`, and the entry-point group `mhc.implementations`."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from mhc.implementation import Implementation, ImplementationError

ENTRY_POINT_GROUP = "mhc.implementations"


def outside_names() -> tuple[str, ...]:
    """The names that installed packages offer through entry points."""
    return tuple(_entry_points())


def load(spec: str, known: Sequence[Implementation]) -> Implementation:
    """The implementation that `spec` names: one of `known`, an entry point, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        ImplementationError: there is none, the file or module cannot be imported, the name is missing from it or is not an
            `Implementation`; the message says which file and what was expected.
    """
    by_name = {implementation.name: implementation for implementation in known}
    if spec in by_name:
        return by_name[spec]
    if ":" not in spec:
        points = _entry_points()
        if spec not in points:
            names = ", ".join([*by_name, *points])
            raise ImplementationError(
                f"{spec}: no such implementation; known are {names}, or give FILE.py:NAME or package.module:NAME"
            )
        point = points[spec]
        return _pick(_import_module(point.module), point.module, point.attr, f"{spec} ({point.value})")
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ImplementationError(f"{spec}: must be FILE.py:NAME or package.module:NAME")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    return _pick(module, place, name, spec)


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ImplementationError(f"{path}: no such file")
    resolved = path.resolve()
    name = f"mhc_outside_{resolved.stem}_{abs(hash(str(resolved))):x}"
    module_spec = importlib.util.spec_from_file_location(name, resolved)
    if module_spec is None or module_spec.loader is None:
        raise ImplementationError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ImplementationError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ImplementationError(f"{name}: cannot be imported: {type(error).__name__}: {error}") from error


def _pick(module: ModuleType, place: str, name: str, spec: str) -> Implementation:
    if not hasattr(module, name):
        there = [key for key, value in vars(module).items() if isinstance(value, Implementation)]
        hint = f"it has {', '.join(there)}" if there else "it has no mhc.Implementation at all"
        raise ImplementationError(f"{place}: has no name {name!r}; {hint}")
    value = getattr(module, name)
    if not isinstance(value, Implementation):
        raise ImplementationError(f"{place}: {name} is {type(value).__name__}; expected an mhc.Implementation")
    return replace(value, origin=spec)
