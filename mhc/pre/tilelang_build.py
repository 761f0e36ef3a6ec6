"""Compiled TileLang programs: built once, kept on disk under what they depend on, loaded without importing TileLang.

A factory returns a `T.prim_func`. Its program is one shared library with a C function `call` that launches every kernel of
the prim_func. Loading it takes milliseconds; importing TileLang takes a second, tracing and lowering take tenths, nvcc takes
seconds. So TileLang is imported only where a library is missing.
"""

import ast
import ctypes
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from mhc.implementation import Refused

VERSIONS: Mapping[str, str] = {"tilelang": "0.1.8", "apache-tvm-ffi": "0.1.9"}
"""What the kernels are written for. Another TileLang has another language, another TVM FFI does not import with this one."""

Constant = bool | int | float | str
_C_TYPES: Mapping[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "handle": ctypes.c_void_p,
}


class BuildError(RuntimeError):
    """A program that could not be compiled or loaded; says which, and the compiler's last words."""


@dataclass(frozen=True)
class Program:
    """A loaded library. arguments: (name, type) of what a call takes, in order; "handle" is an address."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    library: ctypes.CDLL

    def __call__(self, *values: int | float | None) -> None:
        """Launch every kernel. None for an address that is not read; a CUDA program's last value is the stream's address.

        Raises:
            BuildError: CUDA refused a launch.
        """
        if self.library.call(*values) != 0:
            raise BuildError(f"{self.name}: {self.library.get_last_error().decode()}")


class Counts:
    """How many programs this process has compiled, and how many it found on disk."""

    compiled = 0
    loaded = 0


@functools.cache
def unusable() -> str | None:
    """Why TileLang cannot be used here; None where it can. Reads installed metadata, and imports nothing."""
    for package, wanted in VERSIONS.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{package} is not installed; the TileLang kernels need {package}=={wanted}"
        if found != wanted:
            return f"the TileLang kernels need {package}=={wanted}, found {found}: pip install {package}=={wanted}"
    return None


@functools.cache
def compiler_path(target: str) -> Path | None:
    """The compiler of a target's programs: nvcc for CUDA, g++ otherwise."""
    if not target.startswith("cuda"):
        found = shutil.which("g++")
        return None if found is None else Path(found)
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    on_path = shutil.which("nvcc")
    candidates = [*(Path(home) / "bin" / "nvcc" for home in homes), *([Path(on_path)] if on_path else [])]
    return next((path for path in (*candidates, Path("/usr/local/cuda/bin/nvcc")) if path.exists()), None)


@functools.cache
def missing(target: str) -> str | None:
    """Why programs for a target, "c" or "cuda", cannot be compiled here; None where they can."""
    reason = unusable()
    if reason is None and compiler_path(target) is None:
        wanted = "nvcc, of the CUDA toolkit" if target.startswith("cuda") else "g++"
        reason = f"TileLang compiles with {wanted}; there is none on the path"
    return reason


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
    """The program of a factory, compiled where the disk does not have it.

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
    require_tilelang()
    recipe = {
        "factory": factory,
        "target": target,
        "constants": dict(constants),
        "pass_configs": dict(pass_configs),
        "flags": flags,
        "versions": dict(VERSIONS),
        "sources": _digest(factory.partition(":")[0]),
        "compiler": _compiler(target),
    }
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder()
    library, record = folder / f"{key}.so", folder / f"{key}.json"
    with _locked(folder / f"{key}.lock"):  # two processes that want the same one compile it once
        if record.exists() and library.exists():
            Counts.loaded += 1
        else:
            Counts.compiled += 1
            _compile(recipe, library, record)
    arguments = tuple((name, kind) for name, kind in json.loads(record.read_text(encoding="utf-8"))["arguments"])
    return _load(f"{factory} for {target}", library, arguments, device)


def _load(name: str, path: Path, arguments: tuple[tuple[str, str], ...], device: int) -> Program:
    library = ctypes.CDLL(str(path))
    library.get_last_error.restype = ctypes.c_char_p
    library.call.restype = ctypes.c_int
    library.call.argtypes = [_C_TYPES[kind] for _, kind in arguments]
    if library.init() != 0:  # on CUDA: more shared memory than the device has
        message = library.get_last_error().decode()
        raise (
            Refused(f"{name} on cuda:{device}: {message}")
            if "shared memory" in message
            else BuildError(f"{name}: {message}")
        )
    return Program(name, arguments, library)


def cache_folder() -> Path:
    """Where compiled programs are kept: $MHC_CACHE, or a folder in the user's cache."""
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


@functools.cache
def _digest(module: str) -> str:
    """Of a kernel module's source and of every project module that it imports: what its programs depend on."""
    seen: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = None if name in seen else _spec(name)
        if spec is None or spec.origin is None:
            continue
        source = Path(spec.origin).read_text(encoding="utf-8")
        seen[name] = hashlib.sha256(source.encode()).hexdigest()
        root = module.partition(".")[0]
        waiting += [one for one in _imports(source) if one.partition(".")[0] == root]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module, which is not a package
        return None


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a module, or a name that is none
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def _compiler(target: str) -> str:
    """The compiler, by its file: asking it for its version would take longer than loading a program."""
    path = compiler_path(target)
    if path is None:
        return "none"
    status = path.resolve().stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _compile(recipe: Mapping[str, Any], library: Path, record: Path) -> None:
    arguments, path = _build(recipe)
    whole = json.dumps({**recipe, "arguments": arguments}, indent=1, sort_keys=True)
    for target, content in ((library, Path(path).read_bytes()), (record, whole.encode())):
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(target)  # at once: a reader sees all of it or none
    Path(path).unlink()


def lowered(
    factory: str, target: str, constants: Mapping[str, Constant], pass_configs: Mapping[str, Any] | None = None
) -> Any:
    """TileLang's lowered artifact for a target: host and device modules and `kernel_source`. No device is needed.

    Raises:
        Refused: TileLang is absent or another version, or has not this target built in.
    """
    require_tilelang()
    from mhc.pre.tilelang_compiler import lower  # noqa: PLC0415

    return lower(_prim_func(factory, constants), target, dict(pass_configs or {}))


def _prim_func(factory: str, constants: Mapping[str, Constant]) -> Any:
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)(**constants)


def _build(recipe: Mapping[str, Any]) -> tuple[list[tuple[str, str]], str]:
    from mhc.pre.tilelang_compiler import build  # noqa: PLC0415

    name = f"{recipe['factory']}({recipe['constants']}) for {recipe['target']}"
    try:
        function = _prim_func(recipe["factory"], recipe["constants"])
        return build(function, recipe["target"], dict(recipe["pass_configs"]), list(recipe["flags"]))
    except Exception as error:
        said = str(error).strip().splitlines() or ["no message"]  # TileLang appends the whole source
        raise BuildError(f"{name}: {type(error).__name__}: {said[0]}") from error
