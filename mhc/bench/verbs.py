"""What the verbs of `python -m mhc.bench` share: options, names to choose from, progress lines, and pages of results."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import click
import torch

from mhc.commands import Commands
from mhc.environment import environment
from mhc.implementation import DEVICES

RESULTS = Path("docs/results")
Option = Callable[[Any], Any]
_ARGUMENTS = "mhc.bench.arguments"


class Verbs(Commands):
    """A group that remembers the words of its command line, which pages show."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def command() -> str:
    """Return the command that is running, as it was given."""
    return f"python -m mhc.bench {shlex.join(click.get_current_context().meta.get(_ARGUMENTS, ()))}"


def today() -> str:
    """Return the date in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def hardware(device: str) -> str:
    """Return what a page calls the device."""
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "CPU" if device == "cpu" else device


def setting(device: str) -> str:
    """Return the day, the device and versions: the line at the head of a page of times."""
    where, packages = hardware(device), environment().packages
    if device == "cuda":
        where += f", {torch.cuda.get_device_properties().multi_processor_count} SM"
    tools = f"torch {torch.__version__}, Triton {packages['triton']}, TileLang {packages['tilelang']}"
    return f"{today()} (UTC), {where}, {tools}, CUDA {torch.version.cuda or 'none'}"


def whole(*names: str, least: int = 1, help: str, **more: Any) -> Option:
    """Return an option that takes an integer from `least`."""
    return click.option(*names, type=click.IntRange(min=least), show_default=True, help=help, **more)


def number(*names: str, least: float = 1, help: str, **more: Any) -> Option:
    """Return an option that takes a number from `least`."""
    return click.option(*names, type=click.FloatRange(min=least), show_default=True, help=help, **more)


def positive(*names: str, help: str, **more: Any) -> Option:
    """Return an option that takes a number above 0."""
    return click.option(*names, type=click.FloatRange(min=0, min_open=True), show_default=True, help=help, **more)


def several(*names: str, metavar: str, help: str, **more: Any) -> Option:
    """Return an option that may be given more than once."""
    return click.option(*names, multiple=True, metavar=metavar, help=f"{help} Repeatable.", **more)


def jobs(help: str) -> Option:
    """Return the option for how much runs at a time, by default one for each core."""
    return whole("--jobs", default=os.cpu_count() or 1, help=help)


def device(help: str) -> Option:
    """Return the option for the device."""
    return click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help=help)


def write(what: object) -> Option:
    """Return the option that writes the page. what: the page, in words."""
    return click.option("--write", is_flag=True, help=f"Write {what}.")


SEED = whole("--seed", least=0, default=0, help="Of all that is drawn.")
ONLY = several("--only", "names", metavar="NAME", help="A mutant, a base (manual, triton, tilelang) or a set.")
STATE = click.option(
    "--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has."
)


def refuse_unknown(names: Iterable[str], known: Collection[str], what: str, option: str = "--only") -> None:
    """Refuse a name that an option was given and that is not known.

    Raises:
        click.UsageError: a name is not in `known`.
    """
    for name in names:
        if name not in known:
            raise click.UsageError(f"{option} {name}: no such {what}; known are {', '.join(known)}")


class Page:
    """The page of a verb, and the lines that say how far it is.

    Args:
        write: whether `path` is written; else the page is only printed.

    Raises:
        click.UsageError: its folder is not there, which is said now and not after minutes of measuring.
    """

    def __init__(self, path: Path, *, write: bool) -> None:
        if write and not path.parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
        self._path = path if write else None
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return how long the verb has been running."""
        return time.monotonic() - self._started

    def show(self, line: str) -> None:
        """Print a line of progress."""
        click.echo(f"{self.seconds:6.0f} s  {line}")

    def write(self, text: str, suffix: str = ".md") -> None:
        """Write the page, or what stands beside it."""
        if self._path is not None:
            self._path.with_suffix(suffix).write_text(text, encoding="utf-8")

    def finish(self, text: str, status: int) -> NoReturn:
        """Write the page, print it, and exit."""
        self.write(text)
        click.echo(f"\n{text}")
        sys.exit(status)
