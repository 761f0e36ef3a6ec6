"""Triton's compiler for a chip that need not be there: what the front end, the passes and ptxas refuse, and crashes."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from mhc.programs.compile_error import CompileError, Run, run_nothing
from mhc.programs.triton.build import built, refused, triton
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.text import render

_POINTERS: Mapping[str, str] = MappingProxyType(
    {
        **{f"int{bits}": f"*i{bits}" for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": f"*u{bits}" for bits in (8, 16, 32, 64)},
        **{f"float{bits}": f"*fp{bits}" for bits in (16, 32, 64)},
        "bfloat16": "*bf16",
    }
)
_CACHE = "TRITON_CACHE_DIR"


def lower(program: TritonProgram, capability: int) -> str:
    """Return the PTX that Triton generates and ptxas accepts.

    Args:
        capability: of the chip, 90 for sm_90.

    Raises:
        CompileError: it generates none.
    """
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    with built(render(program)) as kernel, own_cache():
        try:
            ones = {name: 1 for name, number in program.arguments.items() if number == 1 and isinstance(number, int)}
            source = ASTSource(fn=kernel, signature=signature(program), constexprs=ones, attrs=attributes(program))
            options = {"num_warps": program.num_warps, "num_stages": program.num_stages}
            made = triton().compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        except Exception as error:
            raise refused("compile", error) from error
        text: str = made.asm["ptx"]
        return text


def signature(program: TritonProgram) -> dict[str, str]:
    """Return the types of the kernel's arguments, as Triton writes them."""
    numbers = {name: _number_type(number) for name, number in program.arguments.items()}
    return {one.name: _POINTERS[one.dtype] for one in program.buffers} | numbers


def _number_type(number: int | float) -> str:
    """Return the type that a launch gives a number."""
    if isinstance(number, float):
        return "fp32"
    if number == 1:
        return "constexpr"
    return next((one for one, most in (("i32", 1 << 31), ("i64", 1 << 63)) if -most <= number < most), "u64")


def attributes(program: TritonProgram) -> dict[tuple[int, ...], list[list[object]]]:
    """Return which arguments are aligned to 16 bytes, or multiples of 16, as a launch finds out."""
    aligned = [not one.offset for one in program.buffers]
    aligned += [isinstance(one, int) and one % 16 == 0 for one in program.arguments.values()]
    return {(at,): [["tt.divisibility", 16]] for at, one in enumerate(aligned) if one}


def prepare(
    programs: Sequence[TritonProgram], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Return what runs each program where nothing is run: it has no outputs. folder, exact: make no difference."""
    return [run_nothing for _ in sources]


@contextmanager
def own_cache() -> Iterator[None]:
    """Have Triton keep what it compiles in a folder that is there while the block runs only: programs do not come again."""
    before = os.environ.get(_CACHE)
    with tempfile.TemporaryDirectory(prefix="mhc-triton-") as name:
        os.environ[_CACHE] = name
        try:
            yield
        finally:
            if before is None:
                del os.environ[_CACHE]
            else:
                os.environ[_CACHE] = before
