"""What reaches a terminal, and what becomes of a command whose standard output is lost."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mhc import terminal
from mhc.commands import Commands
from mhc.fuzz.cli.main import main
from mhc.terminal import Cleaned, Guarded, cleaned, one_line, safe

ESCAPES = {
    "clipboard": "\x1b]52;c;QQ==\x07",
    "title": "\x1b]0;t\x1b\\",
    "colour": "\x1b[31m",
    "device control": "\x1bP$q\x1b\\",
    "C1 introducer": "\x9b31m",
    "C1 command": "\x9d52;c;QQ\x9c",
    "return": "a\rb",
    "backspace": "a\b\b",
    "right to left": "\u202eabc\u2066",
    "delete": "\x7f",
    "bell": "\x07",
}


def harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@given(text=st.text())
def test_only_what_can_be_printed_is_left_and_it_is_not_changed_again(text: str) -> None:
    assert harmless(safe(text))
    assert safe(safe(text)) == safe(text)
    assert one_line(text).isprintable()


def test_what_is_no_escape_stays_whole() -> None:
    for text in ("dx[0] = 1, float64 0, bound 4e-08\n", "2⁻³⁰ …", "测试 é", ""):
        assert safe(text) == text
    assert safe("a\x1b]52;c;b\nc") == "a\nc", "an escape that does not end hides no more than its line"


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_no_command_prints_what_a_terminal_obeys(escape: str, tmp_path: Path) -> None:
    """A file's name in a usage error, a name in a file, an exception's message, plain output."""

    @click.group(cls=Commands)
    def group() -> None:
        pass

    @group.command()
    def says() -> None:
        click.echo(f"said {escape}")
        sys.stderr.write(f"written {escape}\n")

    @group.command()
    def fails() -> None:
        raise RuntimeError(f"failed {escape}")

    path = tmp_path / "case.json"
    path.write_text("{}", encoding="utf-8")
    for command, words, status in (
        (main, ["replay", f"absent{escape}.json"], 2),
        (main, ["replay", str(path), "--device", escape], 2),
        (main, [f"verb{escape}"], 2),
        (group, ["says"], 0),
        (group, ["fails"], 3),
    ):
        done = CliRunner().invoke(command, words)
        assert done.exit_code == status, done.output
        assert done.output.strip()
        assert harmless(done.output), done.output


class Full(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def write(self, text: str) -> int:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output is lost: [Errno 28] No space left on device\n"),
        (ValueError("I/O operation on closed file."), "standard output is lost: I/O operation on closed file.\n"),
    ],
)
def test_a_stream_that_fails_is_asked_no_more(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, said = Full(error), io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", said)
    with cleaned():
        for _ in range(3):
            click.echo("text")
        sys.stdout.writelines(["a", "b"])
    assert stream.asked == 1
    assert said.getvalue() == told
    assert (sys.stdout, sys.stderr) == (stream, said)


def test_a_standard_error_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full(OSError(errno.EIO, "gone")))
    with cleaned():
        click.echo("text", err=True)


def test_nothing_gets_around_it() -> None:
    """click writes to the bytes below a stream whose encoding it mistrusts."""
    bytes_ = io.BytesIO()
    text = io.TextIOWrapper(bytes_, encoding="ascii")
    assert not hasattr(Cleaned(text), "buffer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", text)
        with cleaned():
            click.echo("é\x1b[31m\x1b]52;c;QQ\x07")
    assert bytes_.getvalue() == b"\\xe9\n"


@pytest.mark.slow
def test_a_lost_standard_output_ends_no_campaign(tmp_path: Path) -> None:
    """Nobody reads it, it is closed, the disk is full: five cases run, and their reports are written."""
    reading, nobody_reads = os.pipe()
    os.close(reading)
    started = {}
    for name, how in {"nobody reads": "", "closed": "<&- >&-", "full": ">/dev/full"}.items():
        words = [sys.executable, "-m", "mhc.fuzz", "--cases", "5", "--impl", "manual", "--workers", "1", "--seed", "1"]
        command = " ".join([*words, "--out", str(tmp_path / name.replace(" ", "-")), how])
        started[name] = subprocess.Popen(["sh", "-c", command], stdout=nobody_reads, stderr=subprocess.PIPE, text=True)
    os.close(nobody_reads)
    for name, process in started.items():
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, (name, told)
        assert told == ("standard output is lost: [Errno 28] No space left on device\n" if name == "full" else ""), name
        (summary,) = (tmp_path / name.replace(" ", "-")).glob("*/summary.md")
        assert summary.read_text(encoding="utf-8").startswith("# 5 cases in ")
        assert (summary.parent / "report.html").stat().st_size > 10_000


def test_what_is_closed_is_opened_on_nothing() -> None:
    """In a process of its own: here, descriptors are pytest's."""
    program = (
        "import os, sys; from mhc.terminal import open_standard; open_standard();"
        "assert os.open(os.devnull, os.O_RDONLY) > 2; print('to nobody'); sys.stdout.flush(); sys.stderr.write('heard')"
    )
    command = f'{sys.executable} -c "{program}" <&- >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "heard")


def test_what_a_process_starts_has_all_standard_descriptors(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("import sys\n\nassert sys.stdin and sys.stderr\nprint('heard')\n")
    outer = tmp_path / "outer.py"
    outer.write_text(
        "import subprocess, sys\n\nfrom mhc.terminal import open_standard\n\nopen_standard()\n"
        f"subprocess.run([sys.executable, {str(tmp_path / 'inner.py')!r}], check=True)\n"
    )
    done = subprocess.run(["sh", "-c", f"{sys.executable} {outer} <&- 2>&-"], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "heard\n")


def test_a_guarded_stream_is_the_stream_in_all_else() -> None:
    stream = Guarded(io.StringIO())
    assert stream.write("\x1b[31m") == 5
    stream.flush()
    assert stream.getvalue() == "\x1b[31m"
    assert not stream.isatty()
    assert terminal.drawn_on(cast(io.StringIO, Cleaned(io.StringIO()))).write("\x1b") == 1
