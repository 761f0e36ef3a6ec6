"""What `ring` has beside its products, as one program: gates, weights and mend. `cuda_on_cpu` runs it."""

import tilelang.language as T  # noqa: N812  as in all of TileLang

from mhc.operators.mhc_pre.tilelang.kernels.bwd_dx_sm90 import mend, weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function, scaled_scratch


def stages(*, n: int, vector: int, columns: int, columns_dx: int):  # type: ignore[no-untyped-def]
    """x and dx are float32, so that dx says what mend computes; what is not in doubt is not written."""
    M, V, F = n * n + 2 * n, vector, "float32"
    N, Dv, DPv, programs = (T.dynamic(name) for name in ("N", "Dv", "DPv", "programs"))
    scratch = {
        "left": T.Tensor((N, columns), "bfloat16"),
        "coef": T.Tensor((N,), F),
        "sums": T.Tensor((programs, M + 3), F),
        **scaled_scratch(N, n, columns_dx, DPv),  # type: ignore[no-untyped-call]
    }

    @T.macro
    def stages_of(a):  # type: ignore[no-untyped-def]
        with T.Kernel(a.sums.shape[0], threads=128) as pid:
            gates(pid, a, n=n, V=V, U=1, C=columns, P=0, BLOCKS=3, SCALED=True)
        weights(a.phi_flat, a.gamma_flat, a.right, a.right_back, a.right_marks, a.right_units.shape[2], a.has_gamma, n=n)
        mend(a, n=n, V=V)

    parameters = backward_parameters(N, n, Dv, V, F, scratch)  # type: ignore[no-untyped-call]
    return function("stages", parameters, stages_of)  # type: ignore[no-untyped-call]
