"""`mhc_pre`: the call a model makes. Differentiable; runs on whichever implementation supports the input."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mhc.case import Case, default_case
from mhc.implementation import Implementation, Refused
from mhc.loading import load
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.registry import IMPLEMENTATIONS
from mhc.operators.mhc_pre.table import PRE
from mhc.precision import float32_matmuls

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]
"""dx, dphi, dalpha, dbias, dgamma; dgamma is None where gamma is."""

_NAMES = {dtype: name for name, dtype in STORAGE_DTYPES.items()}


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
    """What `mhc_pre` takes for these arguments.

    Args:
        x, gamma, norm_eps, hc_eps: as for `mhc_pre`; only shapes, dtype and device matter.
        impl: "auto", or an implementation, or whatever `--impl` takes.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        ImplementationError: `impl` names nothing that can be loaded.
        Refused: the one asked for does not take this input, or with "auto" none does; with the reasons.
    """
    PRE.check({"x": x, "gamma": gamma}, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    return _choose(x, gamma, impl, norm_eps, hc_eps)


def _choose(x: Tensor, gamma: Tensor | None, impl: str | Implementation, norm_eps: float, hc_eps: float) -> Choice:
    """`choose` for arguments that are checked."""
    if isinstance(impl, Implementation) or impl != "auto":
        implementation = impl if isinstance(impl, Implementation) else _named(impl)
        require(implementation, x, gamma, {"norm_eps": norm_eps, "hc_eps": hc_eps})
        return Choice(implementation=implementation, refused={})
    case = _case(*x.shape, _NAMES[x.dtype], gamma is None, float(norm_eps), float(hc_eps))
    return _choose_auto(case, x.device.type)


@functools.lru_cache(maxsize=64)
def _named(spec: str) -> Implementation:
    return load(spec, IMPLEMENTATIONS)


@functools.lru_cache(maxsize=4096)
def _case(B: int, S: int, n: int, D: int, dtype: str, no_gamma: bool, norm_eps: float, hc_eps: float) -> Case:
    absent = frozenset({"gamma"} if no_gamma else ())
    scalars = {"norm_eps": norm_eps, "hc_eps": hc_eps}
    return default_case(operator=PRE.name, absent=absent, B=B, S=S, n=n, D=D, dtype=dtype, scalars=scalars)


@functools.lru_cache(maxsize=4096)
def _choose_auto(case: Case, device: str) -> Choice:
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
    """mHC Forward Pre, differentiable, on the fastest implementation that supports the input (`choose` says which).

    The equations, shapes and dtypes are those of `mhc_forward_pre`. Gradients flow to x, phi, alpha, bias and gamma from
    h_in, h_post and h_res; what `outflag` adds carries no gradient. Second derivatives are not supported.

    Args:
        impl: "auto", an `Implementation`, the name of one, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: the implementation asked for does not take this input. There is no fallback.
    """
    arguments = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}
    PRE.check(arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    implementation = _choose(x, gamma, impl, norm_eps, hc_eps).implementation
    results = run_forward(implementation, (x, phi, alpha, bias, gamma), {"norm_eps": norm_eps, "hc_eps": hc_eps})
    return tuple(results) if outflag else tuple(results[:3])


def require(implementation: Implementation, x: Tensor, gamma: Tensor | None, keywords: Mapping[str, Any]) -> None:
    """Raise `Refused` where `implementation` does not take checked arguments, or the schedule among `keywords`."""
    case = _case(*x.shape, _NAMES[x.dtype], gamma is None, float(keywords["norm_eps"]), float(keywords["hc_eps"]))
    schedule = keywords.get("schedule")
    if schedule:
        case = replace(case, schedules={implementation.name: schedule})
    refusal = implementation.refusal(case, x.device.type)
    if refusal is not None:
        raise Refused(f"{implementation.name}: {refusal.reason}")


def run_forward(
    implementation: Implementation, given: tuple[Tensor | None, ...], keywords: Mapping[str, Any]
) -> Sequence[Any]:
    """The six outputs, tied to the implementation's backward where a gradient is asked for.

    given: x, phi, alpha, bias, gamma, checked. keywords: norm_eps, hc_eps and, where it declares one, a schedule.
    """
    if implementation.forward is None:
        raise Refused(f"{implementation.name} has no forward")
    keywords = implementation.keywords(keywords, keywords.get("schedule"))
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given):
        results: Sequence[Any] = _Pre.apply(implementation, keywords, *given)  # type: ignore[no-untyped-call]
        return results
    with float32_matmuls("cpu" if given[0] is None else given[0].device.type):
        return implementation.forward(*given, **keywords)


def forward_by(
    implementation: Implementation, arguments: Mapping[str, Any], keywords: Mapping[str, Any], *, outflag: bool
) -> tuple[Tensor, ...]:
    """The forward by one implementation, its arguments checked here: what a function of its own name calls.

    arguments: x, phi, alpha, bias and gamma, in this order. keywords: norm_eps, hc_eps and maybe schedule.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: the implementation does not take the arguments or the schedule.
    """
    PRE.check(arguments, {name: keywords[name] for name in PRE.scalars})
    require(implementation, arguments["x"], arguments["gamma"], keywords)
    results = run_forward(implementation, tuple(arguments.values()), keywords)
    return tuple(results) if outflag else tuple(results[:3])


def backward_by(implementation: Implementation, arguments: Mapping[str, Any], keywords: Mapping[str, Any]) -> Gradients:
    """The backward by one implementation, as `forward_by`. arguments: in the order of the operator's backward."""
    scalars = {name: keywords[name] for name in PRE.scalars}
    PRE.check(arguments, scalars)
    require(implementation, arguments["x"], arguments["gamma"], keywords)
    if implementation.backward is None:
        raise Refused(f"{implementation.name} has no backward")
    with torch.no_grad(), float32_matmuls(arguments["x"].device.type):
        gradients = implementation.backward(
            *arguments.values(), **implementation.keywords(scalars, keywords.get("schedule"))
        )
    dx, dphi, dalpha, dbias, dgamma = gradients
    return dx, dphi, dalpha, dbias, dgamma


