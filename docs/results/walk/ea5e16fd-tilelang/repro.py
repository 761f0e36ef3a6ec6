"""inv_rms: value. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong."""

import math
import os
import sys
import tilelang
import tilelang.language as T
import torch


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other


def inverse(tokens, K, eps):
    @T.prim_func
    def kernel(squares: T.Tensor((tokens,), 'float64'), y: T.Tensor((tokens,), 'float64')):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(tokens):
                y[i] = T.rsqrt(squares[i] * T.cast(1 / K, 'float64') + T.cast(eps, 'float64'))
    return tilelang.compile(kernel, target='c', execution_backend='cython')


def forward(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    B, S, n, D = x.shape
    K = n * D
    flat = x.reshape(B, S, K)
    squares, inv_rms = (flat.square().sum(-1).reshape(-1), x.new_empty(B * S))
    inverse(B * S, K, norm_eps)(squares, inv_rms)
    inv_rms = inv_rms.view(B, S)
    h_mix = (flat if gamma is None else flat * gamma.reshape(K)) @ phi.mT
    t = h_mix * inv_rms.unsqueeze(-1)
    h_pre = torch.sigmoid(alpha[0] * t[..., :n] + bias[:n]) + hc_eps
    h_post = 2 * torch.sigmoid(alpha[1] * t[..., n:2 * n] + bias[n:2 * n])
    h_res = (alpha[2] * t[..., 2 * n:] + bias[2 * n:]).reshape(B, S, n, n)
    h_in = (h_pre.unsqueeze(-1) * x).sum(-2)
    return (h_in, h_post, h_res, inv_rms, h_mix, h_pre)


def reference(x):
    flat = x.reshape(1, 1, 3)
    return (flat.square().mean(-1) + 1e-06).rsqrt()


x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 1, 3)
phi = torch.full((3, 3), 0.0, dtype=torch.float64)
alpha = torch.full((3,), 0.0, dtype=torch.float64)
bias = torch.full((3,), 0.0, dtype=torch.float64)
expected = reference(x.double())[0, 0].item()
returned = forward(x, phi, alpha, bias, None, norm_eps=1e-06, hc_eps=1e-06)
actual = returned[3][0, 0].item()
print(f"inv_rms[0, 0]: expected {expected!r}, actual {actual!r}, bound 6.228902285175137e-15")
if not math.isfinite(actual):
    raise ArithmeticError("not finite")
wrong = abs(actual - expected) > 6.228902285175137e-15
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
