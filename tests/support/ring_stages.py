"""What `ring` has beside its products, as one program: gates, weights and mend. `cuda_on_cpu` runs it."""

import tilelang.language as T  # noqa: N812  as in all of TileLang

from mhc.operators.mhc_pre.tilelang.kernels.bwd_dx_sm90 import mend, weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function


def stages(*, n: int, vector: int, columns: int, columns_dx: int):  # type: ignore[no-untyped-def]
    """x and dx are float32, so that dx says what mend computes; what is not in doubt is not written."""
    M, V, F = n * n + 2 * n, vector, "float32"
    N, Dv, DPv, programs = (T.dynamic(name) for name in ("N", "Dv", "DPv", "programs"))
    scratch = {
        "left": T.Tensor((N, columns), "bfloat16"),
        "left_dx": T.Tensor((N, columns_dx), "float16"),
        "left_back": T.Tensor((N,), F),
        "left_marks": T.Tensor((N,), "int32"),
        "coef": T.Tensor((N,), F),
        "sums": T.Tensor((programs, M + 3), F),
        "right": T.Tensor((columns_dx, n, DPv * 8), "float16"),
        "right_back": T.Tensor((n, DPv * 8), F),
        "right_marks": T.Tensor((n, DPv * 8), "int32"),
        "right_units": T.Tensor((columns_dx, n, DPv, 8), "float16"),
    }

    @T.macro
    def stages_of(a):  # type: ignore[no-untyped-def]
        with T.Kernel(a.sums.shape[0], threads=128) as pid:
            gates(
                *(pid, a.x, a.dh_in, a.h_mix, a.h_pre, a.h_post, a.dh_post, a.dh_res, a.inv_rms, a.alpha, a.left, a.coef),
                *(a.sums, None, a.hc_eps, n, V, 1, columns, 0, 0),
                BLOCKS=3,
                scaled=a,
            )
        weights(a.phi_flat, a.gamma_flat, a.right, a.right_back, a.right_marks, a.right_units.shape[2], a.has_gamma, n=n)
        mend(a, n=n, V=V)

    parameters = backward_parameters(N, n, Dv, V, F, scratch)  # type: ignore[no-untyped-call]
    return function("stages", parameters, stages_of)  # type: ignore[no-untyped-call]
