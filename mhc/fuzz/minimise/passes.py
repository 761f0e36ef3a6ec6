"""The steps of the minimiser in their order, biggest first, made from an operator's table."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from mhc.case import Case
from mhc.fuzz.minimise.shape_passes import merged, resized, smaller, to_ones, without_axis
from mhc.fuzz.minimise.value_passes import (
    contiguous,
    every,
    first_places,
    kinds,
    layouts,
    literals,
    one,
    only,
    scale_1,
    scales,
    seed_0,
    seeds,
    unmarked,
    unthinned,
    without,
    written_out,
    zeroed,
)
from mhc.fuzz.minimise.value_passes import with_recipes as _with
from mhc.operator import Operator
from mhc.strategies.cases import DTYPES

Step = Callable[[Case], Iterable[Case]]
"""Yields candidates for a case, the boldest first; those that are no simpler are skipped."""


def early(table: Operator) -> tuple[Step, ...]:
    """Return the steps that do not write values out."""
    names = [spec.name for spec in table.drawn]
    upstream = [spec.name for spec in table.upstream]
    return (
        nothing_special,
        unpinned,
        to_ones(*table.axis_names),
        *(without_axis(axis.name) for axis in reversed(table.axes) if axis.leading),
        to_ones(*table.tokens),
        to_ones(*table.widths),
        # tokens first: most bugs need few of them, and fewer tokens make every later check cheaper
        *(smaller(name) for name in (*table.tokens, *table.widths)),
        *(merged(one, other) for axes in (table.tokens, table.widths) for one, other in pairwise(axes)),
        every(names, contiguous),
        every(names, unmarked),
        every(names, unthinned),
        dtypes,
        *(without(spec.name) for spec in table.drawn if spec.optional),
        *(scalar(name) for name in table.scalars),
        every(upstream, zeroed),
        *(only(name, upstream) for name in upstream),
        every(names, scale_1),
        every(names, seed_0),
        first_places,
        *(
            one(spec.name, changes)
            for spec in table.drawn
            for changes in (layouts, literals, kinds, *((scales,) if spec.floating else ()), seeds)
        ),
    )


def late(table: Operator) -> tuple[Step, ...]:
    """Return the steps that write random values of small tensors out. They come last: a literal has a fixed place."""
    return tuple(one(spec.name, written_out) for spec in table.drawn)


def nothing_special(case: Case) -> Iterator[Case]:
    """Yield one token, one stream, width 1 and zeros, where some bugs fail too; then zeros in the full shape."""
    plain = replace(case, dtype=DTYPES[0], scalars=case.table.scalars, schedules={})
    plain = _with(plain, {name: contiguous(zeroed(recipe)) for name, recipe in case.tensors.items()})
    for spec in case.table.drawn:
        if spec.optional:
            plain = next(iter(without(spec.name)(plain)), plain)
    yield from resized(plain, {name: max(1, case.table.axis(name).least) for name in case.axes})
    yield plain


def unpinned(case: Case) -> Iterator[Case]:
    """Yield the case with fewer pinned schedules: none, one implementation's less, one choice less."""
    if case.schedules:
        yield replace(case, schedules={})
    for name, schedule in case.schedules.items():
        others = {other: kept for other, kept in case.schedules.items() if other != name}
        yield replace(case, schedules=others)
        for key in schedule:
            left = {other: value for other, value in schedule.items() if other != key}
            yield replace(case, schedules={**others, name: left})


def dtypes(case: Case) -> Iterator[Case]:
    """Yield the case in simpler dtypes."""
    for dtype in DTYPES[: DTYPES.index(case.dtype)]:
        yield replace(case, dtype=dtype)


def scalar(name: str) -> Step:
    """Return the step that sets one scalar to its default, or else to 1 or 0 if these are drawn for it."""

    def step(case: Case) -> Iterator[Case]:
        table = case.table
        drawn = [value for value in (1.0, 0.0) if value in table.scalar_choices[name]]
        for value in (table.scalars[name], *drawn):
            yield replace(case, scalars={**case.scalars, name: value})

    return step
