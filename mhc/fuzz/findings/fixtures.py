"""Fixtures: findings as files that the test suite replays, one test each."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.files import read_json, replace_text
from mhc.fuzz.findings.finding import Finding, read_against, read_case, read_finding
from mhc.fuzz.findings.ordering import rank
from mhc.implementation import Implementation
from mhc.operator import DEFAULT, OPERATORS
from mhc.registry import built_in

REGRESSIONS = Path("tests", "regressions")


def source_tree() -> Path | None:
    """Return the checkout that this package runs from; None if it is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "tests").is_dir() else None


Run = TypeVar("Run", Path, None)


def folder_for(found: Finding, run: Run, chosen: Path | None = None) -> Path | Run:
    """Return the folder for the fixture of a finding.

    A finding on a built-in implementation belongs to the test suite, if this runs from the source tree. A finding that
    involves a kernel from outside stays with its run, since no other checkout has that kernel.

    Args:
        run: the run's folder. chosen: the folder of `--fixtures`, which takes precedence.
    """
    if chosen is not None:
        return chosen
    root = source_tree()
    everyones = {found.spec, found.against or found.spec} <= set(built_in())
    return root / REGRESSIONS if root is not None and everyones else run


def write(found: Finding, folder: Path, replacing: Path | None = None) -> Path:
    """Write `found` to `folder` as a fixture, atomically, and return its path.

    Its name is the fingerprint's id. A simpler case of the same fingerprint that is already there stays, since it may pass
    while this one still fails; the digest of this case is then part of the new name.

    Args:
        replacing: the file of this finding before it was minimised; it is deleted if it is such a file in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.fingerprint.id}.json"
    if path != replacing and path.exists() and not _gives_way(path, found):
        path = folder / f"{found.fingerprint.id}-{found.case.id.rpartition('-')[2]}.json"
    replace_text(path, _plain(found).to_json())
    if replacing is not None and replacing != path and _is_of(replacing, found, folder):
        replacing.unlink(missing_ok=True)
    return path


def _plain(found: Finding) -> Finding:
    """Return what a test needs of a finding: without what only reports show."""
    reduction = None if found.reduction is None else replace(found.reduction, steps=())
    return replace(found, reduction=reduction, errors=None, drawn=None)


def of(implementation: Implementation, folder: Path, spec: str | None) -> Iterator[tuple[Path, Case, str | None]]:
    """Yield the fixtures in `folder` of an implementation, and the bare cases of its operator, by the names of their files.

    Each has the name of the implementation that it was compared with. Files about others are not read further: an operator
    that such a file describes must not be known before its module is imported.

    Args:
        spec: what fixtures in this folder call the implementation; None if no module has it under a name.

    Raises:
        CaseError: a file is no JSON, or a fixture of the implementation cannot be read or is on an operator that is not
            known; the message names the file.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            document = read_json(path)
            fingerprint, case = _of_object(document, "fingerprint"), _of_object(document, "case") or document
            operator = _of_object(case, "operator") or DEFAULT
            name = operator if isinstance(operator, str) else _of_object(operator, "name")
            if name != implementation.operator:
                if spec is not None and _of_object(document, "implementation") == spec and name not in OPERATORS:
                    raise CaseError("operator", f"{name!r} is not known, and {spec} is of {implementation.operator!r}")
                continue
            if fingerprint is not None and _of_object(fingerprint, "implementation") != implementation.name:
                continue
            yield path, read_case(path)[0], read_against(path)
        except CaseError as error:
            raise CaseError(str(path), str(error)) from error


def _of_object(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _is_of(path: Path, found: Finding, folder: Path) -> bool:
    """Return whether `path`, which comes from a store, is a name that `write` gives to `found` in `folder`."""
    own = re.fullmatch(rf"{found.fingerprint.id}(-[0-9a-f]{{8}})?\.json", path.name)
    return own is not None and path.parent.resolve() == folder.resolve()


def _gives_way(path: Path, found: Finding) -> bool:
    """Return whether `path` holds the same case, a less simple one, or no readable finding."""
    try:
        there = read_finding(path)
    except CaseError:
        return True
    return there.fingerprint == found.fingerprint and rank(found.case) <= rank(there.case)
