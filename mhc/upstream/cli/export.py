"""The verbs of `python -m mhc.fuzz` that concern issues upstream: here `export`, the others in `releases.py`."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from mhc.case_json import CaseError
from mhc.environment import tilelang_unmet
from mhc.fuzz.cli.minimise import open_finding, our_fault
from mhc.fuzz.cli.options import load_targets
from mhc.fuzz.cli.trust import require_trust, trust_option
from mhc.fuzz.findings.finding import read_drawn, read_finding
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import DEVICES
from mhc.programs.drawn_program import DrawnProgram
from mhc.upstream.cli.releases import matrix_verb, recheck_verb, releases_verb, tracker_verb
from mhc.upstream.compiler_finding import export_compiler_finding
from mhc.upstream.declared import Symptom, export_program
from mhc.upstream.export import TARGETS, export
from mhc.upstream.releases.releases import NEEDS
from mhc.upstream.verify import ExportError, Outcome


@click.command(name="export")
@click.argument(
    "finding_file", metavar="[FINDING.json]", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--to", type=click.Choice(TARGETS), required=True, help="Whose maintainers are to read it.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder to make; FINDING-TO beside the finding if not given."
)
@click.option("--impl", "spec", metavar="IMPL", help="Export it from this implementation instead: NAME or FILE.py:NAME.")
@trust_option
@click.option("--device", type=click.Choice(DEVICES), help="Where it runs; the first that the kernel takes if not given.")
@click.option("--program", metavar="FILE.py:FUNCTION", help="Export a function instead, with a symptom that is declared.")
@click.option("--title", help="With --program: where it is wrong, in a few words.")
@click.option("--raises", metavar="'TYPE: PATTERN'", help="With --program: what it raises, with a pattern for the message.")
@click.option("--expected", metavar="REPR", help="With --program: what it should return, as Python writes it.")
@click.option("--found", metavar="REPR", help="With --expected: what it does return, where that is always the same.")
@click.option(
    "--beside",
    multiple=True,
    metavar="FILE.py:FUNCTION",
    help="With --program: another function for the table of what passes and fails; one must pass. Repeatable.",
)
@click.option("--needs", help="With --program: what it needs of a machine.  [default: c, interpreter or cpu]")
def export_verb(
    finding_file: Path | None,
    to: str,
    out: Path | None,
    spec: str | None,
    trust: bool,
    device: str | None,
    program: str | None,
    title: str | None,
    raises: str | None,
    expected: str | None,
    found: str | None,
    beside: tuple[str, ...],
    needs: str | None,
) -> None:
    """Make a finding a folder for an upstream issue: repro.py, which needs the DSL alone, issue.md and export.json.

    \b
        python -m mhc.fuzz export fuzz_reports/RUN/1f3a90c2.json --to tilelang
        python -m mhc.fuzz export small.json --to triton --out issues/dx
        python -m mhc.fuzz export --to tilelang --program limits.py:absolute --title 'T.abs on the c target' \\
            --raises 'InternalError: Unresolved call .*fabs' --beside limits.py:by_bits --out issues/abs

    The program must reproduce three times, each in a fresh process with empty caches where nothing of this package can be
    imported. Nothing is sent anywhere. Exit status: 0 the folder is written, 1 refused: no program can be made, or it does
    not reproduce, and nothing is written; 2 usage, 3 a fault of the harness itself.
    """
    if (finding_file is None) == (program is None):
        raise click.UsageError("give either FINDING.json or --program")
    if program is not None:
        if title is None or out is None or spec is not None or device is not None:
            raise click.UsageError("--program goes with --title and --out, and without --impl and --device")
        try:
            symptom = Symptom(raises=raises, expected=expected, found=found)
        except ValueError as error:
            raise click.UsageError(f"--raises or --expected: {error}") from error
        needs = needs or NEEDS[to][0]
        if needs not in NEEDS[to]:
            raise click.UsageError(f"--needs must be one of {', '.join(NEEDS[to])} for {to}, was {needs!r}")
        lacks = tilelang_unmet(pinned=False) if to == "tilelang" else None
        if lacks is not None:
            raise click.UsageError(f"--to {to}: {lacks}")
        exporting = partial(export_program, program, beside, symptom, to=to, title=title, needs=needs, folder=out)
        _write(f"{title}: {symptom.name}", out, exporting)
        return
    if title or raises or expected or found or beside or needs:
        raise click.UsageError("--title, --raises, --expected, --found, --beside and --needs go with --program")
    assert finding_file is not None
    if export_compiler(finding_file, to, out, spec, trust=trust):
        return
    finding, _, where = open_finding(finding_file, spec, device, trust=trust)
    folder = out or finding_file.with_name(f"{finding_file.stem}-{to}")
    try:
        _write(str(finding.fingerprint), folder, partial(export, finding, to, folder, where))
    except HarnessError as fault:
        our_fault(fault)


def export_compiler(path: Path, to: str, out: Path | None, spec: str | None, *, trust: bool) -> bool:
    """Export a finding on a program, where the file is one; return whether it is."""
    try:
        case, found_on = read_drawn(path)
        if not isinstance(case, DrawnProgram):
            return False
        found = read_finding(path)
    except CaseError as error:
        raise click.UsageError(f"{path}: {error}") from error
    require_trust([("--impl", None if spec else found_on)], path, given=[spec] if spec else [], trust=trust)
    ((_, target),) = load_targets([spec or found_on or ""])
    if to != target.dsl:
        raise click.UsageError(f"--to {to}: it is a program of {target.dsl}")
    target.enter()
    folder = out or path.with_name(f"{path.stem}-{to}")
    _write(str(found.fingerprint), folder, partial(export_compiler_finding, found, target, spec or found_on or "", folder))
    return True


VERBS = (export_verb, matrix_verb, recheck_verb, releases_verb, tracker_verb)


def _write(title: str, folder: Path, exporting: Callable[[], Sequence[Outcome]]) -> None:
    """Export to a new folder, and print what was written or why not."""
    if os.path.lexists(folder):  # a broken link exists too
        raise click.UsageError(f"--out {folder}: is there already")
    try:
        outcomes = exporting()
    except ExportError as refusal:
        click.echo(f"{title}\n    refused: {refusal}")
        sys.exit(1)
    lines = len((folder / "repro.py").read_text(encoding="utf-8").splitlines())
    click.echo(f"{title}\n    {outcomes[-1].values}")
    click.echo(f"    reproduced {len(outcomes)} times by itself; {lines} lines\n    {folder}")
