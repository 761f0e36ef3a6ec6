"""What TileLang programs depend on: versions, compilers, and the source of their kernels."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

VERSIONS: Mapping[str, str] = {"tilelang": "0.1.8", "apache-tvm-ffi": "0.1.9"}
"""What the kernels are written for. Another TileLang has another language, another TVM FFI does not import with this one."""


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


@functools.cache
def digest(module: str) -> str:
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
def compiler(target: str) -> str:
    """The compiler, by its file: asking it for its version would take longer than loading a program."""
    path = compiler_path(target)
    if path is None:
        return "none"
    status = path.resolve().stat()
    return f"{status.st_size} {status.st_mtime_ns}"
