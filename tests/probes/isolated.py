"""Run steps through `runner.py`, once for all the workers of a test run, without TileLang in the test's own process."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

Results = dict[tuple[str, str | None], dict[str, str]]
RUNNER = Path(__file__).parent / "runner.py"


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share, and that pytest clears away."""
    own = Path(factory.getbasetemp())
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def isolated(
    name: str,
    steps: Sequence[tuple[str, str | None]],
    environments: Mapping[str, Mapping[str, str]],
    factory: pytest.TempPathFactory,
    testrun_uid: str,
) -> Results:
    """The outcomes of `steps`; files with an entry in `environments` run in an interpreter with these variables."""
    shared = run_folder(factory) / f"{name}-{testrun_uid}"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first worker runs them, the others wait for its file
        answer = shared / "outcomes.json"
        if not answer.exists():
            answer.write_text(json.dumps(execute(steps, environments, shared)))
    outcomes = json.loads(answer.read_text())
    return {step: outcomes[index] for index, step in enumerate(steps)}


def execute(
    steps: Sequence[tuple[str, str | None]], environments: Mapping[str, Mapping[str, str]], folder: Path
) -> list[dict[str, str]]:
    """One interpreter for each distinct environment, side by side."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, (path, _) in enumerate(steps):
        groups.setdefault(tuple(environments.get(path, {}).items()), []).append(index)
    clean = os.environ | {
        "TILELANG_CACHE_DIR": str(folder / "cache"),
        "TILELANG_DISABLE_CACHE": "1",
        "TILELANG_PRINT_ON_COMPILATION": "0",
        "TMPDIR": str(folder),
    }
    children = []
    for variables, group in groups.items():
        child = subprocess.Popen(
            [sys.executable, str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean | dict(variables),
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps({"workers": os.cpu_count() or 1, "steps": [steps[index] for index in group]}))
        child.stdin.close()
        child.stdin = None
        children.append((child, group))
    outcomes: list[dict[str, str]] = [{} for _ in steps]
    for child, group in children:
        printed, errors = child.communicate(timeout=600)
        if child.returncode:
            raise RuntimeError(f"the runner of the probes failed:\n{errors}")
        for index, outcome in zip(group, json.loads(printed), strict=True):
            outcomes[index] = outcome
    return outcomes
