"""Numbers for the tensors that a plain function makes itself: of constants, and of integers."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.dispatch_mode import DispatchMode
from mhc.oracles.bounds import tape
from mhc.oracles.bounds.aten.registry import of_integers, of_scalars
from mhc.oracles.bounds.carried import Carried, UnreadableReference, unreadable
from mhc.oracles.bounds.error_number import ErrorNumber

aten = torch.ops.aten


class Made(DispatchMode):  # type: ignore[no-untyped-call]
    """Gives a number to each floating-point tensor that is made of none.

    A function may then write into what `torch.zeros` returns. What it computes of integers, as in `1 / arange(n)`, has the
    error of one rounding, or of an elementary function, where float32 does not hold the float64 result.
    """

    def __init__(self, number: type[ErrorNumber]) -> None:
        super().__init__()
        self.number = number

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and carry its result where no floating-point tensor goes into it."""
        del types
        named = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and named.get("generator") is None:
            raise UnreadableReference(f"{unreadable(func)} (it draws random numbers: take them as an input)")
        result = func(*args, **named)
        if type(result) is not Tensor or not result.is_floating_point() or func._schema.is_mutable:
            return result
        given = [one for one in (*args, *named.values()) if isinstance(one, (Tensor, list, tuple))]
        tensors = [one for each in given for one in (each if isinstance(each, (list, tuple)) else [each])]
        tensors = [one for one in tensors if isinstance(one, Tensor)]
        if not tensors:
            empty = func.overloadpacket in {aten.empty, aten.empty_strided}
            value = torch.zeros_like(result, dtype=torch.float64) if empty else result.double()
            return tape.made(lambda number: Carried(of_scalars(number.exact(value, result.dtype), args)), self.number)
        pointwise = torch.Tag.pointwise in func.tags or func.overloadpacket is aten._to_copy
        if not pointwise or any(one.is_floating_point() or isinstance(one, Carried) for one in tensors):
            return result
        of = tensors, result
        return tape.made(lambda number: Carried(of_integers(number, func, args, named, result)), self.number, *of)
