"""The example that the project grew from, its import lines aside: forward with `outflag=True`, then backward."""

import torch

from mhc import mhc_forward_pre, mhc_pre_backward_manual


def test_forward_then_backward() -> None:
    B, S, n, D = 2, 128, 4, 256
    torch.manual_seed(0)
    x = torch.randn(B, S, n, D, dtype=torch.bfloat16)
    phi = torch.randn(n * n + 2 * n, n * D, dtype=torch.float32)
    alpha = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float32)
    bias = torch.randn(n * n + 2 * n, dtype=torch.float32)
    gamma = torch.randn(n, D, dtype=torch.float32)

    h_in, h_post, h_res, inv_rms, h_mix, h_pre = mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True)
    dh_in = torch.randn_like(h_in)
    dh_post = torch.randn_like(h_post)
    dh_res = torch.randn_like(h_res)
    dx, dphi, dalpha, dbias, dgamma = mhc_pre_backward_manual(
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
