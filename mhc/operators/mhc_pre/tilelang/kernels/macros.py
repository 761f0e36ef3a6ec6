"""Index arithmetic and scalar formulas of mHC Forward Pre, shared by every TileLang kernel, serial or tiled.

Macros take and return scalars of the accumulation dtype; the loop, fragment or thread they stand in is the kernel's choice.
Constants that a decimal literal cannot hold (the two eps) are arguments: the `c` target prints literals with seven digits.
Indices are plain functions, since a macro binds its arguments to variables, which hide an index from layout inference.

Symbols: n streams, D hidden size, K = n * D, M = n * n + 2 * n rows of phi in the order pre (n), post (n), res (n * n).
"""

import tilelang.language as T


def rows(n):
    """M, the rows of phi."""
    return n * n + 2 * n


def pre_row(n, i):
    """The row of phi behind h_pre[i]."""
    return i


def post_row(n, i):
    """The row of phi behind h_post[i]."""
    return n + i


def res_row(n, i, j):
    """The row of phi behind h_res[i, j]."""
    return 2 * n + i * n + j


def column(D, i, d):
    """The column of phi, of 0..K-1, that meets x[i, d]."""
    return i * D + d


def by_gate(row, n, pre, post, res):
    """The one of three values that belongs to a row of phi, alpha's say; rows beyond M get `res`."""
    return T.if_then_else(row < n, pre, T.if_then_else(row < 2 * n, post, res))


@T.macro
def inverse_rms(squares, K, norm_eps):
    """rsqrt(mean(x * x) + norm_eps), from the sum of the squares."""
    return T.rsqrt(squares / T.cast(K, squares.dtype) + norm_eps)


@T.macro
def gate_argument(scale, h_mix, inv_rms, bias):
    """alpha * t + bias, with t = h_mix * inv_rms; it is h_res itself, and what the sigmoids of h_pre and h_post take."""
    return scale * (h_mix * inv_rms) + bias


@T.macro
def sigmoid(z):
    """1 / (1 + exp(-z)): where exp overflows, 1 / inf is the right 0; NaN stays NaN."""
    return 1.0 / (1.0 + T.exp(-z))


@T.macro
def pre_gate(z, hc_eps):
    """h_pre of its argument."""
    return sigmoid(z) + hc_eps


@T.macro
def post_gate(z):
    """h_post of its argument."""
    return 2.0 * sigmoid(z)


@T.macro
def pre_slope(dh_pre, h_pre, hc_eps):
    """dh_pre2, the gradient of h_pre's argument: dh_pre * s * (1 - s), s = h_pre - hc_eps the sigmoid itself."""
    s = h_pre - hc_eps
    return dh_pre * s * (1.0 - s)


@T.macro
def post_slope(dh_post, h_post):
    """dh_post2, the gradient of h_post's argument."""
    return dh_post * h_post * (1.0 - h_post / 2.0)


@T.macro
def norm_coefficient(dinv_rms, inv_rms, K):
    """What dx subtracts of x: dinv_rms * inv_rms ** 3 / K, with dinv_rms = sum_M dt * h_mix (dt, not dh_mix)."""
    return dinv_rms * (inv_rms * inv_rms * inv_rms) / T.cast(K, inv_rms.dtype)


@T.macro
def dx_element(dvec, gamma, coefficient, x, h_pre, dh_in):
    """One element of dx, before its rounding: dvec * gamma - coefficient * x + h_pre * dh_in."""
    return dvec * gamma - coefficient * x + h_pre * dh_in
