"""The table of rules, how a rule is registered, and the dtypes in which it computes."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions

from mhc.oracles.bounds import derived_scalars, most
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import ELEMENTARY, ceiling, unit_roundoff

aten = torch.ops.aten
Function = TypeVar("Function", bound=Callable[..., Any])
RULES: dict[Any, Callable[..., Any]] = {}


def _nll_loss_backward(
    upstream: Tensor, a: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    """Return the gradient as PyTorch computes it: PyTorch's decomposition makes 0 * inf of elements that it leaves alone."""
    kept = (target != ignored).unsqueeze(-1)
    classes = torch.where(kept, target.unsqueeze(-1), 0)
    each = upstream / total if reduction == 1 else upstream if reduction == 2 else upstream.unsqueeze(-1)
    if weight is not None:
        each = each * weight[classes]
    return torch.where(kept & (classes == torch.arange(a.shape[-1], device=target.device)), -each, 0.0)


def _batch_norm(
    a: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, training: bool, momentum: float, eps: float
) -> Any:
    """Return batch norm by given statistics, as PyTorch and other kernels compute it: a scale and a shift of each channel.

    The sum of three terms may be taken in any order, so that (a - mean) scale + bias has this bound too. With statistics of
    its own the operation would write into those that are given.
    """
    if training:
        return NotImplemented
    wide_of = wide(a.dtype)
    scale = torch.rsqrt(variance.to(wide_of) + eps)
    scale = scale if weight is None else scale * weight.to(wide_of)
    shape = [-1, *[1] * (a.dim() - 2)]
    result = a.to(wide_of) * scale.reshape(shape) - (mean.to(wide_of) * scale).reshape(shape)
    result = result if bias is None else result + bias.to(wide_of).reshape(shape)
    return result.to(a.dtype), a.new_zeros((0,)), a.new_zeros((0,))


def _batch_norm_inference(a: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, *rest: float) -> Any:
    return _batch_norm(a, weight, bias, mean, variance, False, *rest)


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, expanded_a: Any, expanded_b: Any, expanded_c: Any, over: Any, unroll_dim: int = 1
) -> Tensor:
    """Return the sum of the products of three tensors, of which `bilinear` consists."""
    for one in sorted(expanded_a):
        a = a.unsqueeze(one)
    for one in sorted(expanded_b):
        b = b.unsqueeze(one)
    for one in sorted(expanded_c):
        c = c.unsqueeze(one)
    return (a * b * c).sum(over)


def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    found = gradient.masked_select(mask.expand(gradient.shape))
    return torch.nn.functional.pad(found, (0, math.prod(sizes) - found.numel())).view(sizes)


