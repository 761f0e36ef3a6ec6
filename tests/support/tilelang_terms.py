"""What bfloat16 terms make of numbers below 2^-126: TileLang's products of bfloat16 and float16 x, emulated on the CPU.

    python -m tests.support.tilelang_terms      the table of docs/tilelang/README.md

The terms are the kernels' (`bf16_split` and `bwd_gates` of the TileLang kernels); everything else is float64.
Sums of products are exact, or as the tensor cores of an H200 are inferred to make them: 16 products at a time, aligned to
the largest by the exponent fields of their factors, -126 of a subnormal one, and cut off 25 binary digits below it.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mhc import Case, Implementation, materialise, observe, reference
from mhc.case import with_tensor
from mhc.operators.mhc_pre import formula
from mhc.oracles.bound import tolerances
from mhc.oracles.judge import judge
from mhc.oracles.verdict import Status
from tests.support.helpers import scaled_case

DIGITS = 25
_LARGEST = torch.finfo(torch.bfloat16).max

Multiply = Callable[[Tensor, Tensor], Tensor]


def terms(v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """v0, v1 * 2^8 and v2 * 2^16 of float32 v, and v0 with zeros for what is not finite."""
    finite = v.isfinite()
    v0 = torch.where(finite, _nearest(v), v)
    rest = torch.where(finite, (v - v0) * 256, 0.0)
    v1 = _nearest(rest)
    return v0, v1, _nearest((rest - v1) * 256), torch.where(finite, v0, 0.0)


def _nearest(v: Tensor) -> Tensor:
    return v.clamp(-_LARGEST, _LARGEST).bfloat16().float()


def exact(a: Tensor, b: Tensor) -> Tensor:
    return a.double() @ b.double()


def aligned(a: Tensor, b: Tensor) -> Tensor:
    """a @ b as a tensor core is inferred to make it."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], 16):
        left, right = a[:, k : k + 16, None].double(), b[None, k : k + 16].double()
        products = torch.cat([left * right, total[:, None]], 1)
        fields = torch.cat([_exponent(left, -126) + _exponent(right, -126), _exponent(total[:, None], -149)], 1)
        top = torch.where(products == 0, -1000, fields).amax(1, keepdim=True)
        unit = torch.ldexp(torch.ones_like(top, dtype=torch.float64), top - DIGITS)
        cut = torch.where(products.isfinite(), (products / unit).trunc() * unit, products)
        total = cut.sum(1).float().double()
    return total


def _exponent(v: Tensor, least: int) -> Tensor:
    return (torch.frexp(v.abs()).exponent - 1).clamp(min=least)


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, multiply: Multiply, **eps: float
) -> list[Tensor]:
    """The forward with h_mix as `general` makes it: orders 0, 1 and 2 apart, of three terms of phi * gamma."""
    B, S, n, D = x.shape
    wide = [None if one is None else one.double() for one in (phi, alpha, bias, gamma)]
    h_in, *rest = formula.forward(x.double(), *wide, **eps)
    h_post, h_res, inv_rms, _, h_pre = (one.float() for one in rest)
    weights = terms(phi if gamma is None else phi * gamma.reshape(-1))[:3]
    x0, x1, _, _ = terms(x.float().reshape(B * S, n * D))
    orders = [torch.zeros(B * S, phi.shape[0]) for _ in range(3)]
    for i, left in enumerate((x0, x1) if x.dtype == torch.float16 else (x0,)):
        for j, right in enumerate(weights[: len(weights) - i]):
            orders[i + j] = orders[i + j] + multiply(left, right.mT).float()
    low = (orders[1] + orders[2] / 256) / 256
    h_mix = orders[0] + torch.where(low.isfinite(), low, 0.0)
    return [h_in.to(x.dtype), h_post, h_res, inv_rms, h_mix.reshape(B, S, -1), h_pre]


