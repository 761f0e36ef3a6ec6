"""The forward as a TIR script under the name and signature of the golden one."""

from mhc.operators.mhc_pre.calls import ForwardFunction
from mhc.operators.mhc_pre.tir.implementations import TIR

mhc_forward_pre_tir = ForwardFunction(
    "mhc_forward_pre_tir",
    lambda x: TIR,
    """`mhc_forward_pre` as a TIR script: threads bound by hand on CUDA, plain loops on the CPU. Not differentiable.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: as for `mhc_forward_pre_tilelang`, and for any schedule. There is no fallback.
    """,
)
