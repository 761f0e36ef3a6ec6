"""TileLang's `c` target: lower a program, compile the C that comes out, and run it. Needs TileLang and a C compiler."""

import _ctypes
import ctypes
import functools
import inspect
import itertools
import linecache
import logging
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs.evaluate import inputs_of
from mhc.programs.grammar import Program
from mhc.programs.tilelang_text import CPU_OLD, render

FLAGS = ("-O0", "-w", "-shared", "-fPIC")
_MARK = 0xA5
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

    logging.getLogger("tilelang").setLevel(logging.CRITICAL + 1)  # it logs all of its own source at each refusal
    return tilelang


def release() -> str:
    """Return the release that is installed."""
    return str(_tilelang().__version__)


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


Run = Callable[[], dict[str, np.ndarray[Any, Any]]]
"""Calls a compiled program once, and returns its outputs by name; raises `CompileError` where it writes what it may not."""


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
    given = inputs_of(program)
    memory = {name: _guarded(array) for name, array in given.items()}
    match = _SIGNATURE.search(source)
    if match is None:
        raise CompileError("lower", "there is no function f_kernel in its source")
    names = [one.split()[-1].lstrip("*") for one in match[1].split(",") if one.strip() not in {"", "void"}]
    function.argtypes = [ctypes.c_void_p] * len(names)
    function(*(memory[name].ctypes.data + _GUARD for name in names))
    results = {}
    for name, array in given.items():
        raw = memory[name]
        inner = raw[_GUARD : _GUARD + array.nbytes]
        if (raw[:_GUARD] != _MARK).any() or (raw[_GUARD + array.nbytes :] != _MARK).any():
            raise CompileError("run", f"a write outside {name}")
        now = inner.view(array.dtype).reshape(array.shape)
        if program.buffer(name).written:
            results[name] = now.copy()
        elif now.tobytes() != array.tobytes():
            raise CompileError("run", f"a write to the input {name}")
    return results


def _guarded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of an array between guards."""
    raw = np.full(array.nbytes + 2 * _GUARD, _MARK, dtype=np.uint8)
    raw[_GUARD : _GUARD + array.nbytes] = array.reshape(-1).view(np.uint8)
    return raw
