"""Forward and backward on TileLang under the names and signatures of the golden ones."""

from mhc.operators.mhc_pre.calls import BackwardFunction, ForwardFunction, by_device
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG, TILELANG_C

mhc_forward_pre_tilelang = ForwardFunction(
    "mhc_forward_pre_tilelang",
    by_device(TILELANG, TILELANG_C),
    """`mhc_forward_pre` in TileLang kernels: the same equations, arguments, shapes and dtypes.

    Differentiable: gradients come from `mhc_backward_tilelang`. CUDA tensors run on the tile-level kernels (`tilelang`), CPU
    tensors on the scalar ones of the `c` target (`tilelang-c`), the only ones that take float64. float32-level accuracy, bit
    for bit the same on every run. The first call compiles, unless the disk has the program (docs/tilelang).

    Args:
        schedule: pins tile sizes and the like, of the two `SPACE`s in `tilelang`; what it leaves out is chosen from the
            shape. CUDA only.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: TileLang is absent or another version than 0.1.8, there is no compiler, or the dtype or schedule cannot run
            here; with the reason. There is no fallback.
    """,
)
mhc_backward_tilelang = BackwardFunction(
    "mhc_backward_tilelang",
    by_device(TILELANG, TILELANG_C),
    """`mhc_pre_backward_manual` in TileLang kernels: the same equations, arguments, shapes and dtypes.

    No [N, K] intermediate; bit for bit the same on every run. CPU tensors, `schedule` and errors as for the forward.

    Returns:
        (dx [B,S,n,D], dphi [M,K], dalpha [3], dbias [M], dgamma [n,D]); dgamma is None where gamma is.
    """,
)
