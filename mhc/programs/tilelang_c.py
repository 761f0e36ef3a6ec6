"""TileLang's `c` target: lower a program, compile the C that comes out, and run it. Needs TileLang and a C compiler."""

import ctypes
import functools
import inspect
import itertools
import linecache
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs.evaluate import inputs_of
from mhc.programs.grammar import Program
from mhc.programs.tilelang_text import CPU_OLD, render

FLAGS = ("-O0", "-w", "-shared", "-fPIC")
_GUARD = 64  # bytes before and after each parameter, which nobody may write
_PRELUDE = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\ntypedef _Float16 half;\n"
"""In place of TileLang's header, whose half precision in C++ takes a second to compile."""
_QUOTED = re.compile("[\u2018'\"][^\u2018\u2019'\"]*[\u2019'\"]")  # a name, as g++ quotes it too
_SIGNATURE = re.compile(r"\bf_kernel\(([^)]*)\)\s*\{")
_numbers = itertools.count()


class CompileError(Exception):
    """The compiler under test fails, or the C that it writes does not compile.

    Attributes:
        stage: build (the front end), lower or cc.
        kind: the first line of the message, without what differs from program to program.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage, self.kind = stage, _normalised(message)


def _normalised(message: str) -> str:
    """Return a message without names, numbers and places."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    told = next((line for line in lines if "Check failed" in line or "error:" in line), lines[-1] if lines else "")
    told = re.sub(r"^.*?(Check failed|error:)", r"\1", told)
    told = _QUOTED.sub("_", told)
    return re.sub(r"\d+", "N", told)[:120].strip()


@functools.cache
def _tilelang() -> Any:
    import tilelang  # noqa: PLC0415 - the rest of the package needs no TileLang

    return tilelang


@functools.cache
def kernel_argument() -> str:
    """Return what `T.Kernel` is given for the CPU by the installed release."""
    source = inspect.signature(_tilelang().language.Kernel)
    return CPU_OLD if "is_cpu" in source.parameters else ""


def source_of(program: Program) -> str:
    """Return the text of the program for the installed release."""
    return render(program, kernel_argument())


def build(program: Program) -> Any:
    """Return TileLang's function, made from the program's text.

    Raises:
        CompileError: the front end refuses it.
    """
    text, name = source_of(program), f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"T": _tilelang().language}
    try:
        exec(compile(text, name, "exec"), scope)  # noqa: S102 - text of ours
    except Exception as error:
        raise CompileError("build", f"{type(error).__name__}: {error}") from error
    finally:
        linecache.cache.pop(name, None)
    return scope["f"]


@contextmanager
def target(kind: str, configs: Mapping[str, bool | int]) -> Iterator[Any]:
    """Enter a target and pass configs for the block."""
    tvm = _tilelang().tvm
    with tvm.transform.PassContext(opt_level=3, config=dict(configs)), tvm.target.Target(kind) as entered:
        yield entered


def lower(program: Program, kind: str = "c") -> str:
    """Return the source that TileLang generates.

    Raises:
        CompileError: it does not.
    """
    function = build(program)
    try:
        with target(kind, program.configs) as entered:
            text: str = _tilelang().lower(function, target=entered, enable_host_codegen=False).kernel_source
            return text
    except Exception as error:
        raise CompileError("lower", f"{type(error).__name__}: {error}") from error


def run(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Return the elements of the outputs, by name.

    Raises:
        CompileError: it cannot be compiled.
    """
    source = lower(program)
    with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
        library = _compiled(source, Path(name))
        try:
            return _called(library, source, program)
        finally:
            _close(library)


def _compiled(source: str, folder: Path) -> ctypes.CDLL:
    """Compile with the small prelude as C; where that fails, with TileLang's own headers as C++."""
    bare = "\n".join(line for line in source.splitlines() if not line.startswith("#include"))
    quick = _cc("gcc", _PRELUDE + bare, folder / "quick.c")
    if not quick:
        return ctypes.CDLL(str(folder / "quick.so"))
    error = _cc("g++", source, folder / "whole.cc", f"-I{_headers()}", "-std=c++17")
    if error:
        raise CompileError("cc", error)
    return ctypes.CDLL(str(folder / "whole.so"))


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


def _called(library: ctypes.CDLL, source: str, program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Call the kernel once, with guards around each parameter."""
    given = inputs_of(program)
    memory = {name: _guarded(array) for name, array in given.items()}
    match = _SIGNATURE.search(source)
    if match is None:
        raise CompileError("lower", "there is no function f_kernel in its source")
    names = [one.split()[-1].lstrip("*") for one in match[1].split(",") if one.strip() not in {"", "void"}]
    function = library.f_kernel
    function.argtypes = [ctypes.c_void_p] * len(names)
    function(*(memory[name].ctypes.data + _GUARD for name in names))
    results = {}
    for name, array in given.items():
        raw = memory[name]
        inner = raw[_GUARD : _GUARD + array.nbytes]
        if (raw[:_GUARD] != 0xA5).any() or (raw[_GUARD + array.nbytes :] != 0xA5).any():
            raise CompileError("run", f"a write outside {name}")
        now = inner.view(array.dtype).reshape(array.shape)
        if program.buffer(name).written:
            results[name] = now.copy()
        elif now.tobytes() != array.tobytes():
            raise CompileError("run", f"a write to the input {name}")
    return results


def _guarded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of an array between guards."""
    raw = np.full(array.nbytes + 2 * _GUARD, 0xA5, dtype=np.uint8)
    raw[_GUARD : _GUARD + array.nbytes] = array.reshape(-1).view(np.uint8)
    return raw


def _close(library: ctypes.CDLL) -> None:
    """Unload a library: a campaign loads very many."""
    import _ctypes  # noqa: PLC0415

    _ctypes.dlclose(library._handle)
