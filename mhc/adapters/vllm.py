"""vLLM's Triton kernels of mHC, from `MHC_CHECKOUT_VLLM`, a checkout; without gradients, for inference.

| kernel | here |
|---|---|
| collapse | it asserts bfloat16: for other dtypes its kernel is launched as it does |
| hc_head | x / rms(x) is rounded to the dtype of x before the product with phi |
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, stand_in
from mhc.adapters.hyper_connections import HEAD, hc_collapse
from mhc.declaration import operator
from mhc.implementation import Implementation

_FILE = "vllm/model_executor/kernels/mhc/triton.py"
VLLM = Checkout("vllm", "vLLM", _FILE)


@cache
def _module() -> Any:
    import triton  # noqa: PLC0415 - in the worker, after the environment is set

    stand_ins = {
        "vllm.triton_utils": stand_in(triton=triton, tl=triton.language),
        "vllm.utils.torch_utils": stand_in(direct_register_custom_op=lambda **_: None),
    }
    return VLLM.load(_FILE, stand_ins)


def _collapse(x: Tensor, pre: Tensor) -> Any:
    if x.dtype == torch.bfloat16:
        return _module().hc_collapse_triton(x, pre)
    (T, n, C), y = x.shape, x.new_empty(x.shape[0], x.shape[-1])
    strides = (*pre.stride(), *x.stride(), *y.stride())
    _module()._hc_head_reduce_store_kernel[(T, -(-C // 1024))](pre, x, y, C, n, *strides, BLOCK_H=1024, num_warps=4)
    return y


@operator(**HEAD)
def vllm_hc_head(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    """Return sum_i pre[i] x[i], pre of x / rms(x), rounded."""
    v = x.flatten(1).float()
    normed = (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    pre = ((normed.float() @ phi.T) * scale + base).sigmoid() + eps
    return hc_collapse(x, pre)


def _head(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    y = x.new_empty(x.shape[0], x.shape[-1])
    _module().hc_head_reduce_triton_kernel(x, phi, scale, base, y, eps, eps)
    return y


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *VLLM.kernel("collapse", hc_collapse, forward=_collapse),
    *VLLM.kernel("hc_head", vllm_hc_head, forward=_head),
)
