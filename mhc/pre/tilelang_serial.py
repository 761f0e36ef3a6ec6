"""mHC Forward Pre and its backward on the CPU: TileLang's `c` target, compiled once for each n and dtype of x.

bfloat16 x is stored as float32 here, since the target has no bfloat16, and h_in and dx are rounded once on the way out.
Strided tensors are copied first, so a view gives bit for bit what its copy gives. Without gamma the programs get ones.
"""

import functools
from typing import Any

import torch
from torch import Tensor


@functools.lru_cache(maxsize=256)
def _program(stage: str, dtype: str) -> Any:
    import tilelang  # noqa: PLC0415

    from mhc.pre import tilelang_serial_kernels  # noqa: PLC0415

    function = getattr(tilelang_serial_kernels, stage)(dtype=dtype)
    return tilelang.compile(
        function,
        target="c",
        execution_backend="cython",
        compile_flags=["-O3"],
        pass_configs={"tl.disable_safe_memory_legalize": True, "tl.disable_out_of_bound_warning": True},
    )


def _stored(tensor: Tensor) -> Tensor:
    """Dense, and float32 where it is bfloat16."""
    return tensor.to(torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype).contiguous()


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """(h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre; the formula is in `mhc.pre.formula`.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3], bias [M], gamma [n, D] or
    None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype; h_post [B, S, n], h_res [B, S, n, n],
    inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in phi's dtype. Takes arguments already checked.
    """
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    v = _stored(x).view(N, K)
    empty = phi.new_empty
    h_in, h_post, h_res = v.new_empty(N, D), empty(N, n), empty(N, n * n)
    inv_rms, h_mix, h_pre = empty(N), empty(N, M), empty(N, n)
    if N > 0:
        weight = phi.new_ones(K) if gamma is None else gamma.contiguous().view(K)
        eps = phi.new_tensor([norm_eps, hc_eps])
        given = v, phi.contiguous(), alpha.contiguous(), bias.contiguous(), weight, eps
        _program("forward", _name(v))(*given, h_in, h_post, h_res, inv_rms, h_mix, h_pre)
    return (
        h_in.view(B, S, D).to(x.dtype),
        h_post.view(B, S, n),
        h_res.view(B, S, n, n),
        inv_rms.view(B, S),
        h_mix.view(B, S, M),
        h_pre.view(B, S, n),
    )


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
    """(dx, dphi, dalpha, dbias, dgamma) of mHC Forward Pre; the formula is in `mhc.pre.formula`.

    The forward's arguments, its saved inv_rms [B, S], h_mix [B, S, M], h_pre and h_post [B, S, n], and the upstream gradients
    dh_in [B, S, D] in x's dtype, dh_post [B, S, n], dh_res [B, S, n, n]. dx [B, S, n, D] has x's dtype, the others phi's;
    dgamma [n, D] is None where gamma is. bias and norm_eps do not enter. Takes arguments already checked.
    """
    del bias
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    v = _stored(x).view(N, K)
    dx = torch.empty_like(v)
    parameters = phi.new_zeros if N == 0 else phi.new_empty
    dphi, dalpha, dbias, dgamma = parameters(M, K), parameters(3), parameters(M), parameters(n, D)
    if N > 0:
        weight = phi.new_ones(K) if gamma is None else gamma.contiguous().view(K)
        saved = inv_rms.reshape(N), h_mix.reshape(N, M), h_pre.reshape(N, n), h_post.reshape(N, n)
        upstream = _stored(dh_in).view(N, D), dh_post.reshape(N, n), dh_res.reshape(N, n * n)
        eps = phi.new_tensor([norm_eps, hc_eps])
        given = v, phi, alpha, weight, *saved, *upstream, eps
        scratch = phi.new_empty(N, M), phi.new_empty(N)
        results = dx, dphi, dalpha, dbias, dgamma.view(K)
        _program("backward", _name(v))(*(one.contiguous() for one in given), *results, *scratch)
    return dx.view(B, S, n, D).to(x.dtype), dphi, dalpha, dbias, None if gamma is None else dgamma


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