def backward(x: Tensor, *arguments: Tensor | None, multiply: Multiply, **eps: float) -> list[Tensor | None]:
    """The backward with dx and psi in terms."""
    B, S, n, D = x.shape
    N, K = B * S, n * D
    phi, alpha, _, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res = (
        torch.empty(0) if one is None else one for one in arguments[:10]
    )
    gamma = arguments[10]
    given = [None if one is None else one.double() for one in (x, *arguments)]
    right = formula.backward(*given, **eps)
    v, flat = x.float(), x.float().reshape(N, K)
    dh = dh_in.float().unsqueeze(-2)
    s = h_pre - eps["hc_eps"]
    dh_pre = (dh.double() * v.double()).sum(-1).float()
    dt = torch.cat(
        [alpha[0] * (dh_pre * s * (1 - s)), alpha[1] * (dh_post * h_post * (1 - h_post / 2)), alpha[2] * dh_res.flatten(2)],
        -1,
    )
    v0, v1, v2, f0 = terms((dt * inv_rms.unsqueeze(-1)).reshape(N, -1))
    norms = torch.ones(K) if gamma is None else gamma.reshape(K)
    w0, w1, w2, g0 = terms(phi * norms)
    blocks = [w0, g0 / 2**8, g0 / 2**16, w1 / 2**8, w1 / 2**16, w2 / 2**16]
    dvec = multiply(torch.cat([v0, v1, v2, f0, v1, f0], 1), torch.cat([one.bfloat16().float() for one in blocks])).float()
    coefficient = ((dt.double() * h_mix.double()).sum(-1) * inv_rms.double() ** 3 / K).float()
    dx = dvec.reshape(x.shape) + (h_pre.unsqueeze(-1) * dh - coefficient[..., None, None] * v)
    x0, x1, _, _ = terms(flat)
    psi, lower = multiply(v0.mT, x0), multiply(v1.mT, x0) / 2**8 + multiply(v2.mT, x0) / 2**16
    if x.dtype == torch.float16:
        lower = lower + multiply(f0.mT, x1) / 2**8 + multiply(v1.mT, x1) / 2**16
    psi = torch.where(psi.isfinite(), psi + lower, psi)
    dgamma = None if gamma is None else (psi * phi.double()).sum(0).float().reshape(n, D)
    return [dx.to(x.dtype), (psi * norms.double()).float(), right.dalpha.float(), right.dbias.float(), dgamma]


def worst(case: Case, subject: str, multiply: Multiply) -> float:
    """Of one output, |error| / bound; infinity where a class is wrong."""
    here: Mapping[str, Any] = {
        "forward": partial(forward, multiply=multiply),
        "backward": partial(backward, multiply=multiply),
    }
    made = Implementation(name="terms", dtypes=("bfloat16", "float16"), **here)
    inputs = materialise(case)
    right = reference(inputs)
    verdicts = judge(observe(made, inputs, right.saved), tolerances(inputs, right))
    mine = [one for one in verdicts if one.subject == subject]
    if any(one.oracle == "nonfinite" and one.status is Status.FAIL for one in mine):
        return math.inf
    return max((one.ratio for one in mine if one.ratio is not None), default=0.0)


def _case(N: int, n: int, D: int, *, dtype: str = "bfloat16", gamma: bool = True, **recipes: Any) -> Case:
    absent = frozenset[str]() if gamma else frozenset({"gamma"})
    case = scaled_case(1.0, B=1, S=N, n=n, D=D, dtype=dtype, absent=absent)
    for name, recipe in recipes.items():
        case = with_tensor(case, name, **(recipe if isinstance(recipe, dict) else {"scale": recipe}))
    return case


def _constant(scale: float) -> dict[str, Any]:
    return {"kind": "constant", "scale": scale}


