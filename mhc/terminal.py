"""Printed text: without terminal escapes, on a standard output that may be closed.

Names, messages and files may come from untrusted sources. They reach the terminal as results, usage errors and tracebacks,
so the streams themselves are cleaned while a command runs. Output to a standard output that is closed, full or no longer
read is dropped and ends nothing: the findings of a campaign are in its files.
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
    """Return text without terminal escapes, with unprintable characters written as escapes such as `\\x07`."""
    plain = _ANSI.sub("", text).replace("\r\n", "\n")
    if plain.isprintable():
        return plain
    return "".join(char if char.isprintable() or char == "\n" else _written(char) for char in plain)


def one_line(text: str) -> str:
    """Return `safe(text)` with line breaks written as `\\n`."""
    return safe(text).replace("\n", "\\n")


def _written(char: str) -> str:
    return "    " if char == "\t" else ascii(char)[1:-1] if ord(char) > 127 or ord(char) < 32 else f"\\x{ord(char):02x}"


class Guarded:
    """A text stream that drops all output once writing has failed."""

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
        if name == "buffer":  # the raw buffer would not be guarded
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
        """Redirect its descriptor to /dev/null, since the flush at exit would fail again and change the exit status."""
        with suppress(OSError, ValueError):
            number = self._stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


class Cleaned(Guarded):
    """A guarded stream without terminal escapes. raw: the same stream, for output that draws with escapes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.raw = Guarded(stream)

    def write(self, text: str) -> int:
        super().write(safe(text))
        return len(text)


def drawn_on(stream: TextIO) -> TextIO:
    """Return `stream`, guarded, for output that draws on the terminal with its own escapes."""
    return cast(TextIO, stream.raw if isinstance(stream, Cleaned) else Guarded(stream))


@contextmanager
def cleaned() -> Iterator[None]:
    """Clean and guard standard output and error during the block."""
    open_standard()
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # print characters that the encoding lacks as escapes
    sys.stdout, sys.stderr = (cast(TextIO, Cleaned(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def open_standard() -> None:
    """Open closed standard descriptors on /dev/null, since the next opened file would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # processes that are started get it too
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  until the process ends
