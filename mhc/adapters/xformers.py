"""xFormers' `index_select_cat` in Triton, from `MHC_CHECKOUT_XFORMERS`, a checkout.

One source; different indices, fewer than rows, as its docstring and its check say. It asks for tensors on a GPU:
without one, `is_cuda` is True while it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, stand_in
from mhc.declaration import operator
from mhc.implementation import Implementation

XFORMERS = Checkout("xformers", "xFormers", "xformers/ops/indexing.py")


@cache
def _function() -> Any:
    kernels = XFORMERS.imported("xformers.ops._triton.k_index_select_cat", "xformers xformers.ops xformers.ops._triton")
    both = {one: getattr(kernels, one) for one in ("index_select_cat_fwd", "index_select_cat_bwd")}
    stand_ins = {
        "xformers.ops._triton": stand_in(**both, scaled_index_add_fwd=None, scaled_index_add_bwd=None),
        "xformers.ops.common": stand_in(BaseOperator=object, register_operator=lambda one: one),
    }
    return XFORMERS.imported("xformers.ops.indexing", "xformers xformers.ops", stand_ins).index_select_cat


@contextmanager
def _on_gpu() -> Iterator[None]:
    """Without a GPU, let tensors say for the block that they are on one."""
    if torch.cuda.is_available():
        yield
        return
    setattr(Tensor, "is_cuda", property(lambda _: True))  # noqa: B010
    try:
        yield
    finally:
        delattr(Tensor, "is_cuda")


@operator(source="[T, D] storage", order="[T] int64 permutation", T=(2, 256), D=(1, 2048), F="T//2*D")
def index_select_flat(source: Tensor, order: Tensor) -> Tensor:
    """Return the rows that the first half of an order names, one after the other."""
    return source[order[: source.shape[0] // 2]].flatten()


def _select(source: Tensor, order: Tensor) -> Any:
    return _function()([source], [order[: source.shape[0] // 2].contiguous()])


def _forward(source: Tensor, order: Tensor) -> Any:
    with _on_gpu(), torch.no_grad():
        return _select(source, order)


def _backward(source: Tensor, order: Tensor, dy: Tensor) -> Any:
    with _on_gpu(), torch.enable_grad():
        source = source.detach().requires_grad_()
        return torch.autograd.grad(_select(source, order), source, dy)


IMPLEMENTATIONS: tuple[Implementation, ...] = XFORMERS.kernel(
    "index_select_cat", index_select_flat, forward=_forward, backward=_backward
)
