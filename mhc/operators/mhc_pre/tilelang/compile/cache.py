"""Compiled TileLang programs: built once, kept on disk under what they depend on, loaded without importing TileLang.

A factory returns a `T.prim_func`. Its program is one shared library with a C function `call` that launches every kernel of
the prim_func. Loading it takes milliseconds; importing TileLang takes a second, tracing and lowering take tenths, nvcc takes
seconds. So TileLang is imported only where a library is missing.
"""

import ctypes
import functools
import hashlib
import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhc.environment import TILELANG
from mhc.implementation import Refused
from mhc.operators.mhc_pre.tilelang.compile.dependencies import builders, compiler, digest, unusable

Constant = bool | int | float | str
_C_TYPES: Mapping[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "handle": ctypes.c_void_p,
}
_IN_MEMORY: Mapping[str, str] = {"int32": "i", "int64": "q", "float32": "f", "float64": "d", "handle": "Q"}
"""The same for `struct`."""


class BuildError(RuntimeError):
    """A program that could not be compiled or loaded; says which, and the compiler's last words."""


@dataclass(frozen=True)
class Program:
    """A loaded library. arguments: (name, type) of what a call takes, in order; "handle" is an address.

    layout: of the arguments in memory, which is how a CUDA program takes them; None for one that takes each by itself.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    library: ctypes.CDLL
    layout: struct.Struct | None = None

    def __call__(self, *values: int | float | None) -> None:
        """Launch every kernel. None for an address that a CPU program does not read; a CUDA program's last is the stream's.

        Raises:
            BuildError: CUDA refused a launch.
        """
        given = values if self.layout is None else (self.layout.pack(*values),)
        if self.library.call(*given) != 0:
            raise BuildError(f"{self.name}: {self.library.get_last_error().decode()}")


class Counts:
    """How many programs this process has compiled, and how many it found on disk."""

    compiled = 0
    loaded = 0


def require_tilelang() -> None:
    """Raise where TileLang cannot be used.

    Raises:
        Refused: with the reason of `unusable`.
    """
    reason = unusable()
    if reason is not None:
        raise Refused(reason)


def program(
    factory: str,
    target: str,
    constants: Mapping[str, Constant],
    *,
    pass_configs: Mapping[str, Any] | None = None,
    flags: tuple[str, ...] = (),
    device: int = -1,
) -> Program:
    """Return the program of a factory, compiled where the disk does not have it.

    Args:
        factory: "module:function"; called with the constants as keywords it returns a prim_func.
        target: TileLang's, such as "c" or "cuda -arch=sm_90".
        pass_configs, flags: for TileLang's passes, and for the C++ or CUDA compiler.
        device: index of the CUDA device that will run it, which must be the current one.

    Raises:
        Refused: TileLang is absent or another version.
        BuildError: it does not compile, or the device does not take it.
    """
    return _program(factory, target, _frozen(constants), _frozen(pass_configs or {}), flags, device)


def _frozen(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))


@functools.cache
def _program(
    factory: str,
    target: str,
    constants: tuple[tuple[str, Constant], ...],
    pass_configs: tuple[tuple[str, Any], ...],
    flags: tuple[str, ...],
    device: int,
) -> Program:
    recipe = _recipe(factory, target, constants, pass_configs, flags)
    library, record = _files(recipe)
    with _locked(library.with_suffix(".lock")):  # two processes that want the same one compile it once
        if record.exists():
            Counts.loaded += 1
        else:
            Counts.compiled += 1
            _compile(recipe, library, record)
    arguments = tuple((name, kind) for name, kind in json.loads(record.read_text(encoding="utf-8"))["arguments"])
    return _load(f"{factory} for {target}", library, arguments, device)


def prebuild(
    factory: str,
    target: str,
    constants: Mapping[str, Constant],
    *,
    pass_configs: Mapping[str, Any] | None = None,
    flags: tuple[str, ...] = (),
) -> None:
    """Start to compile a program in a process of its own, where the disk does not have it; `program` waits for that one.

    For a second program that will be wanted while the first is compiled. A failure is left for `program` to meet and tell.
    """
    recipe = _recipe(factory, target, _frozen(constants), _frozen(pass_configs or {}), flags)
    if not _files(recipe)[1].exists():
        Counts.compiled += 1
        started = subprocess.Popen(
            [sys.executable, "-m", "mhc.operators.mhc_pre.tilelang.compile.cache"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert started.stdin is not None
        started.stdin.write(json.dumps(recipe))
        started.stdin.close()
        _BESIDE.append(started)


_BESIDE: list[subprocess.Popen[str]] = []  # kept, so that none is reaped while it works


def _recipe(
    factory: str,
    target: str,
    constants: tuple[tuple[str, Constant], ...],
    pass_configs: tuple[tuple[str, Any], ...],
    flags: tuple[str, ...],
) -> dict[str, Any]:
    """Return everything that a program depends on, and nothing else."""
    require_tilelang()
    return {
        "factory": factory,
        "target": target,
        "constants": dict(constants),
        "pass_configs": dict(pass_configs),
        "flags": list(flags),
        "versions": dict(TILELANG),
        "sources": digest(factory.partition(":")[0]),
        "compiler": compiler(target),
        "builders": builders(),
    }


def _files(recipe: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return the paths of a program's library and record. The record is written last."""
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder()
    return folder / f"{key}.so", folder / f"{key}.json"


