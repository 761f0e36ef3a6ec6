"""What the command lines of the package have in common."""

import sys
import traceback

import click


class Commands(click.Group):
    """A group whose unforeseen exceptions end with status 3: a traceback's own status 1 would read as a finding."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:  # whatever it is, it is shown, and it is the harness's
            traceback.print_exc()
            sys.exit(3)
