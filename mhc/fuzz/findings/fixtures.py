"""Fixtures: findings as files that the test suite replays, one test each."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import mhc
from mhc.case_json import CaseError
from mhc.files import replace_text
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.fuzz.findings.ordering import rank
from mhc.registry import built_in

REGRESSIONS = Path("tests", "regressions")


def source_tree() -> Path | None:
    """Return the checkout that this package runs from; None if it is installed."""
    root = Path(mhc.__file__).resolve().parent.parent
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
