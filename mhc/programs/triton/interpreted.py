"""Triton's interpreter: runs programs on the CPU. Needs the variable TRITON_INTERPRET=1 before Triton is imported."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mhc.programs.compile_error import CompileError, Run
from mhc.programs.triton.build import built, refused
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.memory import Memory
from mhc.programs.triton.values import Array


def prepare(
    programs: Sequence[TritonProgram], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Return what interprets each program, whose source is its text. folder, exact: make no difference."""
    return [partial(_run, source) for source in sources]


def _run(text: str, program: TritonProgram) -> dict[str, Array]:
    memory = Memory(program)
    with built(text) as kernel:
        try:
            kernel[program.grid](*memory.tensors("cpu"), **program.arguments)
        except Exception as error:
            raise refused("run", error) from error
    return memory.outputs()
