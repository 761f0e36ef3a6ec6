"""What TileLang programs depend on: versions, compilers, and the source of their kernels."""

import ast
import functools
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mhc.environment import tilelang_unmet

_BUILDERS = tuple(Path(__file__).with_name(name) for name in ("compiler.py", "host.py", "host.h"))


@functools.cache
def unusable() -> str | None:
    """Return why the kernels cannot run with what is installed; None where they can. Reads metadata, and imports nothing."""
    return tilelang_unmet()


@functools.cache
def compiler_path(target: str) -> Path | None:
    """Return the compiler of a target's programs: nvcc for CUDA, g++ otherwise."""
    if not target.startswith("cuda"):
        found = shutil.which("g++")
        return None if found is None else Path(found)
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    on_path = shutil.which("nvcc")
    candidates = [*(Path(home) / "bin" / "nvcc" for home in homes), *([Path(on_path)] if on_path else [])]
    return next((path for path in (*candidates, Path("/usr/local/cuda/bin/nvcc")) if path.exists()), None)


@functools.cache
def missing(target: str) -> str | None:
    """Return why programs for a target, "c" or "cuda", cannot be compiled here; None where they can."""
    reason = unusable()
    if reason is None and compiler_path(target) is None:
        wanted = "nvcc, of the CUDA toolkit" if target.startswith("cuda") else "g++"
        reason = f"TileLang compiles with {wanted}; there is none on the path"
    return reason


@functools.cache
def digest(module: str) -> str:
    """Return the digest of a kernel module's source and of every project module that it imports."""
    seen: dict[str, str] = {}
    waiting = [module]
    root = module.partition(".")[0]
    while waiting:
        name = waiting.pop()
        path = None if name in seen else _source(name)
        if path is None:
            continue
        source = path.read_bytes()
        seen[name] = hashlib.sha256(source).hexdigest()
        waiting += [one for one in _imports(source) if one.partition(".")[0] == root]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


@functools.cache
def builders() -> str:
    """Return the digest of the modules that make a program of a lowered function."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in _BUILDERS)).hexdigest()


def _source(name: str) -> Path | None:
    """Return the file of a module or package, None for a name in a module; `find_spec` would import its parent packages."""
    root, *inner = name.split(".")
    for folder in _folders(root):
        at = folder.joinpath(*inner)
        for path in (at.with_suffix(".py"), at / "__init__.py"):
            if path.is_file():
                return path
    return None


def _folders(root: str) -> tuple[Path, ...]:
    spec = importlib.util.find_spec(root)
    return () if spec is None else tuple(Path(folder) for folder in spec.submodule_search_locations or ())


def _imports(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a module, or a name that is none
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def compiler(target: str) -> str:
    """Return the compiler, by its file: asking it for its version would take longer than loading a program."""
    path = compiler_path(target)
    if path is None:
        return "none"
    status = path.resolve().stat()
    return f"{status.st_size} {status.st_mtime_ns}"
