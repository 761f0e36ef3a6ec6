"""SGLang's kernels of mHC, from `MHC_CHECKOUT_SGLANG`, a checkout.

| kernel | here |
|---|---|
| mhc_post, hc_head, hc_split | Triton; without gradients, for inference |
| mhc_post | n = 4; contiguous, as it asserts. It also asserts bfloat16: for other dtypes its kernel is launched as it does |
| hc_split | its port to Triton, which it takes on gfx1250 |
| hc_split_tilelang, mhc_post_tilelang | TileLang, on CUDA, bfloat16 |
"""

from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, stand_in
from mhc.adapters.hyper_connections import hc_head, hc_post, hc_split
from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_post import mhc_post_transposed

_LAYERNORM = "python/sglang/kernels/ops/layernorm"
SGLANG = Checkout("sglang", "SGLang", f"{_LAYERNORM}/mhc.py")


@cache
def _file(name: str) -> Any:
    return SGLANG.load(f"{_LAYERNORM}/{name}.py")


def _no() -> bool:
    return False


@cache
def _mhc() -> Any:
    """Return the module with the TileLang kernels; it asks for the platform and the configuration."""
    off = SimpleNamespace(get=_no)
    recent = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
    stand_ins: dict[str, dict[str, Any]] = {
        "sglang.kernels.jit.utils": {"is_arch_support_pdl": lambda: recent},
        "sglang.srt.distributed.device_communicators.pynccl_allocator": {
            "use_symmetric_memory": lambda *_, **__: nullcontext()
        },
        "sglang.srt.environ": {"envs": SimpleNamespace(SGLANG_OPT_DEEPGEMM_HC_PRENORM=off, SGLANG_USE_AITER=off)},
        "sglang.srt.layers.attention.dsa.utils": {"is_dsa_prefill_cp_interleave": _no},
        "sglang.srt.layers.dp_attention": {"is_allocation_symmetric": _no},
        "sglang.srt.layers.utils.common": {"strict_contiguous": lambda x: x.contiguous()},
        "sglang.srt.runtime_context": {
            "get_parallel": lambda: SimpleNamespace(tp_group=None),
            "get_platform": SimpleNamespace,
        },
        "sglang.srt.utils": {"is_gfx95_supported": _no, "is_hip": _no, "is_sm120_supported": _no},
        "sglang.srt.utils.common": {"is_gfx1250_supported": _no},
    }
    return SGLANG.load(f"{_LAYERNORM}/mhc.py", {name: stand_in(**names) for name, names in stand_ins.items()})


def _four(case: Case) -> Literal[True] | Refused:
    return True if case.sizes["n"] == 4 else Refused("n must be 4")


def _post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    C, (f, x, post, comb) = x.shape[-1], (one.contiguous() for one in (f, x, h_post, h_res))
    tokens = f.numel() // C
    if x.dtype == torch.bfloat16:
        y = _file("mhc_post_split_h").mhc_post_split_h(f.view(tokens, C), x.view(tokens, 4, C), post, comb)
        return y.view(x.shape)
    y, block = torch.empty_like(x), 128 if tokens <= 8 else 1024
    _file("mhc_post_split_h")._mhc_post_split_h_kernel[(tokens, -(-C // block))](f, x, post, comb, y, H=C, B=block)
    return y


def _head(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    x, phi, scale, base = (one.contiguous() for one in (x, phi, scale, base))
    return _file("mhc_head").fused_hc_head(x, phi, scale, base, eps, eps)


def _streams(base: Tensor) -> int:
    return int((base.shape[0] + 1) ** 0.5) - 1


def _split(mixes: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    found = _mhc()._hc_split_sinkhorn_triton(mixes.unsqueeze(0), scale, base, _streams(base), 20, eps)
    return tuple(one.squeeze(0) for one in found)


def _split_tilelang(mixes: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Any:
    mixes, scale, base = (one.contiguous() for one in (mixes, scale, base))
    found = _mhc().hc_split_sinkhorn(mixes.unsqueeze(0), scale, base, _streams(base), 20, eps)
    return tuple(one.squeeze(0) for one in found)


def _post_tilelang(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    f, x, post, comb = (one.contiguous() for one in (f, x, h_post, h_res))
    return _mhc().mhc_post(f, x, post.unsqueeze(-1), comb)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *SGLANG.kernel("mhc_post", mhc_post_transposed, _four, forward=_post),
    *SGLANG.kernel("hc_head", hc_head, forward=_head),
    *SGLANG.kernel("hc_split", hc_split, forward=_split),
    *SGLANG.on(("cuda",), "hc_split_tilelang", hc_split, forward=_split_tilelang),
    *SGLANG.on(("cuda",), "mhc_post_tilelang", hc_post, forward=_post_tilelang, dtypes=("bfloat16",)),
)
