"""Makes a kernel of a program's text. Needs Triton."""

import itertools
import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mhc.programs.compile_error import CompileError

_numbers = itertools.count()


def triton() -> Any:
    import triton  # noqa: PLC0415 - the rest of the package needs no Triton

    return triton


def release() -> str:
    """Return the release that is installed."""
    return str(triton().__version__)


@contextmanager
def built(text: str) -> Iterator[Any]:
    """Yield the kernel `f` of a program's text, which Triton reads again while the block runs.

    Raises:
        CompileError: the text is refused.
    """
    name = f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"triton": triton(), "tl": triton().language, "__name__": "program"}
    try:
        try:
            exec(compile(text, name, "exec"), scope)  # noqa: S102 - text of ours
        except Exception as error:
            raise CompileError("build", f"{type(error).__name__}: {error}") from error
        yield scope["f"]
    finally:
        linecache.cache.pop(name, None)


def refused(stage: str, error: BaseException) -> CompileError:
    """Return how Triton fails, from what it raises: the innermost reason comes last, an empty one with its line."""
    reasons: list[str] = []
    at: BaseException | None = error
    while at is not None:
        told = str(getattr(at, "error_message", None) or at).strip()
        frames = traceback.extract_tb(at.__traceback__)
        reasons.append(f"{type(at).__name__}: {told or (frames[-1].line if frames else '')}")
        at = at.__cause__
    return CompileError(stage, "\n".join(reasons))
