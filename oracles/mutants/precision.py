"""Mutants of precision: factors and sums of fewer digits than float32, most of them from a true size on.

A kernel switches to a faster path where a tensor is large, so a small case never takes it. Values differ from the right ones
by less than a long sum's own bound; only their average tells. In bfloat16 and float16, x itself is exact in most of them.
"""

from functools import partial

from oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula", hidden=True)
_clean = partial(Mutant, base="manual", file="formula", clean=True)

_PROJECTION = "    h_mix = weighted @ phi.mT"
_DPHI = "    dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)"
_DVEC = "    dvec_mm = dh_mix @ phi"
_SQUARES = "flat.square().mean(-1)"
_DBIAS = "    dbias = dgate.reshape(N, M).sum(0)"
_DGAMMA = "    dgamma = None if gamma is None else (flat * dvec_mm).reshape(N, K).sum(0).reshape(n, D)"


def _bits(line: str, digits: int, condition: str) -> str:
    """The product in `line` with both factors rounded to so many of float32's 24 digits, where `condition` holds."""
    name, product = line.split(" = ")
    a, b = product.split(" @ ")
    shift = f"{2.0 ** (24 - digits) + 1!r}"
    cut = f"    cut = lambda v: v * {shift} - (v * {shift} - v)\n"
    return f"{cut}{name} = cut({a}) @ cut({b}) if {condition} else {product}"


def _two_terms(line: str, condition: str) -> str:
    """The product in `line` from two bfloat16 terms of each factor, where `condition` holds."""
    name, product = line.split(" = ")
    a, b = product.split(" @ ")
    return (
        "    low = lambda v: v.to(torch.bfloat16).to(v.dtype)\n"
        f"    (a0, a1), (b0, b1) = ((low(v), low(v - low(v))) for v in ({a}, {b}))\n"
        f"{name} = a0 @ b0 + (a0 @ b1 + a1 @ b0) if {condition} else {product}"
    )


PRECISION: tuple[Mutant, ...] = (
    _formula(
        name="tf32_projection_wide",
        bug="both factors of the projection in TF32 from K = 4096 on",
        old=_PROJECTION,
        new=_bits(_PROJECTION, 11, "K >= 4096"),
    ),
    _formula(
        name="tf32_dphi",
        bug="both factors of dphi in TF32",
        old=_DPHI,
        new=_bits(_DPHI, 11, "True"),
    ),
    _formula(
        name="tf32_dphi_long",
        bug="both factors of dphi in TF32 from 2,048 tokens on",
        old=_DPHI,
        new=_bits(_DPHI, 11, "N >= 2048"),
    ),
    _formula(
        name="tf32_dvec_wide",
        bug="both factors of dh_mix phi in TF32 from K = 4096 on",
        old=_DVEC,
        new=_bits(_DVEC, 11, "K >= 4096"),
    ),
    _formula(
        name="two_terms_projection_wide",
        bug="the projection from two bfloat16 terms from K = 4096 on",
        old=_PROJECTION,
        new=_two_terms(_PROJECTION, "K >= 4096"),
    ),
    _formula(
        name="two_terms_dphi_long",
        bug="dphi from two bfloat16 terms from 2,048 tokens on",
        old=_DPHI,
        new=_two_terms(_DPHI, "N >= 2048"),
    ),
    _formula(
        name="two_terms_dvec",
        bug="dh_mix phi from two bfloat16 terms",
        old=_DVEC,
        new=_two_terms(_DVEC, "True"),
    ),
    _formula(
        name="digits_16_projection_wide",
        bug="both factors of the projection rounded to 16 digits from K = 4096 on",
        old=_PROJECTION,
        new=_bits(_PROJECTION, 16, "K >= 4096"),
    ),
    _formula(
        name="digits_16_dphi_long",
        bug="both factors of dphi rounded to 16 digits from 2,048 tokens on",
        old=_DPHI,
        new=_bits(_DPHI, 16, "N >= 2048"),
    ),
    _formula(
        name="digits_16_dvec",
        bug="both factors of dh_mix phi rounded to 16 digits",
        old=_DVEC,
        new=_bits(_DVEC, 16, "True"),
    ),
    _formula(
        name="digits_18_projection",
        bug="both factors of the projection rounded to 18 digits",
        old=_PROJECTION,
        new=_bits(_PROJECTION, 18, "True"),
    ),
    _formula(
        name="digits_18_projection_wide",
        bug="both factors of the projection rounded to 18 digits from K = 1024 on",
        old=_PROJECTION,
        new=_bits(_PROJECTION, 18, "K >= 1024"),
    ),
    _formula(
        name="tf32_squares_wide",
        bug="the squares of a TF32 x from K = 4096 on",
        old=_SQUARES,
        new="(flat * 8193.0 - (flat * 8193.0 - flat) if K >= 4096 else flat).square().mean(-1)",
    ),
    _formula(
        name="half_partials_wide",
        bug="partial sums of split-K kept in float16 from K = 4096 on",
        old=_PROJECTION,
        new=f"{_PROJECTION}\n    if K >= 4096:\n        parts = zip(weighted.split(512, -1), phi.split(512, -1))\n"
        "        h_mix = sum((a @ b.mT).half().to(phi.dtype) for a, b in parts)",
    ),
    _formula(
        name="bf16_partials_dbias_long",
        bug="dbias from partial sums kept in bfloat16 from 2,048 tokens on",
        old=_DBIAS,
        new=f"{_DBIAS}\n    if N >= 2048:\n"
        "        dbias = sum(part.sum(0).bfloat16().to(acc) for part in dgate.reshape(N, M).split(256))",
    ),
)

