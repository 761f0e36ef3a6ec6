"""Tensors that carry an error-carrying number through plain PyTorch code, forward and backward.

`Carried` is a tensor subclass. Code that gets one sees the dtype, shape and device of an ordinary tensor. Below autograd,
each aten operation is one of the rules of `mhc.oracles.bounds.aten` on the numbers that its arguments carry. So the backward
that autograd derives from a plain forward yields the bounds of the gradients by the same rules.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from mhc.oracles.bounds import place, tape
from mhc.oracles.bounds.aten import DECOMPOSED, RULES, UNWRITTEN
from mhc.oracles.bounds.aten.complexes import Complex
from mhc.oracles.bounds.aten.registry import of_integers
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask

_PURE = {torch.ops.aten.pow_.Scalar: "Tensor_Scalar"}
"""The overload that returns what an operation writes, where it has another name."""


_REFUSALS = (NoRule, TypeError, AttributeError, RuntimeError)
"""What a rule raises that does not take its arguments."""


class UnreadableReference(Exception):
    """A reference does something for which there is no rule: the message names the operation and its line."""


class Carried(Tensor):
    """A tensor that carries a number: an `ErrorNumber` of its dtype, or a `Mask`.

    A view keeps the tensor that it is a part of. What is written into either, the other reads.
    """

    base: "Carried | None"
    """The tensor whose elements this one shares."""
    again: Callable[[Any], Any]
    """Returns the number of this tensor from that of `base`."""
    part: Callable[[Tensor], Tensor]
    """Returns the elements of this tensor as a view of those of `base`."""
    shared: bool
    """Whether this tensor is a view or has one."""
    slot: tuple[tape.Tape, tape.Slot] | None
    """What stands for it on a tape."""
    _number: Any
    _whole: Any

    @staticmethod
    def __new__(cls, number: Complex | ErrorNumber | Mask, requires_grad: bool = False) -> "Carried":
        value = number.value
        made = Tensor._make_wrapper_subclass(
            cls, value.shape, strides=value.stride(), dtype=number.dtype, device=value.device, requires_grad=requires_grad
        )
        assert isinstance(made, Carried)
        made._number, made._whole, made.base, made.shared, made.slot = number, None, None, False, None
        return made

    @property
    def number(self) -> Any:
        """Return the number; of a view, taken anew where something was written into its base."""
        if self.base is not None and self.base.number is not self._whole:
            self._whole = self.base.number
            self._number = self.again(self._whole)
        return self._number

    def write(self, number: Any) -> None:
        """Let the tensor carry another number, and the tensors of which it is a view."""
        if self.base is not None:
            self.base.write(_replaced(self.base, self.part, number))
            self._whole = self.base.number
        elif number.value.stride() != self.stride():  # views of it are taken by their strides
            number = number.mapped(self._laid_out)
        self._number = number

    def _laid_out(self, tensor: Tensor) -> Tensor:
        return torch.empty_strided(self.shape, self.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def view_of(self, base: "Carried", again: Callable[[Any], Any], part: Callable[[Tensor], Tensor]) -> None:
        """Let the tensor be a part of another."""
        self.base, self.again, self.part, self._whole = base, again, part, base.number
        self.shared = base.shared = True

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Carried({self.number!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Apply the rule of an aten operation, or its decomposition into operations with rules."""
        kwargs = kwargs or {}
        writes, shares = _effects(func)
        if writes and func not in UNWRITTEN:
            return _write(func, args, kwargs)
        rule = RULES.get(func)
        if rule is not None:
            place.found = place.UNASKED
            named = {name: _unwrap(one) for name, one in kwargs.items()}
            try:
                result = _wrap(rule(func, *[_unwrap(one) for one in args], **named))
            except _REFUSALS as error:
                return _refused(error, func, args, kwargs)
            if shares:
                _note_views(func, args, kwargs, result)
            if tape.recording is not None:
                again = partial(_of_numbers, func, rule)
                tape.recording.add(partial(cls.__torch_dispatch__, func, types), (args, kwargs), result, rule=again)
            return result
        decomposed = DECOMPOSED.get(func)
        if decomposed is not None:
            result = decomposed(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = NotImplemented if writes else func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if _chosen(args) and not writes:
            return _in_doubt(func, args, kwargs)
        raise UnreadableReference(unreadable(func))


def _of_numbers(func: Any, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply a rule to numbers, as if tensors carried them."""
    try:
        return rule(func, *args, **kwargs)
    except _REFUSALS as error:
        return _unwrap(_refused(error, func, _wrap(args), {name: _wrap(one) for name, one in kwargs.items()}))


def _refused(error: Exception, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what an operation gives whose rule does not take its arguments.

    Raises:
        UnreadableReference: it gives nothing of which something could be promised.
    """
    if isinstance(error, RuntimeError) and not any(isinstance(_unwrap(one), Complex) for one in args):
        raise error
    unruled = isinstance(error, NoRule)
    if _chosen(args) or (not unruled and _decided(args)):
        return _in_doubt(func, args, kwargs)
    why = f"{error}" if unruled else f"its rule does not take these arguments: {type(error).__name__}: {error}"
    raise UnreadableReference(f"{unreadable(func)} ({why})") from None if unruled else error


def _chosen(args: Sequence[Any]) -> bool:
    """Return whether an argument holds integers that rounding may decide, such as the index of a maximum."""
    flat = [one for each in args for one in (each if isinstance(each, (list, tuple)) else [each])]
    return any(isinstance(one, Carried) and isinstance(one.number, Mask) and one.dtype != torch.bool for one in flat)


def _decided(args: Sequence[Any]) -> bool:
    """Return whether all that is carried are outcomes of comparisons."""
    numbers = [one.number for one in args if isinstance(one, Carried)]
    return bool(numbers) and all(isinstance(one, Mask) for one in numbers)


def _in_doubt(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the results of an operation on such integers; without a rule for it, nothing is promised of any element.

    Of an elementwise one, of integers alone, nothing is promised of the elements that are made of unsure ones.
    """

    def plain(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return [plain(one) for one in argument]
        return argument.number.value if isinstance(argument, Carried) else argument

    given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    numbers = [one.number for one in given if isinstance(one, Carried) and isinstance(one.number, ErrorNumber)]
    masks = [one.number for one in given if isinstance(one, Carried) and isinstance(one.number, Mask)]
    floating = any(one.is_floating_point() or one.is_complex() for one in given)
    alone = torch.Tag.pointwise in func.tags and not floating and not any(isinstance(one, (list, tuple)) for one in args)
    plain_args, plain_kwargs = [plain(one) for one in args], {name: plain(one) for name, one in kwargs.items()}

    def doubted(result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return type(result)(doubted(one) for one in result)
        if not isinstance(result, Tensor):
            raise UnreadableReference(f"{unreadable(func)} (a Python number that rounding may decide)")
        unsure = torch.ones_like(result, dtype=torch.bool)
        if alone and masks:
            unsure = functools.reduce(torch.logical_or, (one.unsure for one in masks)).expand(result.shape)
        if not result.is_floating_point():
            return Carried(Mask(result, unsure, result.dtype))
        if alone and masks:
            number = of_integers(ErrorNumber, func, plain_args, plain_kwargs, result)
            return Carried(number.lost(torch.where(unsure, torch.inf, 0.0)))
        kind, dtype = (type(numbers[0]), numbers[0].dtype) if numbers else (ErrorNumber, result.dtype)
        return Carried(kind(result.double(), torch.full_like(result, torch.inf, dtype=torch.float64), dtype))

    return doubted(func(*plain_args, **plain_kwargs))


def _unwrap(argument: Any) -> Any:
    if isinstance(argument, Carried):
        return argument.number
    if isinstance(argument, (list, tuple)):
        return [_unwrap(one) for one in argument]
    return argument


def _wrap(result: Any) -> Any:
    if isinstance(result, (Complex, ErrorNumber, Mask)):
        return Carried(result)
    if isinstance(result, (list, tuple)):
        return type(result)(_wrap(one) for one in result)
    return result


@functools.cache
def _effects(func: Any) -> tuple[bool, bool]:
    """Return whether an operation writes into an argument, and whether its result shares elements with one."""
    schema = func._schema
    return schema.is_mutable, any(one.alias_info is not None for one in schema.returns)


def _note_views(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Let the results of an operation be parts of its first argument."""
    base, *rest = args
    if not isinstance(base, Carried):
        return
    several = isinstance(result, (list, tuple))
    for at, one in enumerate(result if several else [result]):
        if isinstance(one, Carried):

            def part(whole: Any, function: Any = func, at: int = at) -> Any:
                found = function(whole, *rest, **kwargs)
                return found[at] if several else found

            def again(number: Any, part: Any = part) -> Any:
                return part(number, partial(RULES[func], func))

            one.view_of(base, again, part)


def _replaced(base: Carried, part: Callable[[Tensor], Tensor], number: Any) -> Any:
    """Return the number of a tensor with a part replaced by another number."""
    whole = base.number

    def put(tensors: Sequence[Tensor]) -> Tensor:
        result = base._laid_out(tensors[0])
        part(result).copy_(tensors[1])
        return result

    if isinstance(number, Complex) or isinstance(whole, Complex):
        raise NoRule("a part of complex numbers")
    if isinstance(number, Mask):
        return Mask(put((whole.value, number.value)), put((whole.unsure, number.unsure)), number.dtype)
    return type(number).joined([whole, number], put)


def _write(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply an operation that writes into its first argument, as the operation that returns the result."""
    name, target = func.overloadpacket.__name__, args[0]
    pure = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    pure = getattr(pure, _PURE.get(func, func._overloadname), None) or getattr(pure, "default", None)
    reshapes = torch.Tag.inplace_view in func.tags  # such as squeeze_, of which a vector times a matrix consists
    if pure is None or (reshapes and (not isinstance(target, Carried) or target.shared)):
        raise UnreadableReference(unreadable(func))
    result = pure(*args, **kwargs)
    if not isinstance(target, Carried):
        return _written_plainly(func, target, result)
    if reshapes:
        with no_dispatch():
            func(*args, **kwargs)
    try:
        _store(target, result)
    except NoRule as missing:
        raise UnreadableReference(f"{unreadable(func)} ({missing})") from None
    if tape.recording is not None:
        tape.recording.add(_store, (target, result), None)
        tape.recording.whole &= not reshapes
    return target


def _store(target: Carried, result: Carried) -> None:
    """Write one number over another."""
    target.write(result.number.to(target.dtype) if result.dtype != target.dtype else result.number)


def _written_plainly(func: Any, target: Tensor, result: Any) -> Tensor:
    """Write outcomes of comparisons that no rounding decides into a plain tensor of booleans or integers."""
    number = result.number if isinstance(result, Carried) else None
    if not isinstance(number, Mask):
        raise UnreadableReference(unreadable(func))
    if bool(number.unsure.any()):
        raise UnreadableReference(f"{unreadable(func)} (a comparison that rounding may decide)")
    with no_dispatch():
        target.copy_(number.value)
    return target


def unreadable(func: Any) -> str:
    """Return what cannot be read, where, and what to do."""
    where = _line()
    writes = func._schema.is_mutable
    advice = (
        "it writes into a tensor; return a new tensor instead"
        if writes
        else "write it with operations that oracles/bounds/aten has rules for"
    )
    return f"{func}{f' in {where}' if where else ''}: no rule derives its error bound; {advice}"


def _line() -> str | None:
    """Return the line of the reference that is being read."""
    frame = place.frame()
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
