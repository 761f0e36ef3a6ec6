"""`mhc_pre`: the call a model makes. Differentiable; runs on whichever implementation supports the input."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mhc.arguments import check_arguments
from mhc.implementation import Implementation, Refused
from mhc.loading import load
from mhc.operators.mhc_pre.calls import NAMES, case_of, require, run_forward
from mhc.operators.mhc_pre.registry import IMPLEMENTATIONS
from mhc.operators.mhc_pre.table import PRE


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which implementation `mhc_pre` takes for an input, and why not the faster ones."""

    implementation: Implementation
    refused: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.implementation.name


def choose(
    x: Float[Tensor, "B S n D"],
    gamma: Float[Tensor, "n D"] | None = None,
    *,
    impl: str | Implementation = "auto",
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> Choice:
    """Return the implementation that `mhc_pre` takes for these arguments.

    Args:
        x, gamma, norm_eps, hc_eps: as for `mhc_pre`; only shapes, dtype and device matter.
        impl: "auto", or an implementation, or whatever `--impl` takes.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        ImplementationError: `impl` names nothing that can be loaded.
        Refused: the one asked for does not take this input, or with "auto" none does; with the reasons.
    """
    check_arguments(PRE, {"x": x, "gamma": gamma}, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    return _choose(x, gamma, impl, norm_eps, hc_eps)


def _choose(x: Tensor, gamma: Tensor | None, impl: str | Implementation, norm_eps: float, hc_eps: float) -> Choice:
    """Return the same as `choose`, for arguments that are checked."""
    if isinstance(impl, Implementation) or impl != "auto":
        implementation = impl if isinstance(impl, Implementation) else _named(impl)
        require(implementation, x, gamma, {"norm_eps": norm_eps, "hc_eps": hc_eps})
        return Choice(implementation=implementation, refused={})
    return _choose_auto(x.shape, x.dtype, gamma is None, float(norm_eps), float(hc_eps), x.device.type)


@functools.lru_cache(maxsize=64)
def _named(spec: str) -> Implementation:
    return load(spec, IMPLEMENTATIONS)


@functools.lru_cache(maxsize=4096)
def _choose_auto(
    shape: torch.Size, dtype: torch.dtype, no_gamma: bool, norm_eps: float, hc_eps: float, device: str
) -> Choice:
    case = case_of(*shape, NAMES[dtype], no_gamma, norm_eps, hc_eps)
    refused: dict[str, str] = {}
    for implementation in IMPLEMENTATIONS:
        refusal = implementation.refusal(case, device)
        if refusal is None:
            return Choice(implementation=implementation, refused=refused)
        refused[implementation.name] = refusal.reason
    raise Refused("; ".join(f"{name}: {reason}" for name, reason in refused.items()))


def mhc_pre(
    x: Float[Tensor, "B S n D"],
    phi: Float[Tensor, "M K"],
    alpha: Float[Tensor, "3"],
    bias: Float[Tensor, "M"],
    gamma: Float[Tensor, "n D"] | None = None,
    *,
    impl: str | Implementation = "auto",
    outflag: bool = False,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> tuple[Tensor, ...]:
    """Compute mHC Forward Pre, differentiable, on the fastest implementation that supports the input (`choose` says which).

    The equations, shapes and dtypes are those of `mhc_forward_pre`. Gradients flow to x, phi, alpha, bias and gamma from
    h_in, h_post and h_res; what `outflag` adds carries no gradient. Second derivatives are not supported.

    Args:
        impl: "auto", an `Implementation`, the name of one, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: the implementation asked for does not take this input. There is no fallback.
    """
    arguments = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}
    check_arguments(PRE, arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    implementation = _choose(x, gamma, impl, norm_eps, hc_eps).implementation
    results = run_forward(implementation, (x, phi, alpha, bias, gamma), {"norm_eps": norm_eps, "hc_eps": hc_eps})
    return tuple(results) if outflag else tuple(results[:3])
