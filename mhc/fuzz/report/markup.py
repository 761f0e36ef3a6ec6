"""Markup that cannot be forgotten to be escaped: elements are built, and whatever is not markup already is text."""

import re
from collections.abc import Iterable
from html import escape

from mhc.terminal import safe

Child = str | int | None | Iterable["Child"]

_VOID = frozenset({"br", "meta"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. Attributes: `class_` is written class, `stroke_width` stroke-width; one that is None is left out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        written = key.rstrip("_").replace("_", "-")
        assert _NAME.fullmatch(written), key
        if value is not None:
            parts.append(f' {written}="{escape(safe(_number(value)))}"')
    if name in _VOID:
        return Markup("".join([*parts, "/>"]))
    return Markup("".join([*parts, ">", *_flat(children), f"</{name}>"]))


def join(*children: Child) -> Markup:
    """Children without an element around them."""
    return Markup("".join(_flat(children)))


def _number(value: str | float) -> str:
    """Coordinates to a tenth: what a picture of this size shows."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, (str, int)):
            yield escape(safe(str(child)))
        elif child is not None:
            yield from _flat(child)
