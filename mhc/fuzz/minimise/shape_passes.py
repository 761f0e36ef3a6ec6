"""Steps of the minimiser on the sizes of a case."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from mhc.case import Case
from mhc.recipe import Index, Recipe


def to_ones(*names: str) -> Callable[[Case], Iterator[Case]]:
    """Return the step that makes several dimensions 1 at once."""

    def step(case: Case) -> Iterator[Case]:
        there = [name for name in names if name in case.sizes]
        if any(case.sizes[name] != 1 for name in there):
            yield from resized(case, dict.fromkeys(there, 1))

    return step


def smaller(name: str) -> Callable[[Case], Iterator[Case]]:
    """Return the step that makes one dimension smaller."""

    def step(case: Case) -> Iterator[Case]:
        for size in sizes_below(case.sizes[name], case.table.axis(name).least) if name in case.sizes else ():
            yield from resized(case, {name: size})

    return step


def merged(one: str, other: str) -> Callable[[Case], Iterator[Case]]:
    """Return the step that moves one dimension into another, with the same product."""

    def step(case: Case) -> Iterator[Case]:
        if one not in case.sizes or other not in case.sizes:
            return
        product = case.sizes[one] * case.sizes[other]
        if case.sizes[one] > 1 and product:
            yield from resized(case, {one: 1, other: product})

    return step


def without_axis(name: str) -> Callable[[Case], Iterator[Case]]:
    """Return the step that removes a leading axis."""

    def step(case: Case) -> Iterator[Case]:
        sizes = {other: size for other, size in case.sizes.items() if other != name}
        if name in case.sizes and case.table.problem(sizes) is None:
            tensors = {}
            for spec in case.table.drawn:
                if case.has(spec.name):
                    present = spec.present(case.sizes)
                    at = present.index(name) if name in present else None
                    tensors[spec.name] = _without_dimension(case.tensors[spec.name], at)
            yield replace(case, tensors=tensors, sizes=sizes)

    return step


def _without_dimension(recipe: Recipe, at: int | None) -> Recipe:
    """Return the recipe of a tensor that loses one dimension; of two literals that then have one place, the last is kept."""
    if at is None:
        return recipe
    order, expand = (
        tuple(dim - (dim > at) for dim in dims if dim != at) for dims in (recipe.layout.order, recipe.layout.expand)
    )
    literals = {(*index[:at], *index[at + 1 :]): value for index, value in recipe.literals}
    layout = replace(recipe.layout, order=order, expand=expand)
    return replace(recipe, literals=tuple(literals.items()), layout=layout)


def sizes_below(size: int, least: int = 1) -> list[int]:
    """Return smaller sizes to try, smallest first: the three least, the remainder by a power of two, halfway, one less.

    Size 0 cannot shrink; try 1, which is simpler.
    """
    least = max(1, least)
    if size == 0:
        return [1]
    powers = [1 << bit for bit in range(size.bit_length())]
    close = {size - power for power in powers}
    alike = {size % power for power in powers if power >= 8}
    halfway = {size - size // power for power in powers}
    return sorted(one for one in {least, least + 1, least + 2} | close | alike | halfway if least <= one < size)


def resized(case: Case, changes: Mapping[str, int]) -> Iterator[Case]:
    """Yield `case` in another shape, with literals outside of it at its edge, at their distance from the end, or dropped."""
    before = case.sizes
    if case.table.problem({**before, **changes}) is not None:
        return
    after = case.table.sizes({**before, **changes})
    given = set()
    for place in (_at_the_edge, _from_the_end, _inside):
        tensors = {}
        for spec in case.table.drawn:
            if case.has(spec.name):
                recipe, old, new = case.tensors[spec.name], spec.shape(before), spec.shape(after)
                placed = [(place(index, old, new), value) for index, value in recipe.literals] if 0 not in new else []
                # two literals at one place become one
                literals = {index: spec.nearest(value, after) for index, value in placed if index is not None}
                period = 0 if spec.values is not None and spec.values.order else recipe.period
                tensors[spec.name] = replace(recipe, literals=tuple(literals.items()), period=period)
        made = replace(case, tensors=tensors, sizes=after)
        if made not in given:
            given.add(made)
            yield made


def _at_the_edge(index: Index, old: Index, new: Index) -> Index:
    del old
    return tuple(min(i, size - 1) for i, size in zip(index, new, strict=True))


def _from_the_end(index: Index, old: Index, new: Index) -> Index:
    return tuple(max(0, size - (was - i)) for i, was, size in zip(index, old, new, strict=True))


def _inside(index: Index, old: Index, new: Index) -> Index | None:
    del old
    return index if all(i < size for i, size in zip(index, new, strict=True)) else None
