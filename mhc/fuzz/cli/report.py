"""`python -m mhc.fuzz report RUN`: a run's reports, written anew from its store."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import click

from mhc.fuzz.campaign.store import FILE, Store, StoreError
from mhc.fuzz.report import markdown, read, write


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(run: Path) -> None:
    """Write report.html, summary.md and junit.xml of a run anew, and show the summary.

    \b
        python -m mhc.fuzz report fuzz_reports/20261121-021603-seed1

    RUN is a folder that a campaign made; it may have been killed, or still run. Exit status: that of its campaign, which is
    0 clean, 1 findings that are no known issues, 2 nothing judged, 3 a fault of the harness itself; or 2 usage.
    """
    path = run / FILE
    if not path.is_file():
        raise click.UsageError(f"{run}: is no run's folder; it has no {FILE}")
    try:
        with closing(Store(path)) as store:
            found = read(run, store)
        write(found)
    except (OSError, StoreError, sqlite3.DatabaseError) as error:
        raise click.UsageError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    click.echo(markdown(found), nl=False)
    for name in found.empty:
        click.echo(f"{name}: {found.gaps[name]}", err=True)
    sys.exit(found.status)
