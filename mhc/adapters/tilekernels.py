"""DeepSeek's TileKernels of mHC, from `MHC_CHECKOUT_TILEKERNELS`, a checkout: TileLang 0.1.9 or newer, on sm_90 and sm_100.

Four streams; 10 iterations, and 1 in place of 2 as the factor of post. phi is rounded to TF32, which is declared.
Of the backward of `mhc_pre_norm_fn`, what it keeps for that of `mhc_post` is off (`fuse_grad_acc`).
"""

import importlib
from functools import cache
from typing import Any

from torch import Tensor

from mhc.adapters.checkout import Checkout
from mhc.adapters.hyper_connections import BLOCKS, FOUR, hc_collapse_of_four, hc_mixes, hc_post, hc_pre
from mhc.implementation import Implementation
from mhc.operators.mhc_sinkhorn import mhc_sinkhorn_tilekernels

TILES = Checkout("tilekernels", "TileKernels", "tile_kernels/mhc/post_kernel.py")


@cache
def _functional() -> Any:
    TILES.importable("tile_kernels", "tile_kernels")
    TILES.importable("tile_kernels.modeling", "tile_kernels/modeling")
    return importlib.import_module("tile_kernels.modeling.mhc.functional")


def _sinkhorn(logits: Tensor, *, eps: float) -> Any:
    return _functional().sinkhorn_normalize(logits, 10, eps)


def _post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    f, x, post, comb = (one.contiguous().unsqueeze(0) for one in (f, x, h_post, h_res))
    return _functional().mhc_post(f, x, post.unsqueeze(-1), comb).squeeze(0)


def _collapse(x: Tensor, pre: Tensor) -> Any:
    return _functional().mhc_pre_apply_mix(x.contiguous(), pre.contiguous().unsqueeze(-1))


def _mixes(x: Tensor, phi: Tensor, *, eps: float) -> Any:
    x, phi = x.contiguous().unsqueeze(0), phi.contiguous()
    return _functional().mhc_pre_norm_fn(x, phi, None, eps, fuse_grad_acc=False).squeeze(0)


def _pre(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    x, phi, scale, base = (one.contiguous() for one in (x, phi, scale, base))
    options = {"norm_eps": eps, "pre_eps": eps, "sinkhorn_eps": eps}
    y, (post, comb) = _functional().mhc_pre(x, phi, scale, base, **options)
    return post.squeeze(-1), comb, y


PRE = hc_pre("hc_pre_tilekernels", FOUR, sinkhorn=mhc_sinkhorn_tilekernels, factor=1.0, **BLOCKS)
_WIDE: dict[str, Any] = {"dtypes": ("bfloat16",)}
_TF32: dict[str, Any] = {**_WIDE, "precision": {"matmul": "tf32"}}
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *TILES.on(("cuda",), "sinkhorn", mhc_sinkhorn_tilekernels, function=_sinkhorn),
    *TILES.on(("cuda",), "mhc_post", hc_post, function=_post, **_WIDE),
    *TILES.on(("cuda",), "collapse", hc_collapse_of_four, function=_collapse, **_WIDE),
    *TILES.on(("cuda",), "mixes", hc_mixes, function=_mixes, **_TF32),
    *TILES.on(("cuda",), "mhc_pre", PRE, forward=_pre, **_TF32),
)
