"""Modules that run as programs in processes which have PyTorch loaded already: two seconds less than a new interpreter."""

import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mhc.fuzz.worker.forkserver import FORKSERVER


@dataclass(frozen=True)
class Ended:
    """The output of a program and its exit status; minus a signal's number where that ended it."""

    status: int
    stdout: str
    stderr: str


def program(module: str, stdin: str, environment: Mapping[str, str]) -> Ended:
    """Run `python -m module` in an environment of its own, until it ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stdin").write_text(stdin, encoding="utf-8")
        process = FORKSERVER.Process(target=_program, args=(module, folder, dict(environment)))
        process.start()
        process.join()
        said = [(folder / stream).read_text(encoding="utf-8") for stream in ("stdout", "stderr")]
    return Ended(process.exitcode, *said)


def _program(module: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Nothing of a DSL is imported before the environment is in place."""
    os.environ.clear()
    os.environ.update(environment)
    with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
    with (folder / "stdin").open() as sys.stdin:
        runpy.run_module(module, run_name="__main__")
    sys.stdout.flush()
