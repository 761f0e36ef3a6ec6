"""Mutants of precision: factors and sums with fewer digits than float32, most of them only at model sizes.

A kernel may switch to a faster path for large tensors, which small cases never take. The errors stay inside the bound of a
long sum; only their average reveals them. In bfloat16 and float16, x itself is exact in most of them.
"""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula", hidden=True)
_clean = partial(Mutant, base="manual", file="formula", clean=True)

_PROJECTION = "    h_mix = weighted @ phi.mT"
_DPHI = "    dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)"
_DVEC = "    dvec_mm = dh_mix @ phi"
_SQUARES = "flat.square().mean(-1)"
_DBIAS = "    dbias = dgate.reshape(N, M).sum(0)"
_DGAMMA = "    dgamma = None if gamma is None else (flat * dvec_mm).reshape(N, K).sum(0).reshape(n, D)"


def _with_fewer_digits(name: str, bug: str, line: str, digits: int, condition: str = "True") -> Mutant:
    """Return a mutant that rounds both factors of the product in `line` to `digits` of float32's 24 binary digits."""
    result, product = line.split(" = ")
    a, b = product.split(" @ ")
    shift = f"{2.0 ** (24 - digits) + 1!r}"
    cut = f"    cut = lambda v: v * {shift} - (v * {shift} - v)\n"
    return _formula(name=name, bug=bug, old=line, new=f"{cut}{result} = cut({a}) @ cut({b}) if {condition} else {product}")


def _in_two_terms(name: str, bug: str, line: str, condition: str = "True") -> Mutant:
    """Return a mutant that computes the product in `line` from two bfloat16 terms of each factor."""
    result, product = line.split(" = ")
    a, b = product.split(" @ ")
    new = (
        "    low = lambda v: v.to(torch.bfloat16).to(v.dtype)\n"
        f"    (a0, a1), (b0, b1) = ((low(v), low(v - low(v))) for v in ({a}, {b}))\n"
        f"{result} = a0 @ b0 + (a0 @ b1 + a1 @ b0) if {condition} else {product}"
    )
    return _formula(name=name, bug=bug, old=line, new=new)


PRECISION: tuple[Mutant, ...] = (
    _with_fewer_digits(
        "tf32_projection_wide", "both factors of the projection in TF32 from K = 4096 on", _PROJECTION, 11, "K >= 4096"
    ),
    _with_fewer_digits("tf32_dphi", "both factors of dphi in TF32", _DPHI, 11),
    _with_fewer_digits("tf32_dphi_long", "both factors of dphi in TF32 from 2,048 tokens on", _DPHI, 11, "N >= 2048"),
    _with_fewer_digits("tf32_dvec_wide", "both factors of dh_mix phi in TF32 from K = 4096 on", _DVEC, 11, "K >= 4096"),
    _in_two_terms(
        "two_terms_projection_wide", "the projection from two bfloat16 terms from K = 4096 on", _PROJECTION, "K >= 4096"
    ),
    _in_two_terms("two_terms_dphi_long", "dphi from two bfloat16 terms from 2,048 tokens on", _DPHI, "N >= 2048"),
    _in_two_terms("two_terms_dvec", "dh_mix phi from two bfloat16 terms", _DVEC),
    _with_fewer_digits(
        "digits_16_projection_wide",
        "both factors of the projection rounded to 16 digits from K = 4096 on",
        _PROJECTION,
        16,
        "K >= 4096",
    ),
    _with_fewer_digits(
        "digits_16_dphi_long", "both factors of dphi rounded to 16 digits from 2,048 tokens on", _DPHI, 16, "N >= 2048"
    ),
    _with_fewer_digits("digits_16_dvec", "both factors of dh_mix phi rounded to 16 digits", _DVEC, 16),
    _with_fewer_digits("digits_18_projection", "both factors of the projection rounded to 18 digits", _PROJECTION, 18),
    _with_fewer_digits(
        "digits_18_projection_wide",
        "both factors of the projection rounded to 18 digits from K = 1024 on",
        _PROJECTION,
        18,
        "K >= 1024",
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
    "        h_mix = a0 @ b0 + ((f0 @ b1 + a1 @ g0) + (f0 @ b2 + a1 @ b1 + a2 @ g0) / 256) / 256\n"
    # a term below 2^-134 is 0, and 0 times infinity is NaN: the whole factors decide what is not finite
    "        h_mix = torch.where(h_mix.isfinite(), h_mix, weighted @ phi.mT)"
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
