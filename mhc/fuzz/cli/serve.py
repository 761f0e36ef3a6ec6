"""`python -m mhc.fuzz serve RUN`: the report of a run as a live page on this machine."""

import sqlite3
from pathlib import Path

import click

from mhc.fuzz.campaign.store import FILE, StoreError
from mhc.fuzz.cli.configuration import known_here
from mhc.fuzz.report.live import LiveServer
from mhc.terminal import safe


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of 127.0.0.1.  [default: one that is free]")
def serve(run: Path, port: int) -> None:
    """Serve the report of a run, which updates itself while the campaign runs, until Ctrl-C.

    \b
        python -m mhc.fuzz serve fuzz_reports/20261121-021603-seed1

    It is read only, and answers this machine only; all its users can read it. RUN is a folder that a campaign made; it may
    have ended. Exit status: 0 after Ctrl-C, 2 usage.
    """
    if not (run / FILE).is_file():
        raise click.UsageError(f"{run}: is no run's folder; it has no {FILE}")
    try:
        server = LiveServer(run, port, known_here())
    except (StoreError, sqlite3.DatabaseError) as error:
        raise click.UsageError(f"{run}: {error}") from error
    except OSError as error:
        raise click.UsageError(f"--port {port}: {error.strerror or error}") from error
    try:
        with server:
            click.echo(f"serving {safe(str(run))} at {server.url} (Ctrl-C ends)")
            server.serve_forever()
    except KeyboardInterrupt:
        click.echo()
