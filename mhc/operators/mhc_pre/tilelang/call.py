"""A call of a compiled program: addresses of its tensors, and scratch memory."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.operators.mhc_pre.device import stream_of
from mhc.operators.mhc_pre.tensors import allocator
from mhc.operators.mhc_pre.tilelang.compile.cache import Program

SCRATCH_ALIGNMENT = 256


@dataclass(frozen=True)
class Call:
    """What calls of one shape share: the program, and where each of its arguments comes from.

    values: the arguments in order, with 0 for every address. tensors: position and name of each tensor.
    scratch: position of each scratch tensor, and where it begins in one allocation.
    """

    program: Program
    values: tuple[int | float, ...]
    tensors: tuple[tuple[int, str], ...]
    scratch: tuple[tuple[int, int], ...]
    scratch_bytes: int

    def run(self, tensors: Mapping[str, Tensor]) -> None:
        """Launch on the current stream of the tensors' device, which must be the current one."""
        x = tensors["x"]
        scratch = allocator(x)((self.scratch_bytes,), (1,), torch.uint8)  # held until the launches are on the stream
        values, start = list(self.values), scratch.data_ptr()
        for at, name in self.tensors:
            values[at] = tensors[name].data_ptr()
        for at, offset in self.scratch:
            values[at] = start + offset
        values[-1] = stream_of(x.get_device())
        self.program(*values)


def call_of(
    program: Program,
    scalars: Mapping[str, int | float],
    scratch: Mapping[str, int],
    again: Mapping[str, str] | None = None,
) -> Call:
    """Return the call of a program; scratch: bytes of each scratch tensor.

    again: names under which the program takes a tensor once more, in another shape.
    """
    offsets, size = {}, 0
    for name, wanted in scratch.items():
        offsets[name] = size
        size += -(-wanted // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    names = [(again or {}).get(name, name) for name, _ in program.arguments]
    assert names[-1] == "stream", f"the last argument of {program.name} must be the stream, was {names[-1]}"
    places = list(enumerate(names[:-1]))
    return Call(
        program,
        values=tuple(scalars.get(name, 0) for name in names),
        tensors=tuple((at, name) for at, name in places if name not in scalars and name not in offsets),
        scratch=tuple((at, offsets[name]) for at, name in places if name in offsets),
        scratch_bytes=size,
    )


def target_of(capability: int) -> str:
    """Return TileLang's target for a compute capability times ten."""
    return f"cuda -arch=sm_{capability}{'a' if capability >= 90 else ''}"
