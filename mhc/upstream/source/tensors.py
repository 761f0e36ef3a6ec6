"""Tensors as the text that makes them: literal where they are small or plain, else by the recipe of the case."""

import base64
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

LITERAL = 96
_EXCEPTIONS = 8
_PIECE = 100
"""Characters of packed values in a line."""


@dataclass(frozen=True)
class Text:
    """An expression, and lines that must stand after the assignment of it, with `{}` for the variable.

    Attributes:
        filled: the number in the expression that the whole tensor is filled with, where nobody has written to it.
    """

    expression: str
    after: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    filled: str = ""


def tensor_text(tensor: Tensor) -> Text:
    """The values of a tensor, dense: literal, one value with exceptions, or packed."""
    value = tensor.detach().cpu().contiguous()
    shape, sizes, dtype = shape_text(value.shape), tuple(value.shape), dtype_text(value.dtype)
    if value.numel() == 0:
        return Text(f"torch.empty({sizes}, dtype={dtype})")
    numbers = value.reshape(-1).to(torch.float64 if value.is_floating_point() else torch.int64).tolist()
    usual = max(set(numbers), key=numbers.count) if len(numbers) < 1 << 16 else numbers[0]
    others = [(at, number) for at, number in enumerate(numbers) if _differs(number, usual)]
    if len(others) <= _EXCEPTIONS and (len(numbers) > 4 or not others) and not math.isnan(usual):
        after = tuple(f"{{}}.view(-1)[{at}] = {_number(number)}" for at, number in others)
        return Text(f"torch.full({sizes}, {_number(usual)}, dtype={dtype})", after)
    if len(numbers) <= LITERAL:
        view = "" if value.dim() == 1 else f".view({shape})"
        return Text(f"torch.tensor([{', '.join(map(_number, numbers))}], dtype={dtype}){view}")
    packed = base64.b85encode(zlib.compress(value.view(torch.uint8).numpy().tobytes(), 9)).decode()
    pieces = " ".join(repr(packed[at : at + _PIECE]) for at in range(0, len(packed), _PIECE))
    raw = f"bytearray(zlib.decompress(base64.b85decode({pieces})))"
    return Text(f"torch.frombuffer({raw}, dtype={dtype}).view({shape})", imports=("import base64", "import zlib"))


def strided_text(tensor: Tensor, shape: Iterable[int]) -> tuple[str, ...]:
    """Lines that give a dense variable `{}` the strides of `tensor`, in a storage of NaN."""
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    view = f"as_strided({tuple(shape)}, {tuple(tensor.stride())})"
    return (f"{{0}} = torch.full(({reach},), math.nan, dtype={{0}}.dtype).{view}.copy_({{0}})",)


def shape_text(shape: Iterable[int]) -> str:
    return ", ".join(map(str, shape))


def dtype_text(dtype: torch.dtype) -> str:
    return str(dtype)


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return repr(value)


def _differs(a: float, b: float) -> bool:
    """-0.0 is another value than 0.0, and NaN is itself."""
    return not (a == b and math.copysign(1, a) == math.copysign(1, b)) and not (math.isnan(a) and math.isnan(b))