_ZERO = {"kind": "zero"}
_NO_UPSTREAM: dict[str, Any] = {"dh_in": _ZERO, "dh_post": _ZERO}
_INFINITE_X = with_tensor(_case(24, 3, 16, phi=_constant(2.0**-140)), "x", literals=(((0, 1, 1, 3), math.inf),))
_FAINT_X = with_tensor(
    _case(
        *(2, 1, 1), gamma=False, phi=_ZERO, bias=_ZERO, alpha={"kind": "zero", "literals": (((2,), 1.0),)}, **_NO_UPSTREAM,
        dh_res={"kind": "zero", "literals": (((0, 0, 0, 0), 256.0), ((0, 1, 0, 0), 2.0**-13))},
    ), "x", kind="zero", literals=(((0, 0, 0, 0), 2.0**-132), ((0, 1, 0, 0), 2.0**-129)),
)  # fmt: skip

CASES: Mapping[str, tuple[Case, str]] = {
    "phi of 2^-140, one x infinite": (_INFINITE_X, "h_mix"),
    "phi of 2^-140, one dh_res infinite": (
        _case(24, 3, 16, phi=_constant(2.0**-140), dh_res={"literals": (((0, 1, 1, 2), math.inf),)}),
        "dx",
    ),
    "phi of 2^-116, dh_res and dh_post of 2^10, dh_in 0": (
        _case(24, 3, 16, phi=2.0**-116, dh_in=_ZERO, dh_res=2.0**10, dh_post=2.0**10),
        "dx",
    ),
    "phi of 2^-124, the same": (_case(24, 3, 16, phi=2.0**-124, dh_in=_ZERO, dh_res=2.0**10, dh_post=2.0**10), "dx"),
    "K = 2048, phi 1.3 * 2^-134 everywhere, x 1, no gamma": (
        _case(4, 2, 1024, gamma=False, phi=_constant(1.3 * 2.0**-134), x=_constant(1.0)),
        "h_mix",
    ),
    "K = 2048, phi of 2^-140, x of 2^12, no gamma": (_case(4, 2, 1024, gamma=False, phi=2.0**-140, x=4096.0), "h_mix"),
    "the same, with gamma": (_case(4, 2, 1024, phi=2.0**-140, x=4096.0), "h_mix"),
    "N = 2048, dh_res 1.3 * 2^-137 and x 1 everywhere": (
        _case(2048, 1, 8, dh_res=_constant(1.3 * 2.0**-137), x=_constant(1.0), **_NO_UPSTREAM),
        "dphi",
    ),
    "float16, phi of 2^-140, x of 2^12, no gamma": (
        _case(24, 3, 16, dtype="float16", gamma=False, phi=2.0**-140, x=4096.0),
        "h_mix",
    ),
    "float16, phi of 2^-140, x of 1, no gamma": (_case(24, 3, 16, dtype="float16", gamma=False, phi=2.0**-140), "h_mix"),
    "`8a0b6729` with bfloat16 x": (_FAINT_X, "dphi"),
    "phi of 2^-100": (_case(24, 3, 16, phi=2.0**-100, dh_in=_ZERO), "dx"),
}


INSIDE = (
    "K = 2048, phi 1.3 * 2^-134 everywhere, x 1, no gamma",
    "K = 2048, phi of 2^-140, x of 2^12, no gamma",
    "the same, with gamma",
    "N = 2048, dh_res 1.3 * 2^-137 and x 1 everywhere",
    "float16, phi of 2^-140, x of 1, no gamma",
    "`8a0b6729` with bfloat16 x",
    "phi of 2^-100",
)
"""Of `CASES`, those that are as they should be."""


def main() -> None:
    print("| case | output | exact sums | sums as inferred |\n|---|---|---|---|")
    for name, (case, subject) in CASES.items():
        told = [worst(case, subject, multiply) for multiply in (exact, aligned)]
        print(f"| {name} | {subject} | " + " | ".join("class" if one == math.inf else f"{one:.3g}" for one in told) + " |")


if __name__ == "__main__":
    main()
