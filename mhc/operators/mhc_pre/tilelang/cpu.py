"""mHC Forward Pre and its backward on the CPU: TileLang's `c` target, compiled once for each dtype of x.

bfloat16 x is stored as float32 here, since the target has no bfloat16, and h_in and dx are rounded once on the way out.
Strided tensors are copied first, so a view gives bit for bit what its copy gives. Without gamma the programs get ones.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.operators.mhc_pre.table import MAX_N
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, program

PASSES = {"tl.disable_safe_memory_legalize": True, "tl.disable_out_of_bound_warning": True}  # every loop ends at its tensor
FLAGS = ("-O3",)  # the target's default is -O0


def stored(tensor: Tensor) -> Tensor:
    """Dense, and float32 where it is bfloat16."""
    return tensor.to(torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype).contiguous()


def weight(gamma: Tensor | None, phi: Tensor) -> Tensor:
    """gamma, or ones."""
    return phi.new_ones(phi.shape[1]) if gamma is None else gamma.contiguous()


def call(run: Program, values: Mapping[str, Tensor | float]) -> None:
    """Call a program with arguments by name; a tensor stands for its address."""
    given = (values[name] for name, _ in run.arguments)
    run(*(value.data_ptr() if isinstance(value, Tensor) else value for value in given))


def _run(stage: str, x: Tensor, **values: Tensor | float) -> None:
    constants: dict[str, str | int] = {"dtype": str(x.dtype).removeprefix("torch."), "max_n": MAX_N}
    run = program(f"mhc.operators.mhc_pre.tilelang.kernels.cpu:{stage}", "c", constants, pass_configs=PASSES, flags=FLAGS)
    call(run, {"x": x, **values})


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """(h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre; the formula is in `mhc.operators.mhc_pre.formula`.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3], bias [M], gamma [n, D] or
    None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype; h_post [B, S, n], h_res [B, S, n, n],
    inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in phi's dtype.
    Takes arguments already checked.
    """
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    v = stored(x)
    empty = phi.new_empty
    h_in, h_post, h_res = v.new_empty(B, S, D), empty(B, S, n), empty(B, S, n, n)
    inv_rms, h_mix, h_pre = empty(B, S), empty(B, S, M), empty(B, S, n)
    if N > 0:
        _run(
            "forward",
            v,
            phi=phi.contiguous(),
            alpha=alpha.contiguous(),
            bias=bias.contiguous(),
            gamma=weight(gamma, phi),
            **{"h_in": h_in, "h_post": h_post, "h_res": h_res, "inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre},
            **{"N": N, "K": K, "M": M, "n": n, "D": D, "norm_eps": norm_eps, "hc_eps": hc_eps},
        )
    return h_in.to(x.dtype), h_post, h_res, inv_rms, h_mix, h_pre


def backward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    inv_rms: Tensor,
    h_mix: Tensor,
    h_pre: Tensor,
    h_post: Tensor,
    dh_in: Tensor,
    dh_post: Tensor,
    dh_res: Tensor,
    gamma: Tensor | None,
    *,
    norm_eps: float,
    hc_eps: float,
) -> tuple[Tensor | None, ...]:
    """(dx, dphi, dalpha, dbias, dgamma) of mHC Forward Pre; the formula is in `mhc.operators.mhc_pre.formula`.

    The forward's arguments, its saved inv_rms [B, S], h_mix [B, S, M], h_pre and h_post [B, S, n], and the upstream
    gradients dh_in [B, S, D] in x's dtype, dh_post [B, S, n], dh_res [B, S, n, n]. dx [B, S, n, D] has x's dtype, the
    others phi's; dgamma [n, D] is None where gamma is. bias and norm_eps do not enter. Takes arguments already checked.
    """
    del bias, norm_eps
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    v = stored(x)
    dx = torch.empty_like(v)
    empty = phi.new_empty if N > 0 else phi.new_zeros
    dphi, dalpha, dbias, dgamma = empty(M, K), empty(3), empty(M), empty(n, D)
    if N > 0:
        given = {
            "phi": phi, "alpha": alpha, "inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre, "h_post": h_post,
            "dh_in": dh_in, "dh_post": dh_post, "dh_res": dh_res,
        }  # fmt: skip
        _run(
            "backward",
            v,
            **{name: stored(tensor) for name, tensor in given.items()},
            gamma=weight(gamma, phi),
            **{"dx": dx, "dphi": dphi, "dalpha": dalpha, "dbias": dbias, "dgamma": dgamma},
            **{"dh_mix": empty(N, M), "coefficient": empty(N)},
            **{"N": N, "K": K, "M": M, "n": n, "D": D, "hc_eps": hc_eps},
        )
    return dx.to(x.dtype), dphi, dalpha, dbias, None if gamma is None else dgamma
