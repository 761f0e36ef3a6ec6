"""The order of cases by simplicity, which the minimiser descends."""

import math

from mhc.case import Case
from mhc.drawn_case import DrawnCase
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import language_of
from mhc.recipe import INTEGER_KINDS, RECIPE_KINDS, Layout, Recipe
from mhc.strategies.cases import DTYPES

KINDS = (
    *("zero", "constant", "alternating", "sign", "exact", "normal"),
    *("sparse", "zero_rows", "offset", "cancelling", "row_scaled", "column_scaled", "masked"),
)
"""Kinds of values, simplest first, as `INTEGER_KINDS` are."""
SEEDLESS = frozenset({"zero", "constant", "alternating", "sentinel", "ascending"})
"""Kinds without random values."""

_ONE_ELEMENT, _CONSTANT, _ALTERNATING, _FEW_ELEMENTS, _OTHERS = range(1, 6)

assert set(KINDS) == set(RECIPE_KINDS)


def rank(case: DrawnCase) -> tuple[object, ...]:
    """Return a tuple that is smaller for simpler cases: pinned schedules, sizes, dtype, scalars, values, layouts, places."""
    if isinstance(case, DrawnProgram):
        return language_of(case).rank(case)
    pinned = sum(1 + len(schedule) for schedule in case.schedules.values())
    shape = tuple(case.sizes[name] or math.inf if name in case.sizes else 0 for name in case.table.axis_names)
    tensors = tuple((1, *_recipe(case.tensors[spec.name])) if case.has(spec.name) else (0,) for spec in case.table.drawn)
    places = sum(sum(index) for recipe in case.tensors.values() for index, _ in recipe.literals)
    return pinned, _volume(case), shape, DTYPES.index(case.dtype), scalars_rank(case), tensors, places


def elements(case: DrawnCase) -> int:
    """Return the number of elements of the operator's first input, x; of a program, of all its buffers."""
    if isinstance(case, DrawnProgram):
        return language_of(case).elements(case)
    return math.prod(case.table.inputs[0].shape(case.sizes))


def scalars_rank(case: Case) -> tuple[int, ...]:
    """Return for each scalar 0 to 3: its default, one, zero, anything else."""
    order = [(default, 1.0, 0.0) for default in case.table.scalars.values()]
    values = [case.scalars[name] for name in case.table.scalars]
    return tuple(known.index(value) if value in known else 3 for known, value in zip(order, values, strict=True))


def number_rank(value: float) -> tuple[int, int, bool]:
    """Return a rank: zero, powers of two by distance from 1, two digits, others, infinity, NaN; positive first."""
    if math.isnan(value):
        return 6, 0, False
    if math.isinf(value):
        return 5, 0, value < 0
    if value == 0:
        return 0, 0, math.copysign(1.0, value) < 0
    mantissa, exponent = math.frexp(abs(value))
    if mantissa == 0.5:
        return 1, abs(exponent - 1), value < 0
    return (2 if float(f"{value:.2g}") == value else 3), abs(math.frexp(value)[1]), value < 0


def _volume(case: Case) -> float:
    """Return the elements of all tensors; infinity without tokens, which is a special case and not a simple one."""
    if case.token_count == 0:
        return math.inf
    return sum(math.prod(spec.shape(case.sizes)) for spec in case.table.drawn)


def _recipe(recipe: Recipe) -> tuple[object, ...]:
    literals = tuple(sorted(number_rank(value) for _, value in recipe.literals))
    thinned = bool(recipe.period) + bool(recipe.rows)
    values = _shape_of_values(recipe), thinned, len(literals), literals, number_rank(recipe.scale), recipe.seed
    return *values, _layout(recipe.layout)


def _shape_of_values(recipe: Recipe) -> int:
    count = len(recipe.literals)
    match recipe.kind:
        case "zero":
            return 0 if not count else _ONE_ELEMENT if count == 1 else _FEW_ELEMENTS
        case "constant" if not count:
            return _CONSTANT
        case "alternating" if not count:
            return _ALTERNATING
    return _OTHERS + (KINDS if recipe.kind in KINDS else INTEGER_KINDS).index(recipe.kind)


def _layout(layout: Layout) -> tuple[int, ...]:
    return len(layout.order), len(layout.expand), layout.step, layout.pad, layout.gap, layout.offset
