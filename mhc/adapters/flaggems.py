"""FlagGems' Triton kernels of mHC, from `MHC_CHECKOUT_FLAGGEMS`, a checkout; without gradients, for inference.

| kernel | here |
|---|---|
| hc_split | its wrapper launches it on CUDA alone: elsewhere it is launched as there |
| mhc_post, mhc_pre, hc_head | on CUDA, bfloat16 |
| mhc_pre | phi is rounded to bfloat16 for its product, which is declared |
"""

from functools import cache
from typing import Any

from torch import Tensor

from mhc.adapters.checkout import Checkout
from mhc.adapters.hyper_connections import HC_PRE, hc_head, hc_split
from mhc.implementation import Implementation
from mhc.operators.mhc_post import mhc_post_transposed

_MHC = "src/flag_gems/fused/mhc"
GEMS = Checkout("flaggems", "FlagGems", f"{_MHC}/mhc_post.py")


@cache
def _file(name: str) -> Any:
    return GEMS.load(f"{_MHC}/{name}.py")


def _split(mixes: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    module, n = _file("hc_split_sinkhorn"), int((base.shape[0] + 1) ** 0.5) - 1
    if mixes.is_cuda:
        return module.hc_split_sinkhorn(mixes, scale, base, n, 20, eps)
    tokens, mixes = mixes.shape[0], mixes.contiguous()
    pre, post, comb = (mixes.new_empty(tokens, *shape) for shape in ((n,), (n,), (n, n)))
    arguments = (mixes, scale, base, pre, post, comb, tokens)
    if n == 4:
        module.mhc_split_sinkhorn_kernel_hcmult_4[(-(-tokens // 16),)](*arguments, BLOCK_N=16, SINKHORN_ITERS=20)
    else:
        kernel = module.mhc_split_sinkhorn_kernel_generic
        kernel[(tokens,)](*arguments, SINKHORN_ITERS=20, HC_MULT=n, MIX_HC=base.shape[0])
    return pre, post, comb


def _post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    n, C = x.shape[-2:]
    f, post, comb = f.reshape(-1, C), h_post.reshape(-1, n), h_res.reshape(-1, n, n)
    return _file("mhc_post").mhc_post(f, x.reshape(-1, n, C), post, comb).view(x.shape)


def _pre(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    post, comb, y = _file("mhc_pre").mhc_pre(x, phi, scale, base, eps, eps, eps, 2.0, 20)
    return post.squeeze(-1), comb, y


def _head(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    y, (_, n, C) = x.new_empty(x.shape[0], x.shape[-1]), x.shape
    return _file("hc_head_fused_kernel").hc_head_fused_kernel(x, phi, scale, base, y, C, eps, eps, n)


_WIDE: dict[str, Any] = {"autotuned": True, "dtypes": ("bfloat16",)}
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *GEMS.kernel("hc_split", hc_split, forward=_split),
    *GEMS.on(("cuda",), "mhc_post", mhc_post_transposed, forward=_post, **_WIDE),
    *GEMS.on(("cuda",), "hc_head", hc_head, forward=_head, **_WIDE),
    *GEMS.on(("cuda",), "mhc_pre", HC_PRE, forward=_pre, precision={"matmul": "bfloat16"}, **_WIDE),
)
