"""Forward and backward on Triton under the names and signatures of the golden ones."""

from mhc.operators.mhc_pre.calls import BackwardFunction, ForwardFunction, by_device
from mhc.operators.mhc_pre.triton.implementations import TRITON, TRITON_INTERPRETED

mhc_forward_pre_triton_optimized = ForwardFunction(
    "mhc_forward_pre_triton_optimized",
    by_device(TRITON, TRITON_INTERPRETED),
    """`mhc_forward_pre` in Triton kernels: the same equations, arguments, shapes and dtypes.

    Differentiable: gradients come from `mhc_backward_triton`. float32-level accuracy on tensor cores (docs/triton.md), bit
    for bit the same on every run. CPU tensors run in Triton's interpreter, for tests, where TRITON_INTERPRET=1 was
    set before Triton was imported.

    Args:
        schedule: pins block sizes and the like, of `triton.schedule.SPACE`; what it leaves out is chosen from the
            shape.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: no GPU, or the schedule cannot run here; with the reason. There is no fallback.
    """,
)
mhc_backward_triton = BackwardFunction(
    "mhc_backward_triton",
    by_device(TRITON, TRITON_INTERPRETED),
    """`mhc_pre_backward_manual` in Triton kernels: the same equations, arguments, shapes and dtypes.

    No [N, K] intermediate; bit for bit the same on every run. CPU tensors, `schedule` and errors as for the forward.

    Returns:
        (dx [B,S,n,D], dphi [M,K], dalpha [3], dbias [M], dgamma [n,D]); dgamma is None where gamma is.
    """,
)
