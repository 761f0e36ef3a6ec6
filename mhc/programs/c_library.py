"""C functions of many programs: compiled in one file, loaded, and called with guards around each parameter."""

import _ctypes
import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs import guarded
from mhc.programs.compile_error import CompileError
from mhc.programs.grammar import Program

FLAGS = ("-O0", "-w", "-shared", "-fPIC", "-pipe")
_BARE = ("-nostdlib", "-lgcc")
"""Links C without the system's libraries, which this process has loaded: that takes a quarter of the time."""


class Library(ctypes.CDLL):
    """A library that is unloaded with its last user: a campaign loads very many."""

    def __del__(self) -> None:
        _ctypes.dlclose(self._handle)


def renamed(source: str, number: int) -> str:
    """Return C without its headers, with a name of its own for the function `f_kernel`."""
    bare = "\n".join(line for line in source.splitlines() if not line.startswith("#include"))
    return re.sub(r"\bf_kernel\b", f"f_kernel_{number}", bare)


def libraries(
    texts: Sequence[str], prelude: str, folder: Path, otherwise: Callable[[int, str], str] | None = None
) -> list[Library | CompileError]:
    """Return the library that holds each text: one for all, or, where they do not compile together, one for each.

    Args:
        prelude: stands before the texts. folder: an empty one, which must stay while they run.
        otherwise: compiles a text that does not compile alone in another way, into `NUMBER.so` in the folder; is given its
            number and what gcc says, and returns what its own compiler says.
    """
    if not cc("gcc", prelude + "\n".join(texts), folder / "all.c", *_BARE):
        together = Library(str(folder / "all.so"))
        return [together] * len(texts)
    found: list[Library | CompileError] = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.c"
        error = cc("gcc", prelude + text, path, *_BARE)
        if error and otherwise is not None:
            error = otherwise(number, error)
        found.append(CompileError("cc", error.replace(str(folder), "")) if error else Library(str(path.with_suffix(".so"))))
    return found


def cc(compiler: str, text: str, path: Path, *more: str) -> str:
    """Compile a file into a library beside it; return what the compiler says against it."""
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"{compiler} is not installed")
    path.write_text(text, encoding="utf-8")
    command = [compiler, *FLAGS, str(path), *more, "-o", str(path.with_suffix(".so"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr or f"status {done.returncode}" if done.returncode else ""


def call(library: Library, function: str, names: Sequence[str], program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Call a program's function once, and return its outputs.

    Args:
        names: of its parameters, in their order.

    Raises:
        CompileError: it wrote where it may not.
    """
    memory = guarded.guarded(program)
    called = getattr(library, function)
    passed = guarded.passed(program)
    values = {name: ctypes.c_void_p(raw.ctypes.data + guarded.GUARD) for name, raw in memory.items()} | passed
    called(*(values[name] for name in names))
    return guarded.outputs(program, memory)
