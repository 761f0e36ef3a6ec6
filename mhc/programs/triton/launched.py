"""Triton on a GPU: compiles a program for it and launches it twice."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from mhc.programs.compile_error import CompileError, Run, synchronise
from mhc.programs.triton.build import built, refused, triton
from mhc.programs.triton.compiled import own_cache
from mhc.programs.triton.grammar import Descriptor, TritonProgram, walk
from mhc.programs.triton.memory import Memory
from mhc.programs.triton.values import Array

DEVICE = "cuda"


def prepare(
    programs: Sequence[TritonProgram], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Return what compiles and launches each program, whose source is its text. folder, exact: make no difference."""
    return [partial(_twice, _Kernel(source)) for source in sources]


class _Kernel:
    """The kernel of a program's text, compiled at its first launch and loaded as long as this object lives."""

    def __init__(self, text: str) -> None:
        self._text, self._open = text, ExitStack()
        self._function: Any = None

    def __call__(self, program: TritonProgram, tensors: Sequence[Any]) -> None:
        if self._function is None:
            self._function = self._open.enter_context(built(self._text))
        options = {"num_warps": program.num_warps, "num_stages": program.num_stages}
        with own_cache():
            self._function[program.grid](*tensors, **program.arguments, **options)

    def __del__(self) -> None:
        self._open.close()


def _twice(kernel: _Kernel, program: TritonProgram) -> dict[str, Array]:
    """Launch a program twice, and return its outputs.

    Raises:
        CompileError: it does not compile, it writes what it may not, or the two runs differ.
    """
    if any(isinstance(one, Descriptor) for one in walk(program.body)):
        triton().set_allocator(_allocated)
    first, second = _once(kernel, program), _once(kernel, program)
    for name, one in first.items():
        if one.tobytes() != second[name].tobytes():
            raise CompileError("run", f"two runs differ in {name}")
    return first


def _once(kernel: _Kernel, program: TritonProgram) -> dict[str, Array]:
    memory = Memory(program)
    tensors = memory.tensors(DEVICE)
    try:
        kernel(program, tensors)
    except CompileError:
        raise
    except Exception as error:
        synchronise()
        raise refused("compile", error) from error
    synchronise()
    return memory.outputs()


def _allocated(size: int, alignment: int, stream: int | None) -> Any:
    """Return memory in which a kernel keeps its descriptors."""
    import torch  # noqa: PLC0415

    return torch.empty(size, dtype=torch.int8, device=DEVICE)