class _Pre(torch.autograd.Function):
    """An implementation's forward and backward, tied together for autograd."""

    @staticmethod
    def forward(ctx: Any, implementation: Implementation, keywords: Mapping[str, Any], x: Tensor, *rest: Any) -> Any:
        assert implementation.forward is not None
        with float32_matmuls(x.device.type):
            h_in, h_post, h_res, inv_rms, h_mix, h_pre = implementation.forward(x, *rest, **keywords)
        ctx.implementation, ctx.keywords = implementation, keywords
        ctx.save_for_backward(x, *rest, inv_rms, h_mix, h_pre, h_post)
        ctx.mark_non_differentiable(*(tensor for tensor in (inv_rms, h_mix, h_pre) if tensor is not None))
        return h_in, h_post, h_res, inv_rms, h_mix, h_pre

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_in: Tensor, dh_post: Tensor, dh_res: Tensor, *_: Any) -> Any:
        implementation: Implementation = ctx.implementation
        x, phi, alpha, bias, gamma, *saved = ctx.saved_tensors
        if implementation.backward is None:
            raise Refused(f"{implementation.name} has no backward")
        if any(tensor is None for tensor in saved):
            raise Refused(f"{implementation.name}: its forward returned no inv_rms, h_mix or h_pre for a backward to use")
        upstream = (dh_in, dh_post, dh_res)
        with float32_matmuls(x.device.type):
            gradients = implementation.backward(x, phi, alpha, bias, *saved, *upstream, gamma, **ctx.keywords)
        names = ("x", "phi", "alpha", "bias", "gamma")
        given = (x, phi, alpha, bias, gamma)
        for name, tensor, gradient, needed in zip(names, given, gradients, ctx.needs_input_grad[2:], strict=True):
            if needed and tensor is not None and gradient is None:
                raise Refused(f"{implementation.name} gives no gradient for {name}")
        return None, None, *gradients
