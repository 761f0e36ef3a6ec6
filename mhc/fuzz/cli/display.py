"""Shows a running campaign: live rows on a terminal, plain lines elsewhere."""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mhc.fuzz.campaign.campaign import Campaign
from mhc.fuzz.report.words import count, cut, duration, plural
from mhc.fuzz.worker.protocol import Minimise, Round
from mhc.terminal import cleaned, drawn_on, safe

_REDRAW = 0.25
_LINE = 5.0  # seconds between lines at first
_LINE_SHARE = 1 / 12  # of the time so far: a line a minute after twelve minutes
_LINE_MOST = 60.0
_WINDOW = 30.0  # seconds that a rate is over
_ROW = 60  # cells: where a terminal gets narrower than a row, what it wrapped stays on it


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one worker does. seconds: since when."""

    name: str
    doing: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A campaign at one moment.

    Attributes:
        seconds: of this leg. left: what remains of the budget, in words.
        rate: recent cases a second. work: of each busy worker. minimising: findings that are being minimised.
    """

    seconds: float
    left: str
    cases: int
    rate: float
    findings: int
    work: tuple[Work, ...]
    minimising: tuple[str, ...] = ()


class Watcher:
    """Takes snapshots of a campaign, with the rate of the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, campaign: Campaign) -> Snapshot:
        now = self._clock()
        self._seen.append((now, campaign.cases))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW:
            self._seen.popleft()
        (then, before), (_, after) = self._seen[0], self._seen[-1]
        return Snapshot(
            seconds=now - self._started,
            left=_left(campaign),
            cases=after,
            rate=(after - before) / (now - then) if now > then else 0.0,
            findings=campaign.found,
            work=tuple(
                Work(name=slot.name, doing=slot.process.doing, seconds=now - slot.process.since)
                for slot in campaign.pool.busy()
                if isinstance(slot.request, Round)
            ),
            minimising=tuple(
                str(slot.request.finding.fingerprint) for slot in campaign.pool.busy() if isinstance(slot.request, Minimise)
            ),
        )


def _left(campaign: Campaign) -> str:
    if campaign.stopping is not None:
        return f"ending, {campaign.stopping}"
    budget, parts = campaign.budget, []
    if budget.seconds != float("inf"):
        seconds = budget.seconds - campaign.now
        parts.append(f"{duration(round(seconds))} left" if seconds >= 0.5 else "time is up")
    if budget.cases != float("inf"):
        parts.append(f"of {count(budget.cases * len(campaign.subjects))} cases")
    return ", ".join(parts)


class Display(ABC):
    """Prints a campaign's messages and shows its progress. A context manager; called several times a second."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the terminal as it was, but for the lines."""
        return

    @abstractmethod
    def tell(self, text: str) -> None:
        """Print lines that stay."""

    @abstractmethod
    def __call__(self, campaign: Campaign) -> None:
        """Show the progress, if it is time to."""

    def abandon(self) -> None:
        """Leave the terminal usable, since the process ends at once. Safe in a signal handler."""
        return


class Lines(Display):
    """Plain lines for files and pipes: every few seconds at first, later every minute."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._watch = Watcher(clock)
        self._started = clock()
        self._next: float | None = None

    def tell(self, text: str) -> None:
        click.echo(text, file=self._file)

    def __call__(self, campaign: Campaign) -> None:
        now = self._clock()
        if self._next is None:  # what there was before this leg is no rate
            self._watch.look(campaign)
            self._next = now + _LINE
        elif now >= self._next:
            self._next = now + min(_LINE_MOST, max(_LINE, _LINE_SHARE * (now - self._started)))
            click.echo(line(self._watch.look(campaign)), file=self._file)


class Rows(Display):
    """Live rows at the bottom of a terminal, below the messages."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._watch = Watcher(clock)
        self._live = Live(console=console, auto_refresh=False, transient=True)  # no thread of its own
        self._streams = ExitStack()
        self._next = clock()

    def __enter__(self) -> Self:
        self._live.start()
        self._streams.enter_context(cleaned())  # what others print meanwhile goes through Rich, onto the terminal itself
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._streams.close()
        self._live.update(Text(""))
        self._live.stop()

    def tell(self, text: str) -> None:
        self._console.print(Text(safe(text)), soft_wrap=True)  # whole lines: what is copied from it has no breaks

    def __call__(self, campaign: Campaign) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + _REDRAW
            self._live.update(rows(self._watch.look(campaign)), refresh=True)

    def abandon(self) -> None:
        show_cursor = b"\x1b[?25h\r\n"
        with suppress(OSError, ValueError):  # the terminal is gone
            os.write(self._console.file.fileno(), show_cursor)


def line(seen: Snapshot) -> str:
    """Return how far the campaign is, on one line."""
    found = "finding" if seen.findings == 1 else "findings"
    parts = f"{seen.seconds:6.0f} s  {seen.cases:6} cases  {seen.rate:5.1f} cases/s  {seen.findings} {found}"
    return f"{parts}  {seen.left}".rstrip()


def rows(seen: Snapshot) -> Group:
    """Return how far the campaign is, and a row for each busy worker."""
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(seen.left, style="bold")
    head.append(f"{', ' if seen.left else ''}{plural(seen.cases, 'case')}, {seen.rate:.1f}/s, ")
    head.append(plural(seen.findings, "finding"), style="bold red" if seen.findings else "")
    wide = min(_ROW // 2, max((len(one.name) for one in seen.work), default=0))
    parts = [f"{cut(one.name, wide):{wide}}  {one.doing}{_since(one.seconds)}" for one in seen.work]
    parts += [cut(f"minimising {name}", _ROW - 2) for name in seen.minimising]
    return Group(head, *(Text(f"  {one}", style="dim", no_wrap=True, overflow="ellipsis") for one in parts))


def _since(seconds: float) -> str:
    """Return how long something has lasted, in words; "" for a short time."""
    return f" {duration(int(seconds))}" if seconds >= 1 else ""


@contextmanager
def display(file: TextIO | None = None) -> Iterator[Display]:
    """Yield the display that fits `file`, standard output where none is given."""
    file = file or sys.stdout
    console = Console(file=drawn_on(file), highlight=False)
    terminal = file.isatty() and console.is_terminal and not console.is_dumb_terminal
    with Rows(console) if terminal else Lines(file) as shown:
        yield shown
