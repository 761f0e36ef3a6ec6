"""Calls of one implementation with checked arguments, as functions that are differentiable."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mhc.arguments import check_arguments
from mhc.case import Case, ScheduleValue, default_case
from mhc.implementation import Implementation, Refused
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.table import PRE
from mhc.precision import float32_matmuls

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]
"""dx, dphi, dalpha, dbias, dgamma; dgamma is None where gamma is."""

NAMES = {dtype: name for name, dtype in STORAGE_DTYPES.items()}
"""The name of each dtype of x."""

_Choose = Callable[[Any], Implementation]
"""From x the implementation: one on a GPU, another on the CPU."""


class ForwardFunction:
    """`mhc_forward_pre` by one backend: the same equations, arguments, shapes and dtypes, and a schedule.

    Args:
        name, doc: of the function.
        choose: from x, the implementation that runs.
    """

    def __init__(self, name: str, choose: _Choose, doc: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._choose = choose

    def __call__(
        self,
        x: Float[Tensor, "B S n D"],
        phi: Float[Tensor, "M K"],
        alpha: Float[Tensor, "3"],
        bias: Float[Tensor, "M"],
        gamma: Float[Tensor, "n D"] | None = None,
        *,
        outflag: bool = False,
        norm_eps: float = 1e-6,
        hc_eps: float = 1e-6,
        schedule: Mapping[str, ScheduleValue] | None = None,
    ) -> tuple[Tensor, ...]:
        """Return (h_in, h_post, h_res), and with `outflag` also (inv_rms, h_mix, h_pre).

        Raises:
            TypeError, ValueError: an argument does not fit; the message names it.
            Refused: the implementation does not take the arguments or the schedule.
        """
        scalars = {"norm_eps": norm_eps, "hc_eps": hc_eps}
        check_arguments(PRE, {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}, scalars)
        implementation, keywords = self._choose(x), {**scalars, "schedule": schedule}
        require(implementation, x, gamma, keywords)
        results = run_forward(implementation, (x, phi, alpha, bias, gamma), keywords)
        return tuple(results) if outflag else tuple(results[:3])


class BackwardFunction:
    """`mhc_pre_backward_manual` by one backend, as `ForwardFunction`.

    Args:
        schedule: what a call without one pins.
    """

    def __init__(self, name: str, choose: _Choose, doc: str, schedule: Mapping[str, ScheduleValue] | None = None) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self.schedule = schedule
        self._choose = choose

    def __call__(
        self,
        x: Float[Tensor, "B S n D"],
        phi: Float[Tensor, "M K"],
        alpha: Float[Tensor, "3"],
        bias: Float[Tensor, "M"],
        inv_rms: Float[Tensor, "B S"],
        h_mix: Float[Tensor, "B S M"],
        h_pre: Float[Tensor, "B S n"],
        h_post: Float[Tensor, "B S n"],
        dh_in: Float[Tensor, "B S D"],
        dh_post: Float[Tensor, "B S n"],
        dh_res: Float[Tensor, "B S n n"],
        gamma: Float[Tensor, "n D"] | None = None,
        *,
        norm_eps: float = 1e-6,
        hc_eps: float = 1e-6,
        schedule: Mapping[str, ScheduleValue] | None = None,
    ) -> Gradients:
        """Return (dx [B,S,n,D], dphi [M,K], dalpha [3], dbias [M], dgamma [n,D]); dgamma is None where gamma is.

        Raises:
            TypeError, ValueError: an argument does not fit; the message names it.
            Refused: the implementation does not take the arguments or the schedule.
        """
        given = (x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma)
        schedule = self.schedule if schedule is None else schedule
        scalars = {"norm_eps": norm_eps, "hc_eps": hc_eps}
        check_arguments(PRE, dict(zip(PRE.backward_arguments, given, strict=True)), scalars)
        implementation = self._choose(x)
        require(implementation, x, gamma, {**scalars, "schedule": schedule})
        if implementation.backward is None:
            raise Refused(f"{implementation.name} has no backward")
        with torch.no_grad(), float32_matmuls(x.device.type):
            dx, dphi, dalpha, dbias, dgamma = implementation.backward(*given, **implementation.keywords(scalars, schedule))
        return dx, dphi, dalpha, dbias, dgamma


def deferred(function: str) -> Callable[..., Any]:
    """Return what calls "module:name" and imports the module at its first call: importing `mhc` imports no kernels."""
    return functools.partial(_call, *function.split(":"))


def _call(module: str, name: str, *arguments: Any, **keywords: Any) -> Any:
    return getattr(_imported(module), name)(*arguments, **keywords)


_imported = functools.cache(importlib.import_module)


def by_device(cuda: Implementation, cpu: Implementation) -> _Choose:
    """Return what takes `cpu` for x on the CPU, else `cuda`, which refuses what is not on a GPU."""
    return lambda x: cpu if isinstance(x, Tensor) and x.device.type == "cpu" else cuda


@functools.lru_cache(maxsize=4096)
def case_of(B: int, S: int, n: int, D: int, dtype: str, no_gamma: bool, norm_eps: float, hc_eps: float) -> Case:
    """Return the case that stands for a call: what `Implementation.supports` is asked about."""
    absent = frozenset({"gamma"} if no_gamma else ())
    scalars = {"norm_eps": norm_eps, "hc_eps": hc_eps}
    return default_case(operator=PRE.name, absent=absent, B=B, S=S, n=n, D=D, dtype=dtype, scalars=scalars)


def require(implementation: Implementation, x: Tensor, gamma: Tensor | None, keywords: Mapping[str, Any]) -> None:
    """Raise `Refused` where `implementation` does not take checked arguments, or the schedule among `keywords`."""
    case = case_of(*x.shape, NAMES[x.dtype], gamma is None, float(keywords["norm_eps"]), float(keywords["hc_eps"]))
    schedule = keywords.get("schedule")
    if schedule:
        case = replace(case, schedules={implementation.name: schedule})
    refusal = implementation.refusal(case, x.device.type)
    if refusal is not None:
        raise Refused(f"{implementation.name}: {refusal.reason}")


def run_forward(
    implementation: Implementation, given: tuple[Tensor | None, ...], keywords: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the six outputs, tied to the implementation's backward where a gradient is asked for.

    given: x, phi, alpha, bias, gamma, checked. keywords: norm_eps, hc_eps and, where it declares one, a schedule.
    """
    if implementation.forward is None:
        raise Refused(f"{implementation.name} has no forward")
    keywords = implementation.keywords(keywords, keywords.get("schedule"))
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given):
        results: Sequence[Any] = _Pre.apply(implementation, keywords, *given)  # type: ignore[no-untyped-call]
        return results
    with float32_matmuls("cpu" if given[0] is None else given[0].device.type):
        found: Sequence[Any] = implementation.forward(*given, **keywords)
    return found


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
