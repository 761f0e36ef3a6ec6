"""Which implementations a command may execute: built-in ones, those on its command line, and those its user confirms.

An implementation is a Python file or module, and loading it executes it. A finding or a store may come from somebody else,
so the user confirms each name in it before anything is imported. This includes entry points of installed packages, since
metadata in the current folder can define one.
"""

import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from mhc.programs.targets import TARGETS
from mhc.registry import built_in
from mhc.terminal import one_line

_LONGEST = 500

trust_option = click.option("--trust", is_flag=True, help="Execute the implementations that the file or run names.")

Named = Sequence[tuple[str, str | None]]
"""(option, name) of each name in a file: the option that would give it on the command line, or ''; the name or None."""


def require_trust(named: Named, where: Path, *, given: Collection[str] = (), trust: bool = False) -> None:
    """Refuse names in the file or folder `where` that are not trusted; imports nothing.

    Args:
        given: names on the command line. trust: whether it has `--trust`.

    Raises:
        click.UsageError: another name is in the file, and the user does not confirm it.
    """
    others = {spec: option for option, spec in named if spec is not None and spec not in {*built_in(), *TARGETS, *given}}
    if trust or not others:
        return
    named_ = ", ".join(map(_with_file, others))
    if _asks() and _agreed(f"{where} names what would be executed, with your rights: {named_}\nExecute it?"):
        return
    options = [f"{option} {shlex.quote(one_line(spec))}" for spec, option in others.items() if option]
    ways = [" ".join(options)[:_LONGEST], "--trust"] if len(options) == len(others) else ["--trust"]
    raise click.UsageError(f"{where}: names {named_}, which would be executed; if you trust it, give {' or '.join(ways)}")


def has_outside(specs: Sequence[str]) -> bool:
    """Return whether some of `specs` are not built in, so that they must be confirmed."""
    return not set(specs) <= {*built_in(), *TARGETS}


def _with_file(spec: str) -> str:
    """Return a name with its file."""
    place = spec.rpartition(":")[0]
    file = f" ({Path(place).absolute()})" if place.endswith(".py") else ""
    return one_line(f"{spec}{file}")[:_LONGEST]


def _asks() -> bool:
    """Return whether a user is at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, default=False)
    except click.Abort:
        return False
