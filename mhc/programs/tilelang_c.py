"""TileLang's `c` target: lower a program, compile the C that comes out, and run it. Needs TileLang and a C compiler."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mhc.programs import c_library, guarded, tilelang_lower
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.grammar import Program
from mhc.programs.tilelang_lower import lowered, takes_is_cpu
from mhc.programs.tilelang_text import CPU_OLD, render

_PRELUDE = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\ntypedef _Float16 half;\n"
"""In place of TileLang's header, whose half precision in C++ takes a second to compile."""


def source_of(program: Program) -> str:
    """Return the text of the program for the installed release."""
    return render(program, CPU_OLD if takes_is_cpu() else "")


def build(program: Program) -> Any:
    """Return what the front end makes of a program.

    Raises:
        CompileError: it refuses it.
    """
    return tilelang_lower.build(source_of(program))


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
    texts = [c_library.renamed(source, number) for number, source in enumerate(sources)]

    def by_its_own_headers(number: int, error: str) -> str:
        headers = "\n".join(line for line in sources[number].splitlines() if line.startswith("#include"))
        options = f"-I{_headers()}", "-std=c++17"
        return c_library.cc("g++", f"{headers}\n{texts[number]}", folder / f"{number}.cc", *options)

    found = c_library.libraries(texts, _PRELUDE, folder, by_its_own_headers if exact else None)
    ready: list[Run | CompileError] = []
    for number, (source, library) in enumerate(zip(sources, found, strict=True)):
        try:
            if isinstance(library, CompileError):
                raise library
            names = guarded.parameter_names(source)
            ready.append(partial(c_library.call, library, f"f_kernel_{number}", names))
        except CompileError as error:
            ready.append(error)
    return ready


def _headers() -> Path:
    from tilelang.env import TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    return Path(TILELANG_TEMPLATE_PATH)