def _untraced(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyTorch's decomposition without the layer that keeps TorchDynamo from tracing it.

    That layer imports TorchDynamo at its first call, which takes a process a second. The layers around it are left out too:
    they take `out` and Python numbers in place of tensors, and no operation here has those.
    """
    layer: Any = decomposition
    while isinstance(layer, FunctionType) and layer.__code__.co_filename != torch._compile.__file__:
        layer = getattr(layer, "__wrapped__", None)
    inside: Mapping[str, Any] = inspect.getclosurevars(layer).nonlocals if isinstance(layer, FunctionType) else {}
    return cast("Callable[..., Any]", inside.get("fn", decomposition))


_OF_PYTORCH = {
    **core_aten_decompositions(),
    **get_decompositions([aten.gelu, aten.hardtanh, aten.native_group_norm, aten.leaky_relu, aten.elu]),
    **get_decompositions([aten.linalg_vector_norm, aten._native_batch_norm_legit]),
}
DECOMPOSED: dict[Any, Callable[..., Any]] = {
    **{operation: _untraced(decomposition) for operation, decomposition in _OF_PYTORCH.items()},
    aten._trilinear.default: _trilinear,
    aten.masked_scatter_backward.default: _masked_scatter_backward,
    aten.dist.default: lambda a, b, p=2: torch.linalg.vector_norm((a - b).reshape(-1), p),
    aten.nll_loss_backward.default: _nll_loss_backward,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_inference,
}
"""Operations that PyTorch itself expresses by others."""
UNWRITTEN = {aten._native_batch_norm_legit.default}
"""Operations that need not write into what their schema says."""


def rule(*operations: Any) -> Callable[[Function], Function]:
    """Register a rule for operations, each with all its overloads."""

    def add(function: Function) -> Function:
        for operation in operations:
            for overload in operation.overloads():
                RULES[getattr(operation, overload)] = function
        return function

    return add


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which PyTorch computes for tensors of `dtype`."""
    return torch.float32 if dtype in {torch.bfloat16, torch.float16} else dtype


def widened(number: ErrorNumber) -> ErrorNumber:
    """Return a number in the dtype in which it is computed with."""
    return narrowed(number, wide(number.dtype))


def narrowed(number: ErrorNumber, dtype: torch.dtype) -> ErrorNumber:
    """Return a number in a dtype, as it is where it has that dtype.

    An intermediate that was held in a narrow dtype and is computed with further may have overflowed there. Of float16 and
    bfloat16 that matters when it is widened again, of float32 at once, since it is computed with as it is.
    """
    if number.dtype == dtype:
        return number
    if number.errorless and number.elementary and torch.equal(number.value.to(dtype).double(), number.value):
        kept = type(number).exact(number.value, dtype)  # each element is kept as it is
        kept.whole, kept.powers = number.whole, number.powers
        return kept
    widens = unit_roundoff(dtype) < unit_roundoff(number.dtype)
    held = number.dtype.itemsize == 1  # what overflowed in 8 bits has no bound since it was converted
    if (widens and not number.errorless and not held) or (not widens and dtype == wide(dtype)):
        limit = ceiling(number.dtype if widens else dtype)
        beyond = number.value.isfinite() & (number.value.abs() + number.error > limit)
        if bool(beyond.any()):
            known = most.most(number) if number.elementary else None
            number = type(number)(number.value, torch.where(beyond, torch.inf, number.error), number.dtype)
            number.most = None if known is None else most.converted(known, dtype)
    return number.to(dtype)


def scalar(value: Any) -> Any:
    """Return a Python number for a plain tensor without dimensions."""
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value


def integers(*operands: Any) -> bool:
    """Return whether all operands are integers or booleans."""
    floating = (ErrorNumber, float)
    return not any(isinstance(one, floating) or (isinstance(one, Tensor) and one.is_floating_point()) for one in operands)


def promoted_dtype(operands: Sequence[Any]) -> torch.dtype:
    """Return the dtype that PyTorch promotes to: that of tensors with dimensions, where there are any."""
    tensors = [one for one in operands if isinstance(one, (ErrorNumber, Tensor)) and one.dtype.is_floating_point]
    ranked = [one for one in tensors if len(one.shape) > 0] or tensors
    if not ranked:
        return torch.get_default_dtype()
    dtype: torch.dtype = ranked[0].dtype
    for one in ranked[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    return dtype


def promoted(*operands: Any) -> tuple[list[Any], torch.dtype]:
    """Return the operands in the dtype in which they are computed with, and the dtype of the result.

    Python numbers stay numbers, unless a dtype narrower than float32 may round them: PyTorch adds them to a tensor on the
    CPU in the dtype of that tensor.
    """
    first, *others = operands
    if isinstance(first, ErrorNumber) and len(first.shape) and first.dtype == wide(first.dtype):  # the common case
        dtype = first.dtype
        if all(isinstance(one, (int, float)) or (isinstance(one, ErrorNumber) and one.dtype == dtype) for one in others):
            return list(operands), dtype
    operands = tuple(scalar(one) for one in operands)
    kind = next((type(one) for one in operands if isinstance(one, ErrorNumber)), None)
    if kind is None:
        raise NoRule("arithmetic of comparisons that rounding may decide")
    dtype = promoted_dtype(operands)
    found = []
    for one in operands:
        number = held(one, kind, dtype) if isinstance(one, (Tensor, Mask)) else _scalar_in(one, kind, dtype)
        found.append(narrowed(number, wide(dtype)) if isinstance(number, ErrorNumber) else number)
    return found, dtype


def _scalar_in(one: Any, kind: type[ErrorNumber], dtype: torch.dtype) -> Any:
    """Return a Python number as it is, or where it may be rounded to a narrow dtype first, with the error of that."""
    if not isinstance(one, float) or wide(dtype) == dtype or not math.isfinite(one):
        return one
    value = torch.tensor(one, dtype=torch.float64)
    error = (value.to(dtype).double() - value).abs()
    return kind(value, error, wide(dtype)) if error else one


def held(tensor: Tensor | Mask, kind: type[ErrorNumber], dtype: torch.dtype) -> ErrorNumber:
    """Return a plain tensor as a number, in its dtype; integers and booleans in that of the other operands."""
    if isinstance(tensor, Mask):  # zeros and ones; where it is unsure, either
        return kind(tensor.value.double(), tensor.error, wide(dtype))
    own = tensor.dtype if tensor.dtype.is_floating_point else wide(dtype)
    number = kind.exact(tensor.to(own).double(), own)
    number.whole = not tensor.dtype.is_floating_point
    return number


_ROUNDED_ONCE = {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten._to_copy}


def of_scalars(made: ErrorNumber, scalars: Sequence[Any]) -> ErrorNumber:
    """Return a number that is made of scalars, each of which may be off for what it was computed from."""
    if not derived_scalars.errors:
        return made
    off = max((derived_scalars.error_of(one, made.dtype) for one in scalars), default=0.0)
    return made.lost(torch.full_like(made.value, off)) if off else made


def of_integers(
    kind: type[ErrorNumber], func: Any, args: Sequence[Any], named: Mapping[str, Any], result: Tensor
) -> ErrorNumber:
    """Return the number of an elementwise operation on plain integers, whose `result` is in floating point."""
    wide_of = [one.double() if isinstance(one, Tensor) else one for one in args]
    value = func(*wide_of, **{**named, **({"dtype": torch.float64} if "dtype" in named else {})}).double()
    same = value == result.double()
    if bool(same.all()):
        found = kind.exact(value, result.dtype)
        found.whole = func.overloadpacket is aten._to_copy
    else:
        units = 1.0 if func.overloadpacket in _ROUNDED_ONCE else float(ELEMENTARY)
        found = kind._rounded(value, None, result.dtype, units=units)
    if func.overloadpacket in {aten.pow, aten.exp2} and found.elementary:
        powers = same & (torch.frexp(value).mantissa == 0.5)
        if not found.errorless:
            found.make_exact(value, powers)
        found.powers = bool((powers | (found.error > 0)).all())
    return found


def alike(*operands: Any) -> tuple[list[Any], torch.dtype]:
    """Return the operands in the dtype of the result, for an operation that chooses among them and rounds nothing."""
    first = operands[0]
    if all(isinstance(one, ErrorNumber) and one.dtype == first.dtype for one in operands):  # the common case
        return list(operands), first.dtype
    found, dtype = promoted(*operands)
    kept = [
        given if isinstance(given, ErrorNumber) and given.dtype == dtype else one
        for given, one in zip(operands, found, strict=True)
    ]
    return [narrowed(one, dtype) if isinstance(one, ErrorNumber) else one for one in kept], dtype


def elementwise(function: Callable[..., ErrorNumber], *operations: Any) -> None:
    """Register a function of numbers, computed in the wide dtype and rounded once."""

    def apply(func: Any, *args: Any) -> ErrorNumber:
        del func
        operands, dtype = promoted(*args)
        return narrowed(function(*operands), dtype)

    rule(*operations)(apply)


def exactly(function: Callable[..., ErrorNumber], *operations: Any) -> None:
    """Register a function of numbers whose result each dtype holds that holds them: nothing is rounded."""

    def apply(func: Any, *args: Any) -> ErrorNumber:
        del func
        operands, _ = alike(*args)
        return function(*operands)

    rule(*operations)(apply)
