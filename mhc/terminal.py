"""What is printed: text without what a terminal obeys, on a standard output that may be lost.

Names, messages and files may be anybody's. They reach the terminal as results, usage errors and tracebacks alike, so they
are cleaned in one place: the streams themselves, while a command runs. A standard output that is closed, full or no longer
read takes nothing more and ends nothing: what a campaign has found is in its files.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?)")


def safe(text: str) -> str:
    """Without terminal escapes, and with what cannot be printed written out: a kernel's message may hold anything."""
    plain = _ANSI.sub("", text).replace("\r\n", "\n")
    if plain.isprintable():
        return plain
    return "".join(char if char.isprintable() or char == "\n" else _written(char) for char in plain)


def one_line(text: str) -> str:
    """`safe`, with line breaks written out too."""
    return safe(text).replace("\n", "\\n")


def _written(char: str) -> str:
    return "    " if char == "\t" else ascii(char)[1:-1] if ord(char) > 127 or ord(char) < 32 else f"\\x{ord(char):02x}"


class Guarded:
    """A text stream that is dropped once it cannot be written to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> int:
        self._unless_lost(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # below it, nothing is guarded
            raise AttributeError(name)
        return getattr(self._stream, name)

    def _unless_lost(self, action: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            action()
        except (OSError, ValueError) as error:
            self._lost = True
            self._to_nowhere()
            reader_gone = isinstance(error, OSError) and error.errno in {errno.EPIPE, errno.EBADF}
            if sys.stderr is not self and not reader_gone:
                sys.stderr.write(f"standard output is lost: {error}\n")

    def _to_nowhere(self) -> None:
        """Point its descriptor at /dev/null: the flush at exit would fail again, and change the exit status."""
        with suppress(OSError, ValueError):
            number = self._stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


class Cleaned(Guarded):
    """A guarded stream with nothing on it that a terminal obeys. raw: the same one for who draws on the terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.raw = Guarded(stream)

    def write(self, text: str) -> int:
        super().write(safe(text))
        return len(text)


def drawn_on(stream: TextIO) -> TextIO:
    """`stream` for who draws on a terminal with escapes of its own; guarded as well."""
    return cast(TextIO, stream.raw if isinstance(stream, Cleaned) else Guarded(stream))


@contextmanager
def cleaned() -> Iterator[None]:
    """Standard output and error, cleaned and guarded, for as long as the block runs."""
    open_standard()
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a character that its encoding lacks is no reason to fail
    sys.stdout, sys.stderr = (cast(TextIO, Cleaned(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def open_standard() -> None:
    """Open what is closed of the standard descriptors on /dev/null: the next file would get the number of one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  until the process ends
