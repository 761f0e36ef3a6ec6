"""Steps of the reducer on a case's sizes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from mhc.case import Case

DIMENSIONS = ("B", "S", "n", "D")
"""Tokens first: most bugs need few of them, and what is left is cheaper to check."""


def to_ones(*names: str) -> Callable[[Case], Iterator[Case]]:
    """The step that makes several dimensions 1 at once."""

    def step(case: Case) -> Iterator[Case]:
        if any(getattr(case, name) != 1 for name in names):
            yield from resized(case, dict.fromkeys(names, 1))

    return step


def smaller(name: str) -> Callable[[Case], Iterator[Case]]:
    """The step that makes one dimension smaller."""

    def step(case: Case) -> Iterator[Case]:
        for size in sizes_below(getattr(case, name)):
            yield from resized(case, {name: size})

    return step


def merged(one: str, other: str) -> Callable[[Case], Iterator[Case]]:
    """The step that moves a dimension into another: their product stays."""

    def step(case: Case) -> Iterator[Case]:
        product = getattr(case, one) * getattr(case, other)
        if getattr(case, one) > 1 and product:
            yield from resized(case, {one: 1, other: product})

    return step


def sizes_below(size: int) -> list[int]:
    """Smaller sizes worth trying, smallest first: 1, 2, 3, the same remainder of a power of two, halfway, one less.

    Of nothing there is no less, but one element is simpler.
    """
    if size == 0:
        return [1]
    powers = [1 << bit for bit in range(size.bit_length())]
    close = {size - power for power in powers}
    alike = {size % power for power in powers if power >= 8}
    halfway = {size - size // power for power in powers if power > 1}
    return sorted(one for one in {1, 2, 3} | close | alike | halfway if 0 < one < size)


def resized(case: Case, changes: Mapping[str, int]) -> Iterator[Case]:
    """`case` in another shape, with literals outside of it moved to its edge; then, if there were any, without those."""
    shape = {name: changes.get(name, getattr(case, name)) for name in DIMENSIONS}
    sizes = case.table.sizes(*(shape[name] for name in DIMENSIONS))
    moved, dropped = {}, {}
    for spec in case.table.drawn:
        if not case.has(spec.name):
            continue
        recipe, extent = case.tensors[spec.name], spec.shape(sizes)
        inside = [
            literal for literal in recipe.literals if all(i < size for i, size in zip(literal[0], extent, strict=True))
        ]
        edge = {} if 0 in extent else {_clipped(index, extent): value for index, value in recipe.literals}
        moved[spec.name] = replace(recipe, literals=tuple(edge.items()))
        dropped[spec.name] = replace(recipe, literals=tuple(inside))
    yield replace(case, tensors=moved, **shape)
    if moved != dropped:
        yield replace(case, tensors=dropped, **shape)


def _clipped(index: tuple[int, ...], extent: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(i, size - 1) for i, size in zip(index, extent, strict=True))