_TERMS = (
    "    def terms(v):\n"
    "        kept = []\n"
    "        for _ in range(3):\n"
    "            kept.append(v.to(torch.bfloat16).to(v.dtype))\n"
    "            v = torch.where(kept[-1].isfinite(), (v - kept[-1]) * 256, 0)\n"
    "        return kept\n"
    "    if phi.dtype == torch.float64:\n"
    "        h_mix = weighted @ phi.mT\n"
    "    else:\n"
    "        (a0, a1, a2), (b0, b1, b2) = terms(weighted), terms(phi.mT)\n"
    "        f0, g0 = (torch.where(one.isfinite(), one, 0) for one in (a0, b0))\n"
    "        h_mix = a0 @ b0 + ((f0 @ b1 + a1 @ g0) + (f0 @ b2 + a1 @ b1 + a2 @ g0) / 256) / 256"
)

CLEAN_PRECISION: tuple[Mutant, ...] = (
    _clean(
        name="clean_sequential_projection",
        bug="the projection summed one term after the other",
        old=_PROJECTION,
        new="    h_mix = weighted.new_zeros(B, S, phi.shape[0])\n    for k in range(K):\n"
        "        h_mix = h_mix + weighted[..., k : k + 1] * phi[:, k]",
    ),
    _clean(
        name="clean_sequential_dphi",
        bug="dphi summed one token after the other",
        old=_DPHI,
        new="    rows, columns = dh_mix.reshape(N, M), weighted.reshape(N, K)\n    dphi = phi.new_zeros(M, K)\n"
        "    for token in range(N):\n        dphi = dphi + rows[token].unsqueeze(-1) * columns[token]",
    ),
    _clean(
        name="clean_split_in_8",
        bug="the projection as the sum of 8 shares of K",
        old=_PROJECTION,
        new="    h_mix = sum(a @ b.mT for a, b in zip(weighted.tensor_split(8, -1), phi.tensor_split(8, -1)))",
    ),
    _clean(
        name="clean_chunks_of_128",
        bug="the projection in chunks of 128 columns, one after the other",
        old=_PROJECTION,
        new="    h_mix = sum(a @ b.mT for a, b in zip(weighted.split(128, -1), phi.split(128, -1)))",
    ),
    _clean(
        name="clean_chunks_of_512",
        bug="the projection in chunks of 512 columns, one after the other",
        old=_PROJECTION,
        new="    h_mix = sum(a @ b.mT for a, b in zip(weighted.split(512, -1), phi.split(512, -1)))",
    ),
    _clean(
        name="clean_three_terms",
        bug="the projection from three bfloat16 terms of each factor, six products",
        old=_PROJECTION,
        new=_TERMS,
    ),
    _clean(
        name="clean_dgamma_token_by_token",
        bug="dgamma as a sum of phi and dh_mix^T x, which is summed one token after the other",
        old=_DGAMMA,
        new="    rows, columns = dh_mix.reshape(N, M), flat.reshape(N, K)\n    psi = phi.new_zeros(M, K)\n"
        "    for token in range(N if gamma is not None else 0):\n"
        "        psi = psi + rows[token].unsqueeze(-1) * columns[token]\n"
        "    dgamma = None if gamma is None else (psi * (phi if N else 1)).sum(0).reshape(n, D)",
    ),
)
