"""The verb `export` of `python -m mhc.fuzz`."""

import sys
from pathlib import Path

import click

from mhc.fuzz.process import HarnessError
from mhc.fuzz.verbs import open_finding, our_fault
from mhc.implementation import DEVICES
from mhc.upstream.errors import ExportError
from mhc.upstream.export import TARGETS, export


@click.command(name="export")
@click.argument("finding_file", metavar="FINDING.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", type=click.Choice(TARGETS), required=True, help="Whose maintainers are to read it.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder to make; FINDING-TO beside the finding if not given."
)
@click.option("--impl", "spec", metavar="IMPL", help="Export it from this implementation instead: NAME or FILE.py:NAME.")
@click.option("--device", type=click.Choice(DEVICES), help="Where it runs; the first that the kernel takes if not given.")
def export_verb(finding_file: Path, to: str, out: Path | None, spec: str | None, device: str | None) -> None:
    """Make a finding a folder for an upstream issue: repro.py, which needs the DSL alone, issue.md and export.json.

    \b
        python -m mhc.fuzz export fuzz_reports/RUN/1f3a90c2.json --to tilelang
        python -m mhc.fuzz export small.json --to triton --out issues/dx

    The program must reproduce three times, each in a fresh process with empty caches where nothing of this package can be
    imported. Nothing is sent anywhere. Exit status: 0 the folder is written, 1 refused: no program can be made, or it does
    not reproduce, and nothing is written; 2 usage, 3 a fault of the harness itself.
    """
    found, _, where = open_finding(finding_file, spec, device)
    folder = out or finding_file.with_name(f"{finding_file.stem}-{to}")
    if folder.exists():
        raise click.UsageError(f"--out {folder}: is there already")
    try:
        made = export(found, to, folder, where)
    except ExportError as refusal:
        click.echo(f"{found.fingerprint}\n    refused: {refusal}")
        sys.exit(1)
    except HarnessError as fault:
        our_fault(fault)
    click.echo(f"{found.fingerprint}\n    {made.outcomes[-1].values}")
    click.echo(f"    reproduced {len(made.outcomes)} times by itself; {made.program.lines} lines\n    {folder}")
