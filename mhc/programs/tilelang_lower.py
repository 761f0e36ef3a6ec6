"""Lowers programs with TileLang. Needs TileLang, and neither a device nor a compiler of the target."""

import functools
import inspect
import itertools
import linecache
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mhc.programs.compile_error import CompileError

_numbers = itertools.count()


@functools.cache
def tilelang() -> Any:
    import tilelang  # noqa: PLC0415 - the rest of the package needs no TileLang

    logging.getLogger("tilelang").setLevel(logging.CRITICAL + 1)  # it logs all of its own source at each refusal
    return tilelang


def release() -> str:
    """Return the release that is installed."""
    return str(tilelang().__version__)


@functools.cache
def takes_is_cpu() -> bool:
    """Return whether `T.Kernel` takes `is_cpu`; later releases see it from the target."""
    return "is_cpu" in inspect.signature(tilelang().language.Kernel).parameters


def build(text: str) -> Any:
    """Return TileLang's function, made from a program's text.

    Raises:
        CompileError: the front end refuses it.
    """
    name = f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"T": tilelang().language}
    try:
        exec(compile(text, name, "exec"), scope)  # noqa: S102 - text of ours
    except Exception as error:
        raise CompileError("build", f"{type(error).__name__}: {error}") from error
    finally:
        linecache.cache.pop(name, None)
    return scope["f"]


@contextmanager
def target(kind: str | Mapping[str, str], configs: Mapping[str, bool | int]) -> Iterator[Any]:
    """Enter a target and pass configs for the block."""
    tvm = tilelang().tvm
    with tvm.transform.PassContext(opt_level=3, config=dict(configs)), tvm.target.Target(kind) as entered:
        yield entered


def lowered(text: str, kind: str | Mapping[str, str], configs: Mapping[str, bool | int]) -> Any:
    """Return what TileLang makes of a program's text: an artifact that holds the kernel's source and its module.

    Raises:
        CompileError: it makes nothing of it.
    """
    function = build(text)
    try:
        with target(kind, configs) as entered:
            return tilelang().lower(function, target=entered, enable_host_codegen=False, enable_device_compile=False)
    except Exception as error:
        raise CompileError("lower", f"{type(error).__name__}: {error}") from error


def warm_up() -> None:
    """Have TileLang set up what it sets up in a first lowering, which takes more than half a second."""
    tvm = tilelang().tvm
    with target("c", {}):
        tvm.transform.PassContext.current().config.get("")  # describes all options of all passes
