"""A call of a compiled program: addresses of its tensors, and scratch memory."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.operators.mhc_pre.tilelang.compile.cache import Program

SCRATCH_ALIGNMENT = 256


@dataclass(frozen=True)
class Call:
    """What calls of one shape share.

    sizes: the program's scalars by name. offsets: where each scratch tensor begins in one allocation.
    """

    program: Program
    sizes: Mapping[str, int | float]
    offsets: Mapping[str, int]
    scratch_bytes: int

    def run(
        self,
        tensors: Mapping[str, Tensor],
        scalars: Mapping[str, float] | None = None,
        again: Mapping[str, str] | None = None,
    ) -> None:
        """Launch on the current stream of the tensors' device, which must be the current one.

        again: names under which the program takes a tensor once more, in another shape.
        """
        x = tensors["x"]
        values: dict[str, int | float] = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        scratch = x.new_empty(self.scratch_bytes, dtype=torch.uint8)  # held until the launches are on the stream
        values |= {name: scratch.data_ptr() + offset for name, offset in self.offsets.items()}
        values |= {name: values[of] for name, of in (again or {}).items() if of in values}
        values["stream"] = torch.cuda.current_stream(x.get_device()).cuda_stream
        values |= {**self.sizes, **(scalars or {})}
        self.program(*[values[name] for name, _ in self.program.arguments])


def call_of(program: Program, sizes: Mapping[str, int | float], scratch: Mapping[str, int]) -> Call:
    """Return the call of a program; scratch: bytes of each scratch tensor."""
    offsets, at = {}, 0
    for name, size in scratch.items():
        offsets[name] = at
        at += -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return Call(program, sizes, offsets, at)


def target_of(capability: int) -> str:
    """Return TileLang's target for a compute capability times ten."""
    return f"cuda -arch=sm_{capability}{'a' if capability >= 90 else ''}"
