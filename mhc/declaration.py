"""Operators whose reference is a plain PyTorch function: `@operator` reads the notation of their tensors and sizes.

    @operator(x="[*B, D] storage", weight="[D] storage", D=(1, 8192), eps=(1e-6, 1e-5, 0.0))
    def rms_norm(x, weight, *, eps):
        v = x.float()
        return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

Each tensor argument has its axes in brackets and then its dtype: `storage` is the dtype of the case, `float32` is float32
(float64 where the case is). `*B` stands for leading axes that several tensors have in common. A pair of integers is the
range of an axis; a tuple of numbers is what is drawn for a scalar, the default first.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.operator import Axis, Operator, Role, TensorSpec
from mhc.operator_json import record_of

LEADING = 2
"""Axes that `*B` stands for."""
_ROLES = {"storage": Role.STORAGE, "float32": Role.ACCUMULATE}
_NOTATION = re.compile(r"\[([^\]]*)\] *(\w+)?")
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


class DeclarationError(ValueError):
    """Raised for a declaration that cannot be read; the message names the argument and what was expected."""


def operator(*, name: str | None = None, tokens: str = "", **declared: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Return a decorator that makes an operator of a plain PyTorch function; the notation is at the top of this module.

    Args:
        tokens: axes, as in "*B" or "B, S", whose positions are independent of one another: further gates need to know.

    Raises:
        DeclarationError: an argument of the function is not declared, or a declaration is no notation.
    """

    def make(function: Callable[..., Any]) -> Operator:
        return _operator(name or function.__name__, function, declared, _symbols(tokens))

    return make


def _operator(name: str, function: Callable[..., Any], declared: Mapping[str, Any], tokens: tuple[str, ...]) -> Operator:
    parameters = inspect.signature(function).parameters.values()
    tensors = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    scalars = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    for one in (*tensors, *scalars):
        if one not in declared:
            raise DeclarationError(f"{name}: {one} is an argument of the function, and is not declared")
    inputs = tuple(_spec(name, one, declared[one]) for one in tensors)
    if not inputs:
        raise DeclarationError(f"{name}: the function has no tensor argument")
    symbols = list(dict.fromkeys(symbol for spec in inputs for symbol in spec.symbols if not symbol.isdigit()))
    ranges = {one: value for one, value in declared.items() if one not in tensors and one not in scalars}
    for one in ranges:
        if one not in symbols:
            raise DeclarationError(f"{name}: {one} is neither an argument of the function nor an axis of its tensors")
    axes = tuple(_axis(name, symbol, ranges.get(symbol, (1, 8192))) for symbol in symbols)
    choices = {one: _choices(name, one, declared[one]) for one in scalars}
    defaults = {one: values[0] for one, values in choices.items()}
    unknown = [one for one in tokens if one not in symbols]
    if unknown:
        raise DeclarationError(f"{name}: tokens: {unknown[0]} is no axis of its tensors, which are {', '.join(symbols)}")
    outputs = _outputs(name, function, inputs, axes, defaults)
    return record_of(
        name,
        axes=axes,
        tokens=tokens,
        inputs=inputs,
        outputs=outputs,
        scalars=choices,
        forward=forward_of(function),
        backward=backward_of(function, len(inputs)),
        function=function,
    )


def forward_of(function: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function with its outputs in a tuple."""

    def forward(*tensors: Tensor, **scalars: Any) -> tuple[Tensor, ...]:
        return _tuple(function(*tensors, **scalars))

    return forward


def backward_of(function: Callable[..., Any], inputs: int) -> Callable[..., tuple[Tensor | None, ...]]:
    """Return the backward that autograd derives: from `inputs` tensors and the upstream gradients to the gradients."""

    def backward(*tensors: Tensor, **scalars: Any) -> tuple[Tensor | None, ...]:
        leaves = [one.detach().requires_grad_() for one in tensors[:inputs]]
        with torch.enable_grad():
            outputs = _tuple(function(*leaves, **scalars))
        return torch.autograd.grad(outputs, leaves, tensors[inputs:], allow_unused=True)

    return backward


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _spec(operator: str, name: str, notation: object) -> TensorSpec:
    matched = _NOTATION.fullmatch(notation.strip()) if isinstance(notation, str) else None
    role = _ROLES.get(matched[2] or "storage") if matched else None
    if matched is None or role is None:
        wanted = f'"[axes] dtype" with a dtype out of {", ".join(_ROLES)}'
        raise DeclarationError(f"{operator}: {name} must be declared as {wanted}, was {notation!r}")
    return TensorSpec(name, _symbols(matched[1]), role)


def _symbols(text: str) -> tuple[str, ...]:
    """Return the symbols in a list, with `LEADING` of them for `*B`."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    spread = [[f"{one[1:]}{at}" for at in range(LEADING)] if one.startswith("*") else [one] for one in names]
    return tuple(symbol for some in spread for symbol in some)


def _axis(operator: str, symbol: str, given: object) -> Axis:
    whole = isinstance(given, tuple) and len(given) == 2 and all(type(one) is int for one in given)
    if not whole or not 0 <= given[0] <= given[1]:  # type: ignore[index]
        raise DeclarationError(f"{operator}: {symbol} must be a pair of integers, least and most, was {given!r}")
    return Axis(symbol, *given)  # type: ignore[misc]


def _choices(operator: str, name: str, given: object) -> tuple[float, ...]:
    values = _tuple(given)
    if not values or not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        raise DeclarationError(
            f"{operator}: {name} must be a number or a tuple of numbers, the default first, was {given!r}"
        )
    return tuple(float(one) for one in values)


def _outputs(
    operator: str,
    function: Callable[..., Any],
    inputs: Sequence[TensorSpec],
    axes: Sequence[Axis],
    scalars: Mapping[str, float],
) -> tuple[TensorSpec, ...]:
    """Return the specs of the outputs, from a call on zeros in which each axis has a size of its own."""
    sizes = dict(zip((axis.name for axis in axes), _PRIMES, strict=False))
    if len(sizes) < len(axes):
        raise DeclarationError(f"{operator}: at most {len(_PRIMES)} axes are supported, was {len(axes)}")
    storage = torch.bfloat16
    # not on the device "meta", whose first use imports TorchDynamo and takes two seconds
    given = [torch.zeros(spec.shape(sizes), dtype=spec.dtype(storage)) for spec in inputs]
    try:
        results = _tuple(function(*given, **scalars))
    except Exception as error:
        shapes = ", ".join(f"{spec.name} {tuple(spec.shape(sizes))}" for spec in inputs)
        raise DeclarationError(f"{operator}: the function fails on {shapes}: {type(error).__name__}: {error}") from error
    names = {size: name for name, size in sizes.items()}
    return tuple(
        TensorSpec(
            "y" if len(results) == 1 else f"y{at}",
            tuple(names.get(size, str(size)) for size in one.shape),
            Role.STORAGE if one.dtype == storage else Role.ACCUMULATE,
        )
        for at, one in enumerate(results)
    )
