"""Run a repro by itself: in a fresh process with empty caches, where this package cannot be imported."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RUNS = 3
SECONDS = 300.0
_LAST = ("REPRODUCED", "NOT REPRODUCED", "OTHER: ")
_OURS = ("mhc", "oracles", "strategies", "tests")
_CACHES = ("TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "TILELANG_TMP_DIR", "MHC_CACHE", "XDG_CACHE_HOME", "HOME", "TMPDIR")
_first: list[Path] = []
"""Folders of packages that a repro imports before the installed ones."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LANG", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV")

BLOCK = f'''\
"""Imported by Python as it starts: what the repro may not lean on cannot be imported."""

import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_OURS!r}:
            raise ModuleNotFoundError(f"{{name}} is not there for a repro", name=name)


sys.meta_path.insert(0, Blocked())
'''


class ExportError(ValueError):
    """No program is made of a finding, or the program does not show the finding; says what was seen."""


@dataclass(frozen=True)
class Outcome:
    """How one run of a repro ended.

    Attributes:
        status: of its process; None where it did not end in time.
        output: what it wrote to standard output and error.
        said: its own last line on standard output: `REPRODUCED`, `NOT REPRODUCED` or `OTHER: ...`; of a program that
            failed without one, the last line on standard error.
    """

    status: int | None
    output: str
    said: str
    values: str

    @property
    def reproduced(self) -> bool:
        return self.status == 1 and self.said == "REPRODUCED"

    @property
    def healed(self) -> bool:
        return self.status == 0 and self.said == "NOT REPRODUCED"

    @property
    def tail(self) -> str:
        """Return the last lines that it wrote, indented."""
        return "\n".join(f"    {line}" for line in self.output.strip().splitlines()[-12:])

    def __str__(self) -> str:
        if self.status is None:
            return "no end in its time"
        return f"exit {self.status}, {self.said or 'nothing said'}"


def run(
    repro: Path,
    *,
    python: Sequence[str] = (sys.executable,),
    variables: dict[str, str] | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """Run a repro once.

    Args:
        python: the interpreter and its options. variables: environment variables beyond the few that a process needs.
    """
    with isolated() as (environment, place):
        work = place / "work"
        work.mkdir()
        copy = work / repro.name
        copy.write_bytes(repro.read_bytes())
        try:
            done = subprocess.run(
                [*python, copy.name],
                cwd=work,
                env={**environment, **(variables or {})},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(None, "", "", "")
    lines = done.stdout.strip().splitlines() or [""]
    values = next((line for line in reversed(lines) if ": expected " in line), "")
    errors = done.stderr.strip().splitlines()
    said = errors[-1] if done.returncode and errors and not lines[-1].startswith(_LAST) else lines[-1]
    return Outcome(done.returncode, done.stdout + done.stderr, said, values)


@contextmanager
def isolated() -> Iterator[tuple[dict[str, str], Path]]:
    """Yield the environment of a process with empty caches that cannot import this package, and a folder for it."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
        caches = {variable: str(place / variable.lower()) for variable in _CACHES}
        for folder in caches.values():
            Path(folder).mkdir()
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        path = os.pathsep.join([name, *map(str, _first)])
        yield {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **caches}, place


@contextmanager
def first_on_path(site: Path | None) -> Iterator[None]:
    """Have repros import packages from `site` before the installed ones while the block runs; None: the installed ones."""
    _first[:] = [] if site is None else [site]
    try:
        yield
    finally:
        _first.clear()


def verify(repro: Path, runs: int = RUNS) -> list[Outcome]:
    """Run a repro up to `runs` times, each time in a fresh process with empty caches, until a run does not reproduce."""
    outcomes: list[Outcome] = []
    while len(outcomes) < runs and all(one.reproduced for one in outcomes):
        outcomes.append(run(repro))
    return outcomes


def confirmed(repro: Path, runs: int = RUNS) -> list[Outcome]:
    """Return the runs of a repro that reproduces each time.

    Raises:
        ExportError: it does not; with what it said.
    """
    outcomes = verify(repro, runs)
    last = outcomes[-1]
    if last.reproduced:
        return outcomes
    raise ExportError(f"run {len(outcomes)} of {runs} of its program by itself: {last}\n{last.tail}")


def rate(outcomes: Sequence[Outcome]) -> str:
    """Return in words how often a repro failed, and whether with the same value each time."""
    values = {one.values for one in outcomes}
    how = "deterministic: the same value each time" if len(values) == 1 else "values differ from run to run: a race"
    return f"{len(outcomes)} of {len(outcomes)} runs in fresh processes with empty caches; {how}"
