"""TileLang's example of mHC, from `MHC_CHECKOUT_TILELANG`, a checkout: four streams, 20 iterations, phi in TF32; on CUDA."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout
from mhc.adapters.hyper_connections import BLOCKS, FOUR, hc_post, hc_pre
from mhc.implementation import Implementation

_EXAMPLE = "examples/deepseek_mhc"
EXAMPLE = Checkout("tilelang", "TileLang", f"{_EXAMPLE}/example_mhc_pre.py")


@cache
def _file(name: str) -> Any:
    return EXAMPLE.load(f"{_EXAMPLE}/example_mhc_{name}.py")


def _post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    f, x, post, comb = (one.contiguous() for one in (f, x, h_post, h_res))
    y = torch.empty_like(x)
    _file("post").mhc_post_tilelang(comb, x, post, f, y, *x.shape[1:])
    return y


def _pre(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    x, phi, scale, base = (one.contiguous() for one in (x, phi, scale, base))
    post, comb, y = _file("pre").mhc_pre(x, phi, scale, base, eps, eps, eps, 2.0, 20)
    return post.squeeze(-1), comb, y


PRE = hc_pre("hc_pre_blocks", FOUR, **BLOCKS)
_WIDE: dict[str, Any] = {"dtypes": ("bfloat16",)}
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *EXAMPLE.on(("cuda",), "mhc_post", hc_post, forward=_post, **_WIDE),
    *EXAMPLE.on(("cuda",), "mhc_pre", PRE, forward=_pre, precision={"matmul": "tf32"}, **_WIDE),
)