def _load(name: str, path: Path, arguments: tuple[tuple[str, str], ...], device: int) -> Program:
    if device >= 0:  # its functions are for the library to find
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(path))
    library.get_last_error.restype = ctypes.c_char_p
    library.call.restype = ctypes.c_int
    layout = _layout(arguments) if device >= 0 else None
    library.call.argtypes = [_C_TYPES[kind] for _, kind in arguments] if layout is None else [ctypes.c_char_p]
    if (device >= 0 and library.load(str(path.with_suffix("")).encode()) != 0) or library.init() != 0:
        # on CUDA: more shared memory than the device has
        message = library.get_last_error().decode()
        raise (
            Refused(f"{name} on cuda:{device}: {message}")
            if "shared memory" in message
            else BuildError(f"{name}: {message}")
        )
    return Program(name, arguments, library, layout)


def _layout(arguments: Iterable[tuple[str, str]]) -> struct.Struct:
    """Return the layout of `Arguments` in `host.host_source`."""
    return struct.Struct("=" + "".join(_IN_MEMORY[kind] for _, kind in arguments))


def cache_folder() -> Path:
    """Return where compiled programs are kept: $MHC_CACHE, or a folder in the user's cache."""
    given = os.environ.get("MHC_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhc"
    folder = base / "tilelang"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # noqa: PLC0415  not on Windows, where TileLang is not either

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(recipe: Mapping[str, Any], library: Path, record: Path, *, forks: bool = False) -> None:
    arguments, files = _build(recipe, forks=forks)
    whole = json.dumps({**recipe, "arguments": arguments}, indent=1, sort_keys=True)
    contents = {library.with_suffix(suffix): content for suffix, content in files.items()}
    for target, content in (*contents.items(), (record, whole.encode())):
        _replace(target, content)


def _replace(path: Path, content: bytes) -> None:
    """Write a file at once: a reader sees all of it or none."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def kernel_source(
    factory: str, target: str, constants: Mapping[str, Constant], pass_configs: Mapping[str, Any] | None = None
) -> str:
    """Return the kernels as TileLang writes them for a target, kept on disk like programs. No device is needed.

    Raises:
        Refused: TileLang is absent or another version, or has not this target built in.
    """
    recipe = _recipe(factory, target, _frozen(constants), _frozen(pass_configs or {}), ())
    path = _files(recipe)[0].with_suffix(".source")
    with _locked(path.with_suffix(".lock")):
        if not path.exists():
            from mhc.operators.mhc_pre.tilelang.compile.compiler import lower  # noqa: PLC0415

            artifact = lower(_prim_func(factory, constants), target, dict(pass_configs or {}))
            _replace(path, artifact.kernel_source.encode())
        return path.read_text(encoding="utf-8")


def _prim_func(factory: str, constants: Mapping[str, Constant]) -> Any:
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)(**constants)


def _build(recipe: Mapping[str, Any], *, forks: bool) -> tuple[list[tuple[str, str]], dict[str, bytes]]:
    from mhc.operators.mhc_pre.tilelang.compile.compiler import build  # noqa: PLC0415

    name = f"{recipe['factory']}({recipe['constants']}) for {recipe['target']}"
    try:
        function = _prim_func(recipe["factory"], recipe["constants"])
        return build(function, recipe["target"], dict(recipe["pass_configs"]), list(recipe["flags"]), forks=forks)
    except Exception as error:
        said = str(error).strip().splitlines() or ["no message"]  # TileLang appends the whole source
        raise BuildError(f"{name}: {type(error).__name__}: {said[0]}") from error


def _main() -> None:
    """Compile the recipe on standard input; `prebuild` starts this."""
    recipe = json.load(sys.stdin)
    library, record = _files(recipe)
    with _locked(library.with_suffix(".lock")):
        if not record.exists():
            _compile(recipe, library, record, forks=True)


if __name__ == "__main__":
    _main()
