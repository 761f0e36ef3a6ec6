"""The example that the project grew from, its import lines aside: forward with `outflag=True`, then backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mhc import (
    MHCBackwardTileLang,
    mhc_backward_tilelang,
    mhc_forward_pre,
    mhc_forward_pre_tilelang,
    mhc_forward_pre_tir,
    mhc_pre_backward_manual,
)
from tests.support.needs import needs_tilelang

# The example's two imports, by whose kernels they are; on the CPU, TileLang's scalar ones.
IMPORTS: dict[str, tuple[Callable[..., Any], Callable[[int, int, int, int], Callable[..., Any]]]] = {
    "golden": (mhc_forward_pre, lambda B, S, n, D: mhc_pre_backward_manual),
    "tilelang": (mhc_forward_pre_tilelang, lambda B, S, n, D: mhc_backward_tilelang),
    "tilelang, a backward for its shape": (
        mhc_forward_pre_tilelang,
        lambda B, S, n, D: MHCBackwardTileLang(B, S, n, D, device="cpu"),
    ),
    "tir": (mhc_forward_pre_tir, lambda B, S, n, D: mhc_backward_tilelang),
}


@pytest.mark.parametrize("name", [one if one == "golden" else pytest.param(one, marks=needs_tilelang) for one in IMPORTS])
def test_forward_then_backward(name: str) -> None:
    B, S, n, D = 2, 128, 4, 256
    forward, backward_of = IMPORTS[name]
    torch.manual_seed(0)
    x = torch.randn(B, S, n, D, dtype=torch.bfloat16)
    phi = torch.randn(n * n + 2 * n, n * D, dtype=torch.float32)
    alpha = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float32)
    bias = torch.randn(n * n + 2 * n, dtype=torch.float32)
    gamma = torch.randn(n, D, dtype=torch.float32)

    h_in, h_post, h_res, inv_rms, h_mix, h_pre = forward(x, phi, alpha, bias, gamma, outflag=True)
    dh_in = torch.randn_like(h_in)
    dh_post = torch.randn_like(h_post)
    dh_res = torch.randn_like(h_res)
    dx, dphi, dalpha, dbias, dgamma = backward_of(B, S, n, D)(
        x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma
    )

    assert (h_in.shape, h_in.dtype) == ((B, S, D), torch.bfloat16)
    assert (h_post.shape, h_res.shape) == ((B, S, n), (B, S, n, n))
    assert (dx.shape, dx.dtype) == (x.shape, torch.bfloat16)
    assert (dphi.shape, dalpha.shape, dbias.shape) == (phi.shape, alpha.shape, bias.shape)
    assert dgamma is not None
    assert dgamma.shape == gamma.shape

    # the gradients are autograd's: of the same forward, to float32 rounding (dx was rounded once more, to bfloat16)
    leaves = [
        tensor.requires_grad_() for tensor in (x.double(), phi.double(), alpha.double(), bias.double(), gamma.double())
    ]
    outputs = mhc_forward_pre(*leaves)
    wanted = torch.autograd.grad(outputs, leaves, (dh_in.double(), dh_post.double(), dh_res.double()))
    for got, right in zip((dx, dphi, dalpha, dbias, dgamma), wanted, strict=True):
        assert got is not None
        relative = torch.linalg.vector_norm(got.double() - right) / torch.linalg.vector_norm(right)
        assert relative < torch.finfo(got.dtype).eps * (1 if got.dtype == torch.bfloat16 else 64)
