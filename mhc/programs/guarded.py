"""A program's parameters in memory, between guards that must not be written, and what they hold once it ran."""

import ctypes
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mhc.programs import grammar
from mhc.programs.compile_error import CompileError
from mhc.programs.evaluate import inputs_of, passed_of
from mhc.programs.grammar import Program

GUARD = 256
"""Bytes before and after each parameter."""
MARK = 0xA5
"""The byte of which guards consist."""
_C_TYPES: Mapping[str, Any] = {
    **{name: getattr(ctypes, f"c_{name}") for name in grammar.INTEGERS},
    **{"float32": ctypes.c_float, "float64": ctypes.c_double, "bool": ctypes.c_bool},
}
_SIGNATURE = re.compile(r"\bf_kernel\(([^;{)]*)\)\s*\{")

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def parameter_names(source: str) -> list[str]:
    """Return the names of the generated kernel's parameters; those that the program does not use are left out there.

    Raises:
        CompileError: there is no kernel.
    """
    match = _SIGNATURE.search(source)
    if match is None:
        raise CompileError("lower", "there is no function f_kernel in its source")
    return [one.split()[-1].lstrip("*") for one in match[1].split(",") if one.strip() not in {"", "void"}]


def guarded(program: Program) -> dict[str, Bytes]:
    """Return the bytes of each parameter before the program runs, with guards on both sides."""
    memory = {}
    for name, array in inputs_of(program).items():
        raw = np.full(array.nbytes + 2 * GUARD, MARK, dtype=np.uint8)
        raw[GUARD : GUARD + array.nbytes] = array.reshape(-1).view(np.uint8)
        memory[name] = raw
    return memory


def passed(program: Program) -> dict[str, Any]:
    """Return what is passed by value, as C's numbers."""
    dtypes = {one.name: one.dtype for one in program.buffers}
    return {name: _C_TYPES[dtypes.get(name, "int32")](value) for name, value in passed_of(program).items()}


def outputs(program: Program, memory: Mapping[str, Bytes]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the outputs that are in memory after the program ran.

    Raises:
        CompileError: it wrote to an input, or outside of a parameter.
    """
    results = {}
    for name, array in inputs_of(program).items():
        raw = memory[name]
        if (raw[:GUARD] != MARK).any() or (raw[GUARD + array.nbytes :] != MARK).any():
            raise CompileError("run", f"a write outside {name}")
        now = raw[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
        if program.buffer(name).written:
            results[name] = now.copy()
        elif now.tobytes() != array.tobytes():
            raise CompileError("run", f"a write to the input {name}")
    return results
