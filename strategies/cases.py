"""The strategy for whole cases of an operator, built from its table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from hypothesis import event
from hypothesis import strategies as st

from mhc.case import Case, ScheduleValue
from mhc.implementation import Implementation
from mhc.operator import DEFAULT, OPERATORS, STORAGE_DTYPES, Operator, Regime, TensorSpec
from mhc.recipe import Recipe
from mhc.strategies.choice import choice
from mhc.strategies.layouts import laid_out
from mhc.strategies.reach import ACTIVE, PERIOD, Reach, alike_sizes, model_sizes, own_sizes, rounded_sizes, stretched_sizes
from mhc.strategies.regions import regions
from mhc.strategies.schedules import schedules, tiles
from mhc.strategies.shapes import TILES, Limit, plain_shapes
from mhc.strategies.values import (
    BELOW_1,
    MASKED,
    ONE_SIZE,
    exponents,
    filling,
    kinds_of,
    maskable,
    one_hot,
    special_values,
)

DTYPES = ("float32", "bfloat16", "float16", "float64")
TRIES = 12
"""How often a case is drawn again that the implementation does not take."""
UPSTREAM = ("as drawn", "as drawn", "as drawn", "as drawn", "one of them", "one element", "none", "huge", "tiny")

assert set(DTYPES) == set(STORAGE_DTYPES)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    operator: str = DEFAULT,
    dtypes: tuple[str, ...] = DTYPES,
    max_elements: int = 1 << 15,
    special: bool = True,
    spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]] = MappingProxyType({}),
    like: Case | None = None,
    alike: bool = False,
    reach: Reach = Reach.USUAL,
    accepts: Callable[[Case], bool] = lambda case: True,
) -> Case:
    """Draw a case: shape, dtype, hyper-parameters, a recipe and a layout for each tensor, and sometimes kernel schedules.

    Scales are as in a model (`Operator.usual_exponents`), except for one tensor, all, or those of a regime in some cases.

    Args:
        dtypes: dtypes of cases, simplest first.
        max_elements: elements of the largest tensor; at model sizes, of x.
        special: allow NaN, infinities and outliers.
        spaces: declared schedule spaces by implementation.
        like: a case whose dtype, optional tensors and schedules are kept, and the sizes that `Operator.draw_sizes` keeps, so
            that compiled programs can be reused.
        alike: the cases also keep the class of its numbers of tokens (`alike_sizes`); for other than `Reach.USUAL` always.
        reach: the kind of sizes. At model sizes, values repeat and few tokens have a gradient, for a cheap reference.
        accepts: returns whether the implementation takes a case. Others are drawn again a few times, then with some sizes
            rounded to multiples of a tile, which kernels ask for; the last one is returned in any case.
    """
    drawn = partial(_case, draw, OPERATORS[operator], dtypes, max_elements, special, spaces, like, alike, reach)
    case = drawn(rounded=False)
    for attempt in range(TRIES):
        if accepts(case):
            break
        case = drawn(rounded=like is None and attempt > 0)
    for label in sorted(regions(case)):
        event(label)
    return case


def cases_of(implementation: Implementation, device: str, **options: Any) -> st.SearchStrategy[Case]:
    """Return the strategy for cases that an implementation takes on a device, in its dtypes and with its schedules.

    Args:
        options: further ones of `cases`.
    """
    return cases(
        operator=implementation.table.name,
        dtypes=implementation.table.different(dtype for dtype in DTYPES if dtype in implementation.dtypes),
        spaces={implementation.name: implementation.space} if implementation.space else {},
        accepts=lambda case: implementation.takes(case, device),
        **options,
    )


def _case(
    draw: st.DrawFn,
    table: Operator,
    dtypes: tuple[str, ...],
    max_elements: int,
    special: bool,
    spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]],
    like: Case | None,
    alike: bool,
    reach: Reach,
    *,
    rounded: bool,
) -> Case:
    """Draw one case; the arguments are those of `cases`."""
    dtype = draw(choice(dtypes)) if like is None else like.dtype
    optional = [spec.name for spec in table.drawn if spec.optional]
    absent = frozenset(name for name in optional if not (draw(st.booleans()) if like is None else like.has(name)))
    limit = Limit(table, max_elements, absent)
    if like is not None and (alike or reach is not Reach.USUAL):
        sizes = draw(alike_sizes(limit, like.sizes))
    else:
        sizes = draw(_sizes(limit, reach, tiles(spaces) or TILES, None if like is None else like.sizes))
    if rounded:
        sizes = draw(rounded_sizes(limit, sizes))
    present = [spec for spec in table.drawn if spec.name not in absent]
    tensors, regime_scalars = _values(draw, table, sizes, present)
    if reach is Reach.MODEL:
        tensors = {spec.name: _thinned(tensors[spec.name], spec, table, sizes) for spec in present}
    if draw(st.integers(0, 2)) == 2:
        ranks = {spec.name: len(spec.shape(sizes)) for spec in present}
        different = [spec.name for spec in present if spec.values is not None and spec.values.uneven]
        written = [spec.name for spec in present if spec.name in table.mutates]
        laid = laid_out(tensors, ranks, expand=reach is not Reach.MODEL, different=different, written=written)
        tensors = draw(laid)
    floating = [spec for spec in present if spec.floating]
    if special and floating and draw(st.integers(0, 3)) == 3:
        _mark(draw, tensors, floating, table, sizes)
    for spec in maskable(table) if special and table.gradients else ():
        # a mask that is added to scores has no gradient, where other inputs have one
        if spec in present and not spec.differentiable and draw(st.integers(0, 9)) == 9:
            tensors[spec.name] = replace(tensors[spec.name], kind=MASKED)
    scalars = {**{name: draw(choice(table.scalar_choices[name])) for name in table.scalars}, **regime_scalars}
    if like is None:
        drawn = {name: draw(schedules(spaces[name])) for name in sorted(spaces)}
    else:
        drawn = {name: dict(schedule) for name, schedule in like.schedules.items()}
    pinned = {name: schedule for name, schedule in drawn.items() if schedule}
    return Case(operator=table.name, sizes=sizes, dtype=dtype, tensors=tensors, scalars=scalars, schedules=pinned)


def _mark(
    draw: st.DrawFn, tensors: dict[str, Recipe], floating: Sequence[TensorSpec], table: Operator, sizes: Mapping[str, int]
) -> None:
    """Give one tensor, or two, a special element, or one input runs of -infinity, as a mask that is added has them.

    In one case of four, what has the same shape has it too: states that are merged may be empty at the same place. Of a
    declared operator, in one of four another input has zeros, which a kernel may skip where they meet an infinity.
    """
    inputs = [spec for spec in maskable(table) if spec in floating]
    if inputs and draw(st.integers(0, 3)) == 3:
        spec = draw(st.sampled_from(inputs))
        for one in (spec, *_with(draw, spec, inputs)):
            tensors[one.name] = replace(tensors[one.name], kind=MASKED)
        return
    # x most often, and tensors of run time more often than parameters
    chosen = [draw(st.sampled_from([*(floating[0],) * 3, *floating, *table.upstream * 2]))]
    if table.upstream and draw(st.integers(0, 2)) == 2:  # the backward has classes of its own
        chosen.append(draw(st.sampled_from(table.upstream)))
    alike = [spec for spec in floating if spec in table.inputs]
    declared = bool(maskable(table))
    for spec in chosen:
        literals = draw(special_values(spec, spec.shape(sizes)))
        for one in (spec, *_with(draw, spec, alike)):
            if all(one.may_be(value) for _, value in literals):
                tensors[one.name] = replace(tensors[one.name], literals=literals)
        others = [one for one in alike if one is not spec and "sparse" in one.kinds]
        if declared and others and draw(st.integers(0, 3)) == 3:
            other = draw(st.sampled_from(others))
            tensors[other.name] = replace(tensors[other.name], kind="sparse")


def _with(draw: st.DrawFn, spec: TensorSpec, others: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Draw which of `others`, if `spec` is one of them, have the same as it: all of its shape, or none."""
    alike = tuple(one for one in others if spec in others and one is not spec and one.symbols == spec.symbols)
    return alike if alike and draw(st.integers(0, 3)) == 3 else ()


