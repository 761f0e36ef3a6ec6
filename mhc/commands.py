"""The base class of the package's command lines."""

import sys
import traceback
from typing import Any

import click

from mhc.terminal import cleaned


class Commands(click.Group):
    """A group that prints no terminal escapes and exits with status 3 on an unexpected exception.

    Python's own status for a traceback, 1, means a finding here.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        with cleaned():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before or after a campaign, which handles it itself
            click.echo("ended by SIGINT", err=True)
            sys.exit(130)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:  # a fault of the harness: shown in full
            traceback.print_exc()
            sys.exit(3)
