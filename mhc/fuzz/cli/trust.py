"""What a command may execute: what is built in, what its command line names, and what its user agrees to.

An implementation is a Python file or module, and loading it executes it. A finding or a store may be another person's, so a
name in it is asked for before anything of it is imported. An installed package's entry point is too: metadata in the current
folder can define one.
"""

import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from mhc.registry import built_in
from mhc.terminal import one_line

_LONGEST = 500

trust_option = click.option("--trust", is_flag=True, help="Execute the implementations that the file or run names.")

Named = Sequence[tuple[str, str | None]]
"""Names in a file, None where there is none, each with the option that names the same on the command line, or ''."""


def require_trust(named: Named, where: Path, *, given: Collection[str] = (), trust: bool = False) -> None:
    """Let only what is trusted be loaded of what the file or folder `where` names; imports nothing.

    Args:
        given: what the command line names. trust: whether it has `--trust`.

    Raises:
        click.UsageError: something else is named, and nobody agrees to it.
    """
    others = {spec: option for option, spec in named if spec is not None and spec not in {*built_in(), *given}}
    if trust or not others:
        return
    told = ", ".join(map(_told, others))
    if _asks() and _agreed(f"{where} names what would be executed, with your rights: {told}\nExecute it?"):
        return
    options = [f"{option} {shlex.quote(one_line(spec))}" for spec, option in others.items() if option]
    ways = [" ".join(options)[:_LONGEST], "--trust"] if len(options) == len(others) else ["--trust"]
    raise click.UsageError(f"{where}: names {told}, which would be executed; if you trust it, give {' or '.join(ways)}")


def has_outside(specs: Sequence[str]) -> bool:
    """Whether some of `specs` are not built in, so that what names them is asked for."""
    return not set(specs) <= set(built_in())


def _told(spec: str) -> str:
    """A name, with the file that it is."""
    place = spec.rpartition(":")[0]
    file = f" ({Path(place).absolute()})" if place.endswith(".py") else ""
    return one_line(f"{spec}{file}")[:_LONGEST]


def _asks() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, default=False)
    except click.Abort:
        return False
