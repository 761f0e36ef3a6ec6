"""Export of a program that is not a case: a function in a file, and what is wrong with it, declared in words.

A limit of a DSL that somebody met while writing a kernel has no case of the operator. Its program is a function without
arguments; it is exported with all that it leads to in its file, and verified like any other repro.
"""

import ast
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from mhc.environment import environment
from mhc.upstream.diagnose.attribution import attribute, generated, settings
from mhc.upstream.issue import duplicates
from mhc.upstream.program.script import OTHER, heading
from mhc.upstream.releases.releases import NEEDS
from mhc.upstream.source.definitions import closure, definition
from mhc.upstream.source.text import unparse
from mhc.upstream.verify import ExportError, Outcome, confirmed, rate, run

_RAISES = """\
raised = ""
try:
    CALLED
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if re.search(FOUND, line)]
    if type(error).__name__ != KIND or not lines:
        raise
    raised = f"{KIND}: {lines[0]}"
print(f"{WHERE}: expected no exception, actual {raised or 'none'}")
wrong = raised != ""
"""
_RETURNS = """\
actual = CALLED
print(f"{WHERE}: expected {EXPECTED}, actual {actual!r}")
wrong = repr(actual) != EXPECTED
"""
_ONLY = """\
if wrong and repr(actual) != FOUND:
    print(f"OTHER: {actual!r}")
    sys.exit(2)
"""
_END = """\
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
"""


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """What is wrong.

    Attributes:
        raises: "Type: pattern", the type of the exception's root cause, and a regular expression that fits in a line of its
            message.
        expected: the `repr` of what the function should return; found: of what it does return, None where that differs.
    """

    raises: str | None = None
    expected: str | None = None
    found: str | None = None

    def __post_init__(self) -> None:
        if (self.raises is None) == (self.expected is None):
            raise ValueError("either what it raises or what it should return must be said")
        if self.raises is not None and (": " not in self.raises or self.found is not None):
            raise ValueError(
                f"what it raises must be 'Type: pattern', and goes without what it returns, was {self.raises!r}"
            )
        if self.found is not None and self.found == self.expected:
            raise ValueError(f"what it returns must differ from what it should, was {self.found!r}")

    @property
    def name(self) -> str:
        """As a fingerprint calls it."""
        return "value" if self.raises is None else f"raises {self.raises.partition(': ')[0]}"

    def judged(self, called: str) -> list[str]:
        """The lines that call the function and come to `wrong`."""
        if self.raises is not None:
            kind, _, pattern = self.raises.partition(": ")
            return [f"KIND, FOUND = {kind!r}, {pattern!r}", *_RAISES.replace("CALLED", called).splitlines()]
        found = [] if self.found is None else [f"FOUND = {self.found!r}"]
        only = [] if self.found is None else _ONLY.splitlines()
        return [f"EXPECTED = {self.expected!r}", *found, *_RETURNS.replace("CALLED", called).splitlines(), *only]


@dataclass(frozen=True)
class Variant:
    """A function beside the declared one, and what its program said."""

    label: str
    outcome: Outcome


