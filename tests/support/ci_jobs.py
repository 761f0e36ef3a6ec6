"""Run the commands of a composite GitHub Action, and of a GitLab job, as their runners do; nothing that they download.

A step with `uses` is named and not run. Expressions are those that this project's files have; any other raises.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.helpers import ROOT

ACTION = ROOT / ".github" / "actions" / "mhc-fuzz" / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Ran:
    """What steps did: the exit status and the output of each that ran, the names of skipped ones, and the job's summary."""

    statuses: dict[str, int] = field(default_factory=dict)
    output: dict[str, str] = field(default_factory=dict)
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    summary: str = ""


def document(path: Path) -> dict[str, Any]:
    """Return a YAML file. A key `on` is True there, as YAML 1.1 has it."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def run_action(workspace: Path, **given: str) -> Ran:
    """Run the steps of the action in a checkout, with inputs by their names, `_` for `-`."""
    action, ran = document(ACTION), Ran()
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    for name, value in given.items():
        assert name.replace("_", "-") in inputs, name
        inputs[name.replace("_", "-")] = value
    known = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.run_id": "7", "github.run_attempt": "1"}
    summary = workspace / "summary-of-the-job.md"
    summary.write_text("", encoding="utf-8")
    for step in action["runs"]["steps"]:
        name, condition = step["name"], step.get("if", "success()")
        if not _holds(condition, known, failed=any(ran.statuses.values())):
            ran.skipped.append(name)
            known[f"steps.{step.get('id', name)}.outcome"] = "skipped"
            continue
        if "uses" in step:
            ran.used[name] = {key: _filled(value, known) for key, value in step.get("with", {}).items()}
            continue
        variables = {key: _filled(value, known) for key, value in step.get("env", {}).items()}
        variables |= {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_WORKSPACE": str(workspace),
        }
        assert step["shell"] == "bash", name
        folder = workspace / _filled(step["working-directory"], known)
        ran.statuses[name], ran.output[name] = bash(_filled(step["run"], known), folder, variables)
        known[f"steps.{step.get('id', name)}.outcome"] = "failure" if ran.statuses[name] else "success"
    ran.summary = summary.read_text(encoding="utf-8")
    return ran


def bash(script: str, folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Run a script as GitHub does, with this Python first in the path; return its exit status and what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI"))}
    environment = {**ours, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400)
    return done.returncode, done.stdout + done.stderr


def _filled(text: object, known: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: _value(found[1], known), str(text))


def _value(expression: str, known: Mapping[str, str]) -> str:
    if expression.startswith("hashFiles("):
        return "hash"
    return expression[1:-1] if re.fullmatch(r"'[^']*'", expression) else known[expression]


def _holds(condition: str, known: Mapping[str, str], *, failed: bool) -> bool:
    terms = [term.strip() for term in condition.split("&&")]
    if "always()" not in terms and failed:
        return False
    return all(_term(term, known) for term in terms if term not in {"always()", "success()"})


def _term(term: str, known: Mapping[str, str]) -> bool:
    left, operator, right = term.split()
    assert operator in {"==", "!="}, term
    return (_value(left, known) == _value(right, known)) == (operator == "==")
