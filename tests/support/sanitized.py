"""`python -m tests.support.sanitized SPEC`: a few small cases on a GPU, forward and backward, for compute-sanitizer.

Every tensor is an allocation of its own that ends with its last element, so that a step past it is a step out of it. Nothing
fills what an implementation allocates: memory that is not written stays uninitialised. Results are not copied to the host:
initcheck does not see the stores of bulk copies (TMA), and would take what they wrote for unwritten. An output that is not
written is the memory gate's, which fills it with NaN.
"""

import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from mhc import Case, Implementation, load, materialise, reference
from mhc.placement import place
from mhc.precision import float32_matmuls
from tests.support.helpers import scaled_case, with_layout

CASES: tuple[Case, ...] = (
    scaled_case(B=2, S=9, n=4, D=40, dtype="bfloat16"),
    with_layout(scaled_case(B=3, S=1, n=3, D=7, dtype="float32", absent=frozenset({"gamma"})), "x", order=(1, 0, 3, 2)),
)
"""Tails in every symbol, both widths of x, with and without gamma, one view."""


def tight(tensor: Tensor | None) -> Tensor | None:
    """Return a copy with the same strides, in an allocation that ends with the last element."""
    if tensor is None or tensor.numel() == 0:
        return tensor
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    storage = torch.zeros(reach, dtype=tensor.dtype, device=tensor.device)
    return storage.as_strided(tensor.shape, tensor.stride()).copy_(tensor)


def run(implementation: Implementation, case: Case, device: str = "cuda") -> Mapping[str, str]:
    """Run each stage and return "ran", or the reason for a refusal."""
    refused = implementation.refusal(case, device)
    if refused is not None:
        return {"case": f"refused: {refused.reason}"}
    inputs = materialise(case, device)
    given = place(inputs, reference(inputs).saved).tensors
    outcomes = {}
    table = case.table
    for stage, names in (("forward", table.forward_arguments), ("backward", table.backward_arguments)):
        function = getattr(implementation, stage)
        if function is None:
            continue
        arguments = [tight(given[name]) for name in names]
        with float32_matmuls(device):
            function(*arguments, **implementation.keywords(case.scalars))
        if device == "cuda":
            torch.cuda.synchronize()
        outcomes[stage] = "ran"
    return outcomes


def main() -> None:
    implementation = load(sys.argv[1])
    for case in CASES:
        for stage, what in run(implementation, case).items():
            sys.stdout.write(f"{case.id}: {stage} {what}\n")


if __name__ == "__main__":
    main()
