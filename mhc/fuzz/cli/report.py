"""`python -m mhc.fuzz report RUN`: a run's reports, written anew from its store."""

import os
import sqlite3
import sys
from pathlib import Path

import click

from mhc.fuzz.campaign.store import FILE, StoreError
from mhc.fuzz.cli.configuration import known_here
from mhc.fuzz.report import annotations, markdown, read_folder, summary, write


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--github-summary", is_flag=True, help="Append the summary to the file that $GITHUB_STEP_SUMMARY names, for its job."
)
@click.option(
    "--annotations",
    "most",
    type=click.IntRange(min=0),
    metavar="N",
    help="Print the first N findings as GitHub's annotations, at the line of their implementation.",
)
def report(run: Path, github_summary: bool, most: int | None) -> None:
    """Write report.html, summary.md and junit.xml of a run anew, and show the summary.

    \b
        python -m mhc.fuzz report fuzz_reports/20261121-021603-seed1
        python -m mhc.fuzz report fuzz_reports/RUN --github-summary --annotations 10

    RUN is a folder that a campaign made; it may have been killed, or still run. Exit status: that of its campaign, which is
    0 clean, 1 findings that are no known issues, 2 nothing judged, 3 a fault of the harness itself; or 2 usage.
    """
    path = run / FILE
    if not path.is_file():
        raise click.UsageError(f"{run}: is no run's folder; it has no {FILE}")
    try:
        found = read_folder(run, known_here())
        write(found)
    except (OSError, StoreError, sqlite3.DatabaseError) as error:
        raise click.UsageError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    text = markdown(found)
    click.echo(text, nl=False)
    if most is not None:
        click.echo(annotations(found, most, Path(os.environ.get("GITHUB_WORKSPACE", "."))), nl=False)
    if github_summary:
        _append(summary(text))
    for name in (*found.unavailable, *found.empty):
        click.echo(f"{name}: {found.gaps[name]}", err=True)
    sys.exit(found.status)


def _append(text: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise click.UsageError("--github-summary: $GITHUB_STEP_SUMMARY names no file; it is set in a job of GitHub Actions")
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"--github-summary: {error}") from error
