"""The parameters of the TileLang functions on CUDA by name, and the prim_func that is made of them.

`T.prim_func` reads a literal signature; here the same function is made of a mapping, so that what programs have in common is
written once. Sizes are TileLang's dynamic ones or integers.
"""

from types import SimpleNamespace

import tilelang.language as T
from tilelang.language.eager.builder import Builder


def function(name, parameters, body):
    """Return the prim_func `name` of the parameters; `body` makes its statements of a namespace of them."""
    builder = Builder()
    with builder.prim_func(name):
        body(SimpleNamespace(**{one: builder.prim_func_arg(one, kind) for one, kind in parameters.items()}))
    return builder.get()


def forward_parameters(N, n, D, M, K, dtype, scratch):
    """Return the forward's parameters: x [N, K], phi [M, K], alpha [3], bias [M], gamma [K], the outputs h_in [N, D], h_post
    [N, n], h_res [N, n * n], inv_rms [N], h_mix [N, M], h_pre [N, n], the scratch tensors, norm_eps and hc_eps.
    """
    f32 = "float32"
    return {
        "x": T.Tensor((N, K), dtype),
        "phi": T.Tensor((M, K), f32),
        "alpha": T.Tensor((3,), f32),
        "bias": T.Tensor((M,), f32),
        "gamma": T.Tensor((K,), f32),
        "h_in": T.Tensor((N, D), dtype),
        "h_post": T.Tensor((N, n), f32),
        "h_res": T.Tensor((N, n * n), f32),
        "inv_rms": T.Tensor((N,), f32),
        "h_mix": T.Tensor((N, M), f32),
        "h_pre": T.Tensor((N, n), f32),
        **scratch,
        "norm_eps": T.float32(),
        "hc_eps": T.float32(),
    }


def backward_parameters(N, n, Dv, V, dtype, scratch, *, x_dx=None, dh_in_dx=None, whole=False):
    """Return the backward's parameters: its arguments, the scratch tensors, the gradients, hc_eps and has_gamma.

    x, dh_in, phi and gamma come with rows of Dv pieces of V elements, and again `_flat` in rows of D = Dv * V.
    x_dx, dh_in_dx: what dx reads in place of x_flat and dh_in_flat. whole: phi and gamma come flat alone.
    """
    M, F = n * n + 2 * n, "float32"
    D = Dv * V
    pieces = {"phi": T.Tensor((M, n, Dv, V), F)}, {"gamma": T.Tensor((n, Dv, V), F)}
    phi, gamma = ({}, {}) if whole else pieces
    return {
        "x": T.Tensor((N, n, Dv, V), dtype),
        **({"x_flat": T.Tensor((N, n, D), dtype)} if x_dx is None else {"x_dx": x_dx}),
        "dh_in": T.Tensor((N, Dv, V), dtype),
        **({"dh_in_flat": T.Tensor((N, D), dtype)} if dh_in_dx is None else {"dh_in_dx": dh_in_dx}),
        "h_mix": T.Tensor((N, M), F),
        "h_pre": T.Tensor((N, n), F),
        "h_post": T.Tensor((N, n), F),
        "dh_post": T.Tensor((N, n), F),
        "dh_res": T.Tensor((N, n * n), F),
        "inv_rms": T.Tensor((N,), F),
        "alpha": T.Tensor((3,), F),
        **phi,
        "phi_flat": T.Tensor((M, n, D), F),
        **gamma,
        "gamma_flat": T.Tensor((n, D), F),
        **scratch,
        "dx": T.Tensor((N, n, D), dtype),
        "dphi": T.Tensor((M, n, D), F),
        "dgamma": T.Tensor((n, D), F),
        "dalpha": T.Tensor((3,), F),
        "dbias": T.Tensor((M,), F),
        "hc_eps": T.float32(),
        "has_gamma": T.int32(),
    }


def product_scratch(N, n, C, V, P, DPv, programs, parts, psi_rows):
    """Return scratch of a backward with a product each for psi and dx, without phi * gamma: P planes of x, left of C."""
    M = n * n + 2 * n
    return {
        "left": T.Tensor((N, C), "bfloat16"),
        "coef": T.Tensor((N,), "float32"),
        "sums": T.Tensor((programs, M + 3), "float32"),
        "planes_out": T.Tensor((max(P, 1), N, n, DPv * (8 // V), V), "bfloat16"),
        "planes_in": T.Tensor((max(P, 1), N, n, DPv * 8), "bfloat16"),
        "psi": T.Tensor((parts, psi_rows, n, DPv * 8), "float32"),
    }


def scaled_scratch(N, n, columns, DPv):
    """Return scratch for both factors of dx in float16 terms (`fp16_split`), each of `columns` = 2 * MQ."""
    DP = DPv * 8
    return {
        "left_dx": T.Tensor((N, columns), "float16"),
        "left_back": T.Tensor((N,), "float32"),
        "left_marks": T.Tensor((N,), "int32"),
        "right": T.Tensor((columns, n, DP), "float16"),
        "right_back": T.Tensor((n, DP), "float32"),
        "right_marks": T.Tensor((n, DP), "int32"),
        "right_units": T.Tensor((columns, n, DPv, 8), "float16"),  # TileLang passes on what is a dimension by itself: DPv
    }
