"""A kernel of one's own, for the walk in docs/filing-upstream.md: a forward whose inv_rms is a TileLang kernel in float64.

Its source is right. TileLang's `c` target prints 1 / K with seven digits.
"""

import tilelang
import tilelang.language as T  # noqa: N812
import torch

from mhc import Implementation


def inverse(tokens, K, eps):
    @T.prim_func
    def kernel(squares: T.Tensor((tokens,), "float64"), y: T.Tensor((tokens,), "float64")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(tokens):
                y[i] = T.rsqrt(squares[i] * T.cast(1 / K, "float64") + T.cast(eps, "float64"))

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def forward(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    B, S, n, D = x.shape
    K = n * D
    flat = x.reshape(B, S, K)
    squares, inv_rms = flat.square().sum(-1).reshape(-1), x.new_empty(B * S)
    inverse(B * S, K, norm_eps)(squares, inv_rms)
    inv_rms = inv_rms.view(B, S)

    h_mix = (flat if gamma is None else flat * gamma.reshape(K)) @ phi.mT
    t = h_mix * inv_rms.unsqueeze(-1)
    h_pre = torch.sigmoid(alpha[0] * t[..., :n] + bias[:n]) + hc_eps
    h_post = 2 * torch.sigmoid(alpha[1] * t[..., n : 2 * n] + bias[n : 2 * n])
    h_res = (alpha[2] * t[..., 2 * n :] + bias[2 * n :]).reshape(B, S, n, n)
    h_in = (h_pre.unsqueeze(-1) * x).sum(-2)
    return h_in, h_post, h_res, inv_rms, h_mix, h_pre


MEAN = Implementation(name="mean", forward=forward, backward=None, devices=("cpu",), dtypes=("float64",))
