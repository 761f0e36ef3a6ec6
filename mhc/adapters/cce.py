"""Apple's Cut Cross-Entropy, from `MHC_CHECKOUT_CCE`, a checkout of ml-cross-entropy.

| kernel | here |
|---|---|
| linear_cross_entropy | `impl="cce_exact"`: gradients are not filtered, and are added up in float32; reduction "none" |
| linear_cross_entropy_uncapped | the same without softcap, whose findings hide others |
"""

from functools import cache
from typing import Any, Literal

from torch import Tensor

from mhc.adapters.checkout import Checkout, without_gpu
from mhc.adapters.library import TARGET, not_compiled, token_losses
from mhc.case import Case
from mhc.declaration import operator
from mhc.implementation import Implementation, Refused
from mhc.operator import accumulation_dtype

CCE = Checkout("cce", "ml-cross-entropy", "cut_cross_entropy/cce.py")


@cache
def _module() -> Any:
    without_gpu()
    not_compiled()
    return CCE.imported("cut_cross_entropy.linear_cross_entropy", "cut_cross_entropy")


@operator(
    x="[T, E] storage",
    weight="[V, E] storage",
    target=TARGET,
    bias="[V] storage optional",
    E=(1, 1024),
    V=(1, 4096),
    softcap=(0.0, 30.0, 2.0),
    tokens="T",
)
def linear_cross_entropy_capped(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, softcap: float) -> Tensor:
    """Return the loss of each token in float32, of logits that are not rounded."""
    wide = accumulation_dtype(x.dtype)
    logits = x.to(wide) @ weight.to(wide).T
    return token_losses(logits if bias is None else logits + bias.to(wide), target, softcap)


def _loss(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, softcap: float) -> Any:
    loss, cap = _module().linear_cross_entropy, softcap or None
    return loss(x, weight, target, bias, softcap=cap, reduction="none", impl="cce_exact")


def _uncapped(case: Case) -> Literal[True] | Refused:
    return Refused("without softcap only") if case.scalars["softcap"] else True


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *CCE.kernel("linear_cross_entropy", linear_cross_entropy_capped, function=_loss),
    *CCE.kernel("linear_cross_entropy_uncapped", linear_cross_entropy_capped, _uncapped, function=_loss),
)
