"""Export a function of a file, with a symptom that is declared: for limitations of a DSL that no case of an operator shows.

The function has no arguments. It is exported with everything that it uses in its file, and verified like any other repro.
"""

import ast
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType

from mhc.environment import environment
from mhc.upstream.diagnose.attribution import attribute, generated, settings
from mhc.upstream.export import new_folder, table_row, write_document
from mhc.upstream.program.script import Script, by_process
from mhc.upstream.releases.releases import NEEDS
from mhc.upstream.source.definitions import closure, definition
from mhc.upstream.source.text import unparse
from mhc.upstream.verify import ExportError, Outcome, confirmed, run

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
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """What is wrong: exactly one of `raises`, `expected` and `ends` is given.

    Attributes:
        raises: "Type: pattern", the type of the exception's root cause, and a regular expression that fits in a line of its
            message.
        expected: the `repr` of what the function should return; found: of what it does return, None where that differs.
        ends: how its process ends, as `mhc.upstream.program.script.by_process` says it: `SIGSEGV`, `exit 3`, `hang`.
    """

    raises: str | None = None
    expected: str | None = None
    found: str | None = None
    ends: str | None = None

    def __post_init__(self) -> None:
        if [self.raises, self.expected, self.ends].count(None) != 2:
            raise ValueError("either what it raises or what it should return must be said")
        if self.raises is not None and ": " not in self.raises:
            raise ValueError(f"what it raises must be 'Type: pattern', was {self.raises!r}")
        if self.found is not None and self.expected is None:
            raise ValueError("what it returns goes with what it should return")
        if self.found is not None and self.found == self.expected:
            raise ValueError(f"what it returns must differ from what it should, was {self.found!r}")

    @property
    def name(self) -> str:
        """Return the symptom as a fingerprint calls it."""
        if self.raises is not None:
            return f"raises {self.raises.partition(': ')[0]}"
        return self.ends or "value"

    @property
    def imports(self) -> list[str]:
        """Return the imports that the lines of `judged` need."""
        return {"raises": ["import re"], "ends": ["import signal", "import subprocess"]}.get(self._kind, [])

    @property
    def _kind(self) -> str:
        return "raises" if self.raises is not None else "ends" if self.ends is not None else "expected"

    def judged(self, called: str) -> list[str]:
        """Return the lines that call the function and come to `wrong`."""
        if self.raises is not None:
            kind, _, pattern = self.raises.partition(": ")
            return [f"KIND, FOUND = {kind!r}, {pattern!r}", *_RAISES.replace("CALLED", called).splitlines()]
        if self.ends is not None:
            return [f"run = {called.removesuffix('()')}", *by_process(self.ends)]
        found = [] if self.found is None else [f"FOUND = {self.found!r}"]
        only = [] if self.found is None else _ONLY.splitlines()
        return [f"EXPECTED = {self.expected!r}", *found, *_RETURNS.replace("CALLED", called).splitlines(), *only]


def export_program(
    program: str,
    beside: Sequence[str],
    symptom: Symptom,
    *,
    to: str,
    title: str,
    needs: str,
    folder: Path,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> tuple[Outcome, ...]:
    """Write the folder of an upstream issue for `FILE:FUNCTION`.

    Args:
        beside: other functions, as FILE:FUNCTION, judged in the same way, for the table of what passes and what fails. The
            first that passes is the control case.
        title: where it is wrong, in a few words. needs: of `releases.NEEDS`.
        variables: of the environment, set before anything is imported.

    Raises:
        ExportError: it does not reproduce each time, a function beside it does something else, or none of them passes.
    """
    assert needs in NEEDS[to]
    with new_folder(folder) as place:
        repro = place / "repro.py"
        repro.write_text(text(program, symptom, title, variables), encoding="utf-8")
        outcomes = confirmed(repro)
        others = [(_label(one), _outcome(one, replace(symptom, found=None), variables, place.parent)) for one in beside]
        control = next((label for label, outcome in others if outcome.healed), None)
        if control is None:
            raise ExportError("no function beside it passes: what is right is not shown")
        file, _, name = program.rpartition(":")
        declared = {"raises": symptom.raises, "expected": symptom.expected, "found": symptom.found}
        document = {
            "program": {"file": Path(file).name, "function": name, **{key: one for key, one in declared.items() if one}},
            "to": to,
            "needs": needs,
            "symptom": symptom.name,
            "environment": environment().to_json(),
        }
        facts = {
            "at": title,
            "where": "",
            "form": "a function, and what it leads to",
            "whole": len(repro.read_text(encoding="utf-8").splitlines()),
            "table": [
                table_row(label, outcome.healed, outcome.values.partition(", actual ")[2])
                for label, outcome in [(_label(program), outcomes[-1]), *others]
            ],
            "control": f"{control}: passes.",
            "source": generated(repro, "") if to == "tilelang" else "",
        }
        tried = attribute(repro, settings(to, "cuda" if needs == "cuda" else "cpu"))
        write_document(place, document, facts, outcomes, tried)
    return tuple(outcomes)


def text(program: str, symptom: Symptom, title: str, variables: Mapping[str, str] = _NO_VARIABLES) -> str:
    """Return the repro of `FILE:FUNCTION`: the function and all that it leads to, called once, and the judgement.

    Raises:
        ExportError: there is no such function, or it uses modules that are not public.
    """
    key = _key(program)
    whole = closure([key])
    return Script(
        title=f"{title}: {symptom.name}",
        environment=variables,
        imports=[*whole.imports, *symptom.imports],
        definitions={whole.names[key]: "\n".join(unparse(whole.definitions.values()))},
        end=[f"WHERE = {title!r}", *symptom.judged(f"{whole.names[key]}()")],
    ).text()


def _outcome(program: str, symptom: Symptom, variables: Mapping[str, str], folder: Path) -> Outcome:
    """Return how the program of another function ended.

    Raises:
        ExportError: neither with the symptom nor as it should.
    """
    path = folder / "beside.py"
    path.write_text(text(program, symptom, _label(program), variables), encoding="utf-8")
    outcome = run(path)
    if not (outcome.reproduced or outcome.healed):
        raise ExportError(f"{program}: {outcome}\n{outcome.tail}")
    return outcome


def _key(program: str) -> tuple[str, str]:
    """Return the module and the name of `FILE:FUNCTION`. The file is read, not run: its module has only a path."""
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
    """Return the first line of a function's docstring, or its name in words."""
    key = _key(program)
    node = definition(key)
    docstring = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
    return (docstring or "").partition("\n")[0] or key[1].replace("_", " ")
