"""What a campaign shows while it runs, on a terminal and elsewhere."""

import io
import os
import select
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TextIO

import click
import pytest
from rich.console import Console

from mhc.fuzz.campaign.campaign import Budget
from mhc.fuzz.cli.display import Lines, Rows, Snapshot, Watcher, Work, display, line, rows
from mhc.fuzz.worker.protocol import Minimise, Round
from mhc.terminal import cleaned
from tests.support.fake_executor import WRONG

FOUND = "FOUND mine: dx: value (bound)\n    dx[0] = 1, float64 0\n    python -m mhc.fuzz replay " + "x" * 200 + ".json"


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def campaign(**changes: Any) -> Any:
    """As much of a campaign as a display looks at."""
    small = replace(WRONG, fingerprint=replace(WRONG.fingerprint, implementation="tir"))
    requests = {
        ("triton-interpreted", "running"): Round(seed=0, count=10),
        ("tir", "starting"): Round(seed=0, count=10),
        ("tir", "minimising"): Minimise(finding=small, checks=1, seconds=1.0),
    }
    slots = [
        SimpleNamespace(name=name, process=SimpleNamespace(doing=doing, since=97.0), request=request)
        for (name, doing), request in requests.items()
    ]
    told = {
        "cases": 1234,
        "found": 1,
        "now": 60.0,
        "stopping": None,
        "budget": Budget(seconds=3600.0),
        "subjects": {"triton-interpreted": None, "tir": None},
        "pool": SimpleNamespace(busy=lambda: slots),
    }
    return SimpleNamespace(**{**told, **changes})


def drawn(seen: Snapshot, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(rows(seen))
    return capture.get().splitlines()


def test_rows_tell_time_left_cases_rate_findings_and_each_worker() -> None:
    assert drawn(Watcher(Clock()).look(campaign()), 80) == [
        "59 min left, 1,234 cases, 0.0/s, 1 finding",
        "  triton-interpreted  running 3 s",
        "  tir                 starting 3 s",
        "  minimising tir: dx: value (bound)",
    ]


@pytest.mark.parametrize("width", [1, 8, 20, 40])
def test_rows_never_wrap(width: int) -> None:
    found = drawn(Watcher(Clock()).look(campaign()), width)
    assert len(found) == 4
    assert all(len(one) <= width for one in found)


def test_hostile_names_are_one_row_each_of_what_can_be_printed() -> None:
    work = (Work(name="a\x1b[31m\nb\u202e" + "x" * 1000, doing="running", seconds=0.2),)
    found = drawn(Snapshot(seconds=1, left="", cases=0, rate=0, findings=0, work=work), 80)
    assert len(found) == 2
    assert found[1].isprintable()
    assert found[1].endswith("…  running"), "what is quick has no number"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"budget": Budget(cases=300)}, "of 600 cases"),
        ({"budget": Budget(cases=300, seconds=100)}, "40 s left, of 600 cases"),
        ({"now": 3601.0}, "time is up"),
        ({"stopping": "SIGINT"}, "ending, SIGINT"),
    ],
)
def test_what_is_left(changes: dict[str, Any], told: str) -> None:
    assert Watcher(Clock()).look(campaign(**changes)).left == told


def test_the_rate_is_that_of_the_last_half_minute_of_this_leg() -> None:
    clock = Clock()
    watch = Watcher(clock)
    rates = []
    for second in range(121):
        clock.now = 100.0 + second
        rates.append(watch.look(campaign(cases=1000 + (10 * second if second < 60 else 600))).rate)
    assert rates[0] == 0
    assert rates[59] == 10
    assert 0 < rates[75] < 10
    assert rates[120] == 0


def test_lines_come_often_at_first_and_every_minute_later() -> None:
    clock, file = Clock(), io.StringIO()
    shown = Lines(file, clock)
    for tick in range(4 * 3600):
        clock.now = 100.0 + tick / 4
        shown(campaign(cases=1000 + tick))
    lines = file.getvalue().splitlines()
    assert "  4.0 cases/s  " in lines[0]
    assert "  4.0 cases/s  " in lines[-1]
    at = [int(one.split()[0]) for one in lines]
    assert at[:4] == [5, 10, 15, 20]
    assert at[-1] - at[-2] == 60
    assert len(at) < 100


def test_a_line_has_all_of_it() -> None:
    seen = Snapshot(seconds=61.4, left="59 min left", cases=1234, rate=20.14, findings=2, work=())
    assert line(seen) == "    61 s    1234 cases   20.1 cases/s  2 findings  59 min left"


class Terminal:
    """A terminal of which this test is the screen."""

    def __init__(self) -> None:
        self._screen, end = os.openpty()
        self.file: TextIO = os.fdopen(end, "w", encoding="utf-8")

    def written(self) -> str:
        text = b""
        while select.select([self._screen], [], [], 0.2)[0]:
            text += os.read(self._screen, 1 << 16)
        return text.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.file.close()
        os.close(self._screen)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    opened = Terminal()
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    yield opened
    opened.close()


def test_on_a_terminal_what_is_told_stays_whole_above_the_rows(terminal: Terminal) -> None:
    before = sys.stdout
    with display(terminal.file) as shown:
        assert isinstance(shown, Rows)
        shown(campaign())
        assert "1,234 cases" in terminal.written()
        shown.tell(FOUND)
        text = terminal.written()
        assert FOUND in text, "with no break that the terminal did not make"
        assert text.index(FOUND) < text.index("1,234 cases"), "and the rows again under it"
    assert sys.stdout is before
    last = terminal.written()
    assert "1,234" not in last, "the rows go"
    assert last.rstrip("\n").endswith(("\x1b[?25h", "\x1b[2K")), last
    assert "\x1b[?25h" in last, "and the cursor is back"


def test_an_error_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    with pytest.raises(AttributeError), display(terminal.file) as shown:
        shown(campaign(budget=None))
    assert terminal.written().count("\x1b[?25h") == 1


def test_an_end_at_once_gives_the_cursor_back(terminal: Terminal) -> None:
    with display(terminal.file) as shown:
        shown(campaign())
        assert "\x1b[?25l" in terminal.written()
        shown.abandon()
        assert "\x1b[?25h" in terminal.written()


def test_rows_outlive_their_terminal(terminal: Terminal) -> None:
    with display(terminal.file) as shown:
        assert isinstance(shown, Rows)
        shown(campaign())
        os.close(terminal._screen)
        shown._next = 0.0
        shown.tell("FOUND nothing")
        shown(campaign())
        shown.abandon()
    terminal._screen = os.open(os.devnull, os.O_RDONLY)


def test_what_others_print_beside_the_rows_is_cleaned(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal.file)
    with cleaned(), display() as shown:
        assert isinstance(shown, Rows)
        terminal.written()
        click.echo("said \x1b]52;c;QQ\x07\x1b[31m\x9b31m")
        text = terminal.written()
    assert "said \\x9b31m" in text
    assert "\x1b]52" not in text


@pytest.mark.parametrize("how", ["a pipe", "dumb", "colours forced"])
def test_elsewhere_there_are_plain_lines(terminal: Terminal, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setenv(*{"a pipe": ("TERM", "xterm"), "dumb": ("TERM", "dumb")}.get(how, ("FORCE_COLOR", "1")))
    with display(terminal.file if how == "dumb" else pipe) as shown:
        assert isinstance(shown, Lines)
        shown.tell(FOUND)
        shown.abandon()
    assert (terminal.written() if how == "dumb" else pipe.getvalue()) == FOUND + "\n"
