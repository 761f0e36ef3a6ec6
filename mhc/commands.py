"""What the command lines of the package have in common."""

import sys
import traceback
from typing import Any

import click

from mhc.terminal import cleaned


class Commands(click.Group):
    """A group that prints nothing a terminal obeys, and ends with status 3 on unforeseen exceptions.

    A traceback's own status 1 would read as a finding.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        with cleaned():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before or behind a campaign, which takes it for itself
            click.echo("ended by SIGINT", err=True)
            sys.exit(130)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:  # whatever it is, it is shown, and it is the harness's
            traceback.print_exc()
            sys.exit(3)
