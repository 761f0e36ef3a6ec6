"""TileLang's CUDA kernels without tensor cores and TMA, run on the CPU: their generated source, compiled by g++.

`cuda_on_cpu.h` has what they need of CUDA. What is left to a GPU is how fast they are, and whether nvcc's machine code
does what the source says.
"""

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from mhc import Implementation
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.tilelang.compile.cache import _C_TYPES, Program, _prim_func
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG

HEADER = Path(__file__).with_suffix(".h")
ORDERS = [(reverse, late) for reverse in (False, True) for late in (False, True)]
"""Whether the threads go last to first, and whether asynchronous copies are made as late as they may be."""

_Frozen = tuple[tuple[str, Any], ...]


@cache
def _sources(factory: str, target: str, constants: _Frozen, passes: _Frozen) -> tuple[str, str, list[tuple[str, str]]]:
    from mhc.operators.mhc_pre.tilelang.compile.compiler import _arguments, sources  # noqa: PLC0415  imports TileLang

    function = _prim_func(factory, dict(constants))
    return *sources(function, target, dict(passes)), [*_arguments(function), ("stream", "handle")]


def _compiled(source: str, folder: Path) -> ctypes.CDLL:
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "program.cpp").write_text(source, encoding="utf-8")
    options = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, "program.cpp", "-o", "program.so"], cwd=place, check=True)
    return ctypes.CDLL(str(place / "program.so"))


def one_source(kernels: str, host: str) -> str:
    """One C++ file of the kernels and of what launches them."""
    body = re.sub(r"^#(include|if|endif).*$", "", kernels, flags=re.MULTILINE).replace('extern "C" __global__', "__global__")
    shared = r"\1* \2 = (\1*)(((uintptr_t)cpu.shared.data() + 15) / 16 * 16);"
    body = re.sub(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];", shared, body)
    body = re.sub(r"^  (\w+) (\w+)\[(\d+)\];$", r"  \1 \2[\3]; memset(\2, 0xFF, sizeof \2);", body, flags=re.MULTILINE)
    launches = re.sub(r"(\w+)<<<(.*), stream>>>\((.*)\);", r"launch_plainly(\1, \2, stream, \3);", host)
    return f"{HEADER.read_text(encoding='utf-8')}\nstatic char error_buf[ERROR_BUF_SIZE];\n{body}\n" + launches.replace(
        "static char error_buf[ERROR_BUF_SIZE];", ""
    )


class Emulated:
    """`tilelang` on CPU tensors, as if they were on a GPU.

    Attributes:
        implementation: what runs there.
    """

    def __init__(self, folder: Path, edit: Callable[[str], str]) -> None:
        self.implementation: Implementation = replace(TILELANG, devices=("cpu",))
        self._folder, self._edit, self._libraries = folder, edit, dict[tuple[Any, ...], Program]()

    def program(self, factory: str, target: str, constants: Mapping[str, Any], **keywords: Any) -> Program:
        """As `mhc.operators.mhc_pre.tilelang.compile.cache.program`."""
        passes = keywords.get("pass_configs") or {}
        key = (factory, target, tuple(sorted(constants.items())), tuple(sorted(passes.items())))
        if key not in self._libraries:
            kernels, host, arguments = _sources(*key)
            library = _compiled(one_source(self._edit(kernels), host), self._folder)
            library.get_last_error.restype = ctypes.c_char_p
            library.call.argtypes = [_C_TYPES[kind] for _, kind in arguments]
            self._libraries[key] = Program(factory, tuple(arguments), library)
        return self._libraries[key]

    def order(self, reverse: bool, late: bool) -> None:
        """How threads and copies go from now on, in what is compiled by now."""
        for one in self._libraries.values():
            one.library.cuda_on_cpu(reverse, late)


@contextmanager
def emulated(chip: Chip, folder: Path, edit: Callable[[str], str] = str) -> Iterator[Emulated]:
    """As if there were `chip`; `edit` changes the text of each program's kernels."""
    from mhc.operators.mhc_pre.tilelang import backward, call, forward, implementations  # noqa: PLC0415

    made = Emulated(folder, edit)
    here: dict[str, Any] = {"chip": lambda device: chip, "program": made.program}
    device: dict[str, Any] = {"current_device": lambda: -1}  # what a CPU tensor says of itself
    kept = (
        forward.launches,
        backward.prepared,
        backward.start_building,
    )
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(forward, **here))
        stack.enter_context(mock.patch.multiple(backward, **here, prebuild=lambda *arguments, **keywords: None))
        stack.enter_context(mock.patch.multiple(implementations, chip=here["chip"], missing=lambda target: None))
        stack.enter_context(mock.patch.multiple(torch.cuda, **device))
        stack.enter_context(mock.patch.object(call, "stream_of", return_value=0))
        for one in kept:
            one.cache_clear()
            stack.callback(one.cache_clear)
        yield made
