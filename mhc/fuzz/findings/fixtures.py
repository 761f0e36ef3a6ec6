"""Fixtures: findings as files that the test suite replays from then on, one test each."""

import re
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
    """The checkout that this package runs from; None where it is installed."""
    root = Path(mhc.__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() and (root / "tests").is_dir() else None


Run = TypeVar("Run", Path, None)


def folder_for(found: Finding, run: Run, chosen: Path | None = None) -> Path | Run:
    """Where the fixture of a finding belongs.

    A finding on a registered implementation belongs to the test suite, where this runs from the source tree. One on a kernel
    from outside, or compared with one, stays with the run that found it: nobody else has that kernel.

    Args:
        run: the run's folder. chosen: the folder of `--fixtures`, which overrules everything.
    """
    if chosen is not None:
        return chosen
    root = source_tree()
    everyones = {found.spec, found.against or found.spec} <= set(built_in())
    return root / REGRESSIONS if root is not None and everyones else run


def write(found: Finding, folder: Path, replacing: Path | None = None) -> Path:
    """Save `found` in `folder` as a fixture, all of it or nothing, and say where.

    Its name is the fingerprint's id. A simpler case of the same fingerprint that is there already stays: it may have been
    mended, while this one still fails; then this one gets its case's digest into the name.

    Args:
        replacing: the file of this finding as it was before it was minimised; it goes, where it is such a file in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.fingerprint.id}.json"
    if path != replacing and path.exists() and not _gives_way(path, found):
        path = folder / f"{found.fingerprint.id}-{found.case.id.rpartition('-')[2]}.json"
    replace_text(path, found.to_json())
    if replacing is not None and replacing != path and _is_of(replacing, found, folder):
        replacing.unlink(missing_ok=True)
    return path


def _is_of(path: Path, found: Finding, folder: Path) -> bool:
    """Whether `path`, which a store may name, is one that `write` gives to `found` in `folder`."""
    own = re.fullmatch(rf"{found.fingerprint.id}(-[0-9a-f]{{8}})?\.json", path.name)
    return own is not None and path.parent.resolve() == folder.resolve()


def _gives_way(path: Path, found: Finding) -> bool:
    """Whether what is in `path` is the same case, a less simple one, or nothing that can be read."""
    try:
        there = read_finding(path)
    except CaseError:
        return True
    return there.fingerprint == found.fingerprint and rank(found.case) <= rank(there.case)