def export_program(
    program: str, beside: Sequence[str], symptom: Symptom, *, to: str, title: str, needs: str, folder: Path
) -> tuple[Outcome, ...]:
    """Write the folder of an upstream issue for `FILE:FUNCTION`.

    Args:
        beside: other functions, as FILE:FUNCTION, judged in the same way, for the table of what passes and what fails. The
            first that passes is the control case.
        title: where it is wrong, in a few words. needs: of `releases.NEEDS`.

    Raises:
        ExportError: it does not reproduce each time, a function beside it does something else, or none of them passes.
    """
    if folder.exists():
        raise ExportError(f"{folder} is there already")
    assert needs in NEEDS[to]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "export"
        place.mkdir()
        repro = place / "repro.py"
        repro.write_text(text(program, symptom, title), encoding="utf-8")
        outcomes = confirmed(repro)
        around = [_variant(one, replace(symptom, found=None), Path(name)) for one in beside]
        control = next((one for one in around if one.outcome.healed), None)
        if control is None:
            raise ExportError("no function beside it passes: what is right is not shown")
        tried = attribute(repro, settings(to, "cuda" if needs == "cuda" else "cpu"))
        (place / "attribution.md").write_text(f"{tried.text()}\n", encoding="utf-8")
        lines = len(repro.read_text(encoding="utf-8").splitlines())
        document = _document(
            lines, program, symptom, outcomes, [Variant(_label(program), outcomes[-1]), *around], to, title, needs
        )
        document["told"]["control"] = f"{control.label}: passes."
        document["told"]["source"] = generated(repro, "") if to == "tilelang" else ""
        document["attribution"] = {"suspect": tried.suspect, "heals": list(tried.heals)}
        (place / "export.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        duplicates.write(place)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, folder)
    return tuple(outcomes)


def text(program: str, symptom: Symptom, title: str) -> str:
    """The repro of `FILE:FUNCTION`: the function and all that it leads to, called once, and the judgement.

    Raises:
        ExportError: there is no such function, or it leads to what not everybody has.
    """
    key = _key(program)
    whole = closure([key])
    imports = {*whole.imports, "import os", "import sys", *(["import re"] if symptom.raises is not None else [])}
    lines = [
        *heading(f"{title}: {symptom.name}"),
        "",
        *sorted(imports),
        "",
        "",
        *OTHER.splitlines(),
        "",
        "",
        *unparse(whole.statements()),
        "",
        "",
        f"WHERE = {title!r}",
        *symptom.judged(f"{whole.name(key)}()"),
        *_END.splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _variant(program: str, symptom: Symptom, folder: Path) -> Variant:
    path = folder / "beside.py"
    path.write_text(text(program, symptom, _label(program)), encoding="utf-8")
    outcome = run(path)
    if not (outcome.reproduced or outcome.healed):
        last = "\n".join(f"    {line}" for line in outcome.output.strip().splitlines()[-12:])
        raise ExportError(f"{program}: {outcome}\n{last}")
    return Variant(_label(program), outcome)


def _key(program: str) -> tuple[str, str]:
    """The module and the name of `FILE:FUNCTION`. The file is read, not run: its module has nothing but a place."""
    file, _, name = program.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier() or not path.is_file():
        raise ExportError(f"a program must be FILE.py:FUNCTION, was {program!r}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    module = ModuleType(f"program_{path.stem}_{digest}")
    module.__file__ = str(path.resolve())
    sys.modules.setdefault(module.__name__, module)
    return module.__name__, name


def _label(program: str) -> str:
    """The first line of a function's docstring, or its name in words."""
    key = _key(program)
    node = definition(key)
    return _docstring(node) or key[1].replace("_", " ")


def _docstring(node: ast.stmt) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0] if isinstance(node, ast.FunctionDef) else ""


def _document(
    lines: int,
    program: str,
    symptom: Symptom,
    outcomes: Sequence[Outcome],
    around: Sequence[Variant],
    to: str,
    title: str,
    needs: str,
) -> dict[str, Any]:
    file, _, name = program.rpartition(":")
    declared: Mapping[str, str | None] = {"raises": symptom.raises, "expected": symptom.expected, "found": symptom.found}
    return {
        "program": {"file": Path(file).name, "function": name, **{key: one for key, one in declared.items() if one}},
        "to": to,
        "needs": needs,
        "symptom": symptom.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment().to_json(),
        "told": {
            "at": title,
            "where": "",
            "values": outcomes[-1].values,
            "rate": rate(outcomes),
            "form": "a function, and what it leads to",
            "whole": lines,
            "table": [
                {
                    "change": one.label,
                    "how": "passes" if one.outcome.healed else "**fails**",
                    "seen": one.outcome.values.partition(", actual ")[2],
                }
                for one in around
            ],
        },
    }
