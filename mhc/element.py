"""The words for one element of a tensor in messages."""

from collections.abc import Iterable

from torch import Tensor


def element_name(name: str, at: Iterable[int]) -> str:
    """Return an element's name: `dx[0, 17, 2, 640]`."""
    return f"{name}[{', '.join(map(str, at))}]"


def element_value(tensor: Tensor, at: tuple[int, ...]) -> str:
    """Return an element's value: nine digits of a float, all of an integer."""
    value = tensor[at].item()
    return f"{value:.9g}" if isinstance(value, float) else str(int(value))
