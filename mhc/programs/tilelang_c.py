"""TileLang's `c` target: lower a program, compile the C that comes out, and run it. Needs TileLang and a C compiler."""

import _ctypes
import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs import guarded
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.grammar import Program
from mhc.programs.tilelang_lower import lowered, takes_is_cpu
from mhc.programs.tilelang_text import CPU_OLD, render

FLAGS = ("-O0", "-w", "-shared", "-fPIC")
_PRELUDE = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\ntypedef _Float16 half;\n"
"""In place of TileLang's header, whose half precision in C++ takes a second to compile."""


def source_of(program: Program) -> str:
    """Return the text of the program for the installed release."""
    return render(program, CPU_OLD if takes_is_cpu() else "")


def lower(program: Program) -> str:
    """Return the C that TileLang generates.

    Raises:
        CompileError: it does not.
    """
    text: str = lowered(source_of(program), "c", program.configs).kernel_source
    return text


def prepare(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Compile what was lowered, all in one file, and return what runs each; or how a program does not compile.

    Args:
        folder: an empty folder, which must stay while they run. exact: what a small header does not compile is compiled
            with TileLang's own ones, which takes a second or two.
    """
    together = [_renamed(source, number) for number, source in enumerate(sources)]
    error = _cc("gcc", _PRELUDE + "\n".join(together), folder / "all.c")
    library = None if error else _Library(str(folder / "all.so"))
    ready: list[Run | CompileError] = []
    for number, (program, source) in enumerate(zip(programs, sources, strict=True)):
        try:
            name = f"f_kernel_{number}"
            one = library or _alone(source, together[number], folder / f"{number}.c", exact=exact)
            ready.append(partial(_called, one, getattr(one, name), source, program))
        except CompileError as error:
            ready.append(error)
    return ready


def _renamed(source: str, number: int) -> str:
    """Return generated C without its headers, with a name of its own for the kernel."""
    bare = "\n".join(line for line in source.splitlines() if not line.startswith("#include"))
    return re.sub(r"\bf_kernel\b", f"f_kernel_{number}", bare)


class _Library(ctypes.CDLL):
    """A library that is unloaded with its last user: a campaign loads very many."""

    def __del__(self) -> None:
        _ctypes.dlclose(self._handle)


def _alone(source: str, renamed: str, path: Path, *, exact: bool) -> "_Library":
    """Compile one program.

    Raises:
        CompileError: it does not compile.
    """
    error = _cc("gcc", _PRELUDE + renamed, path)
    if error and exact:
        path = path.with_suffix(".cc")
        headers = "\n".join(line for line in source.splitlines() if line.startswith("#include"))
        error = _cc("g++", f"{headers}\n{renamed}", path, f"-I{_headers()}", "-std=c++17")
    if error:
        raise CompileError("cc", error.replace(str(path.parent), ""))
    return _Library(str(path.with_suffix(".so")))


def _headers() -> Path:
    from tilelang.env import TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    return Path(TILELANG_TEMPLATE_PATH)


def _cc(compiler: str, text: str, path: Path, *more: str) -> str:
    """Compile a file into a library beside it; return what the compiler says against it."""
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"{compiler} is not installed")
    path.write_text(text, encoding="utf-8")
    command = [compiler, *FLAGS, *more, str(path), "-o", str(path.with_suffix(".so"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr or f"status {done.returncode}" if done.returncode else ""


def _called(library: "_Library", function: Any, source: str, program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Call the kernel once, with guards around each parameter."""
    del library  # held by the caller
    memory = guarded.guarded(program)
    names = guarded.parameter_names(source)
    function.argtypes = [ctypes.c_void_p] * len(names)
    function(*(memory[name].ctypes.data + guarded.GUARD for name in names))
    return guarded.outputs(program, memory)
