"""A mutant's modules: a copy of the base's, in a private package on disk, with the one edit applied.

The copy is on disk, since Triton reads kernel sources from files, and TileLang's cache reads them for its keys. Every module
that leads from the base's `Implementation` to the edited one is copied; other modules are imported unchanged.
"""

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.oracles.mutants.record import BASES, Base, Mutant


class EditError(ValueError):
    """Raised where an edit does not apply exactly once, since the source has changed."""


def implementation(mutant: Mutant) -> Implementation:
    """Return the mutant as an implementation of the same name, with its own copy of the modules.

    Raises:
        EditError: the edit does not apply exactly once.
    """
    base = BASES[mutant.base]
    package = f"mhc_mutant_{mutant.name}"
    if package not in sys.modules:
        place = str(_write(package, sources(mutant, package)))
        sys.path.insert(0, place)
        try:
            importlib.invalidate_caches()
            importlib.import_module(package)
        finally:
            sys.path.remove(place)
    found = getattr(importlib.import_module(f"{package}.{base.module}"), base.attribute)
    assert isinstance(found, Implementation)
    return _renamed(found, mutant.name)


def sources(mutant: Mutant, package: str) -> Mapping[str, str]:
    """Return the text of each copied module by name, with imports among them redirected to `package`.

    Raises:
        EditError: the edit does not apply exactly once.
    """
    base = BASES[mutant.base]
    texts = _closure(base)
    if mutant.file not in texts:
        raise EditError(f"{mutant.name}: {base.module} does not lead to {mutant.file}")
    count = texts[mutant.file].count(mutant.old)
    if count != 1:
        raise EditError(f"{mutant.name}: its old text occurs {count} times in {mutant.file}.py; it must occur once")
    if mutant.old == mutant.new:
        raise EditError(f"{mutant.name}: its edit changes nothing")
    copied = _leading(base, texts, mutant.file)
    texts[mutant.file] = texts[mutant.file].replace(mutant.old, mutant.new)
    return {name: _redirect(texts[name], base.package, package, copied) for name in sorted(copied)}


def _closure(base: Base) -> dict[str, str]:
    """Return the texts of the base's module and of all modules reachable from it, by name within the package."""
    folder = importlib.util.find_spec(base.package)
    assert folder is not None
    assert folder.submodule_search_locations is not None
    place = Path(folder.submodule_search_locations[0])
    texts: dict[str, str] = {}
    waiting = [base.module]
    while waiting:
        name = waiting.pop()
        file = place.joinpath(*name.split(".")).with_suffix(".py")
        if name in texts or not file.is_file():
            continue
        texts[name] = file.read_text(encoding="utf-8")
        waiting += _named(texts[name], base.package)
    return texts


@functools.cache  # mutants of a base share all modules but one
def _named(text: str, package: str) -> frozenset[str]:
    """Return names of possible modules of `package` in a text: in imports and in strings such as TileLang's factories."""
    dotted = re.escape(package)
    found = set(re.findall(rf"\b{dotted}\.([\w.]+\w)", text))
    for inner, names in re.findall(rf"^\s*from {dotted}((?:\.\w+)*) import (.+)$", text, re.MULTILINE):
        found |= {f"{inner}.{name}".lstrip(".") for name in re.findall(r"\w+", names)}
    return frozenset(found)


def _leading(base: Base, texts: Mapping[str, str], edited: str) -> set[str]:
    """Return the edited module and all modules that lead to it."""
    leading = {edited}
    while True:
        more = {name for name, text in texts.items() if _named(text, base.package) & leading} - leading
        if not more:
            return leading | {base.module}
        leading |= more


def _redirect(text: str, old: str, new: str, names: set[str]) -> str:
    """Return `text` with package `new` in place of `old` wherever it names one of the modules `names`."""
    for name in names:
        folder, _, module = name.rpartition(".")
        before, after = (f"{package}.{folder}".rstrip(".") for package in (old, new))
        text = re.sub(rf"\b{re.escape(f'{before}.{module}')}\b", f"{after}.{module}", text)
        text = re.sub(rf"^(\s*from ){re.escape(before)}( import {module}\b)", rf"\1{after}\2", text, flags=re.MULTILINE)
    return text


def _write(package: str, texts: Mapping[str, str]) -> Path:
    """Return the folder that holds `package`, created if missing; its name is a digest of the contents."""
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("MHC_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhc")
    place = cache / "mutants" / digest
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=place.parent))
    inside = making / package
    inside.mkdir()
    for name, text in texts.items():
        file = inside.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for folder in {inside, *(path.parent for path in inside.rglob("*.py"))}:
        (folder / "__init__.py").touch()
    try:
        making.rename(place)  # atomic, for other processes
    except OSError:
        shutil.rmtree(making)
    return place


def _renamed(base: Implementation, name: str) -> Implementation:
    """Return `base` under another name, whose schedules `supports` passes on under the base's name."""

    def supports(case: Case) -> Literal[True] | Refused:
        schedule = case.schedules.get(name)
        return base.supports(replace(case, schedules={} if schedule is None else {base.name: schedule}))

    return replace(base, name=name, supports=supports)
