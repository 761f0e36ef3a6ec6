"""Export a finding on a program of the compiler: the program as a function, beside a simpler one that passes."""

import re
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mhc.fuzz.check.program_check import COMPILER, check
from mhc.fuzz.findings.finding import Finding
from mhc.oracles.verdict import Status
from mhc.programs.edits import STEPS
from mhc.programs.evaluate import evaluate, inputs_of
from mhc.programs.grammar import Program
from mhc.programs.minimise import simpler
from mhc.programs.targets import ProgramTarget
from mhc.upstream.declared import Symptom, export_program
from mhc.upstream.verify import ExportError, Outcome

Array = np.ndarray[Any, Any]
_TRIED = 60
_FILL = 7  # of outputs, so that a store of 0 and one that is lost differ
_HEAD = "import tilelang\nimport tilelang.language as T\nimport torch\n\n\n"


def export_compiler_finding(found: Finding, target: ProgramTarget, folder: Path) -> Sequence[Outcome]:
    """Write the folder of an upstream issue for a finding on a program.

    Raises:
        ExportError: as for `export_program`; or the C compiler refuses what TileLang wrote, or nothing simpler passes.
    """
    program = found.case
    if not isinstance(program, Program):
        raise ExportError("it is a case of an operator, and no program")
    symptom = _symptom(found)
    text = _HEAD + "\n\n".join(
        _function(name, one, target.text(one))
        for name, one in (("program", program), ("one_step_simpler", _passing(program, target)))
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "programs.py"
        path.write_text(text, encoding="utf-8")
        return export_program(
            f"{path}:program",
            [f"{path}:one_step_simpler"],
            symptom,
            to=target.dsl,
            title=_title(found, target),
            needs="c",
            folder=folder,
        )


def _title(found: Finding, target: ProgramTarget) -> str:
    """Return the operations that go wrong and the pass in which they do, or what the compiler says."""
    if found.fingerprint.oracle == COMPILER:
        return found.fingerprint.symptom
    wrong = target.wrong_pass(found.case) if isinstance(found.case, Program) else ""
    return f"{found.fingerprint.subject}, in {wrong}" if wrong else found.fingerprint.subject


def _symptom(found: Finding) -> Symptom:
    """Return what the program does wrong, in the terms of an exported function."""
    if found.fingerprint.oracle != COMPILER:
        return Symptom(expected=repr("right"))
    stage, _, message = found.message.partition(": ")
    kind, _, what = message.partition(": ")
    if stage not in {"build", "lower"} or not what:
        raise ExportError(f"what fails in stage {stage} is not exported")
    return Symptom(raises=f"{kind}: {re.escape(what.splitlines()[0][:60])}")


def _passing(program: Program, target: ProgramTarget) -> Program:
    """Return the first program, one step simpler, that passes."""
    candidates = (one for step in STEPS for one in simpler(step, program))
    for candidate in islice(candidates, _TRIED):
        if all(one.status is Status.PASS for one in check(target, candidate)):
            return candidate
    raise ExportError("no simpler program passes: what is right is not shown")


def _function(name: str, program: Program, text: str) -> str:
    """Return a Python function that compiles a program, runs it and returns its outputs."""
    lines = [f"def {name}():", *(f"    {line}" for line in text.splitlines()), ""]
    given = _filled(program)
    for one in program.parameters:
        made = f"torch.tensor({_literal(given[one.name])}, dtype=torch.{one.dtype})"
        lines.append(f"    {one.name} = {made}")
    called = ", ".join(one.name for one in program.parameters)
    lines.append(f'    tilelang.compile(f, target="c", execution_backend="cython")({called})')
    outputs = [one.name for one in program.outputs]
    right = evaluate(program, given)
    lines.append(f"    got = [{', '.join(f'{one}.tolist()' for one in outputs)}]")
    lines.append(f"    right = [{', '.join(_literal(right[one]) for one in outputs)}]")
    lines.append('    return "right" if got == right else f"{got}, right is {right}"')
    return "\n".join(lines) + "\n"


def _filled(program: Program) -> dict[str, Array]:
    """Return the inputs, and outputs that are filled with one number."""
    filled = inputs_of(program)
    for one in program.outputs:
        filled[one.name] = np.full(one.shape, one.dtype == "bool" or _FILL).astype(filled[one.name].dtype)
    return filled


def _literal(array: Array) -> str:
    return repr(array.tolist())
