"""Export a finding on a program of the compiler: the program as a function, beside a simpler one that passes."""

import re
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from mhc.fuzz.check.program_check import COMPILER, EVALUATOR
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.worker.client import WorkerClient
from mhc.oracles.verdict import Status
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.grammar import Program
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.minimise import simpler
from mhc.programs.targets import ProgramTarget
from mhc.upstream.declared import Symptom, export_program
from mhc.upstream.issue.text import write
from mhc.upstream.program_file import Form, form_of
from mhc.upstream.releases.releases import port
from mhc.upstream.tvm_alone import write_tvm_alone
from mhc.upstream.verify import ExportError, Outcome, first_on_path

_TRIED = 30  # of each step
_REASON = re.compile(r"^(?:[a-z]+: )?(\w*(?:Error|Exception|Exit|Interrupt)): ?(.*)$")
_SHOWN, _TITLE = 60, 100  # characters of a message


def export_compiler_finding(found: Finding, target: ProgramTarget, spec: str, folder: Path) -> Sequence[Outcome]:
    """Write the folder of an upstream issue for a finding on a program.

    Args:
        spec: names the target, as on the command line.

    Raises:
        ExportError: as for `export_program`; or the C compiler refuses what TileLang wrote, or nothing simpler passes.
    """
    program = found.case
    if not isinstance(program, DrawnProgram):
        raise ExportError("it is a case of an operator, and no program")
    form, symptom = form_of(target), symptom_of(found)
    with tempfile.TemporaryDirectory() as name, first_on_path(target.site):
        place = Path(name)
        passing = _passing(program, target, spec)
        files = [
            _written(place, function, one, target, form)
            for function, one in (("program", program), ("one_step_simpler", passing))
        ]
        outcomes = export_program(
            files[0],
            files[1:],
            symptom,
            to=target.dsl,
            title=_title(found, program, target),
            needs=form.needs,
            variables=form.variables,
            folder=folder,
        )
        if isinstance(program, Program) and found.fingerprint.oracle == EVALUATOR:
            section = write_tvm_alone(program, folder)
            if section:
                (folder / "tvm.md").write_text(section, encoding="utf-8")
                write(folder)
        return outcomes


def _written(place: Path, function: str, program: AnyProgram, target: ProgramTarget, form: Form) -> str:
    """Write a program to a file, and return it as FILE:FUNCTION."""
    path = place / f"{function}.py"
    text, _ = port(target.dsl, target.release(), form.write(function, program, target))
    path.write_text(text, encoding="utf-8")
    return f"{path}:{function}"


def _title(found: Finding, program: AnyProgram, target: ProgramTarget) -> str:
    """Return the operations that go wrong and the pass in which they do, or what the compiler says."""
    if found.fingerprint.oracle == COMPILER:
        return ": ".join(_root(found.message))[:_TITLE]
    if found.fingerprint.oracle != EVALUATOR:
        return language_of(program).signature(program)
    wrong = target.wrong_pass(program)
    return f"{found.fingerprint.subject}, in {wrong}" if wrong else found.fingerprint.subject


def symptom_of(found: Finding) -> Symptom:
    """Return what the program does wrong, in the terms of an exported function.

    Raises:
        ExportError: the C compiler refuses what TileLang wrote, or the message names no exception.
    """
    if found.fingerprint.oracle == EVALUATOR:
        return Symptom(expected=repr("right"))
    if found.fingerprint.oracle != COMPILER:
        return Symptom(ends=found.fingerprint.symptom)
    stage, _, message = found.message.partition(": ")
    if stage == "cc":
        raise ExportError(f"what fails in stage {stage} is not exported")
    kind, what = _root(message)
    pattern = re.escape(what[:_SHOWN]).replace(r"\ ", " ")
    return Symptom(raises=f"{kind}: {pattern}")


def _root(message: str) -> tuple[str, str]:
    """Return the type and the text of the exception at the root, which a message names last.

    Raises:
        ExportError: the message names none.
    """
    reasons = [one for one in map(_REASON.match, message.splitlines()) if one]
    if not reasons:
        raise ExportError(f"the message names no exception: {message[:_SHOWN]}")
    kind, what = reasons[-1].groups()
    return kind, what


def _passing(program: AnyProgram, target: ProgramTarget, spec: str) -> AnyProgram:
    """Return the first program, one step simpler, that passes; each is judged in another process, which may crash."""
    worker = WorkerClient(spec, target, "cpu")
    try:
        for step in language_of(program).steps:
            for candidate in islice(simpler(step, program), _TRIED):
                worker.start(candidate)
                if all(one.status is Status.PASS for one in worker.finish()):
                    return candidate
    finally:
        worker.stop()
    raise ExportError("no simpler program passes: what is right is not shown")