def _sizes(
    limit: Limit, reach: Reach, beside: tuple[int, ...], like: Mapping[str, int] | None
) -> st.SearchStrategy[Mapping[str, int]]:
    """Return the strategy for the sizes of all symbols."""
    if limit.table.draw_sizes is not None:
        return own_sizes(table=limit.table, reach=reach, max_elements=limit.max_elements, tiles=beside, like=like)
    match reach:
        case Reach.USUAL:
            return plain_shapes(limit, beside)
        case Reach.STRETCHED:
            return stretched_sizes(limit)
        case Reach.MODEL:
            return model_sizes(limit)


def _thinned(recipe: Recipe, spec: TensorSpec, table: Operator, sizes: Mapping[str, int]) -> Recipe:
    """Return the recipe for many tokens: inputs repeat, and all but a few rows of upstream gradients are zero."""
    lead = [sizes[symbol] for symbol in table.tokens if symbol in sizes]
    tokens = math.prod(lead)
    if not table.per_token(spec) or tokens <= PERIOD:
        return recipe
    if spec in table.upstream:
        return replace(recipe, rows=ACTIVE)
    return replace(recipe, period=PERIOD * math.prod(spec.shape(sizes)[len(lead) :]))


def _values(
    draw: st.DrawFn, table: Operator, sizes: Mapping[str, int], present: Sequence[TensorSpec]
) -> tuple[dict[str, Recipe], Mapping[str, float]]:
    """Draw a recipe for each tensor; return the recipes and the scalars of a regime."""
    first = draw(st.integers(0, 2**16 - 1))
    usual = table.usual_exponents(sizes)
    names = [spec.name for spec in present if spec.floating]
    rescaled = draw(choice((*((),) * len(names), *((name,) for name in names), tuple(names))))
    exponent = draw(exponents()) if rescaled else 0
    tensors, declared = {}, maskable(table)
    for at, spec in enumerate(present):
        scale = usual.get(spec.name, 0) + (exponent if spec.name in rescaled else 0)
        if spec.name not in rescaled and (far := filling(spec)) and draw(st.booleans()):
            scale = far
        kind = draw(choice(kinds_of(table, spec, spec.shape(sizes))))
        size = 2.0**scale if spec.floating else 1.0
        if kind in ONE_SIZE and spec in declared and draw(st.integers(0, 3)) == 3:
            size = BELOW_1 * 2.0 ** (3 if -2 < scale < 3 else scale)
        tensors[spec.name] = Recipe(kind=kind, scale=size, seed=first + at)
    named = draw(choice((*(None,) * (2 * len(table.regimes) + 1), *table.regimes)))
    regime = Regime(tensors={}) if named is None else table.regimes[named]
    for name, (other, least, most) in regime.tensors.items():
        tensors[name] = replace(tensors[name], kind=other or tensors[name].kind, scale=2.0 ** draw(st.integers(least, most)))
    upstream = [spec.name for spec in table.upstream]
    match draw(choice(UPSTREAM)) if upstream else "as drawn":
        case "one of them":
            kept = draw(st.sampled_from(upstream))
            tensors.update({name: replace(tensors[name], kind="zero") for name in upstream if name != kept})
        case "one element":
            shapes_of = {spec.name: spec.shape(sizes) for spec in table.upstream}
            kept = draw(st.sampled_from(upstream))
            tensors.update({name: replace(tensors[name], kind="zero") for name in upstream})
            tensors[kept] = replace(tensors[kept], literals=draw(one_hot(shapes_of[kept])))
        case "none":
            tensors.update({name: replace(tensors[name], kind="zero") for name in upstream})
        case "huge":
            tensors.update({name: replace(tensors[name], scale=2.0**40) for name in upstream})
        case "tiny":
            tensors.update({name: replace(tensors[name], scale=2.0**-100) for name in upstream})
    return tensors, regime.scalars
