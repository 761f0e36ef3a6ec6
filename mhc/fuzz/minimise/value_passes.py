"""Steps of the minimiser on the values and layouts of a case's tensors."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from mhc.case import Case
from mhc.fuzz.findings.ordering import KINDS, SEEDLESS
from mhc.inputs import materialise
from mhc.operator import TensorSpec
from mhc.recipe import CONTIGUOUS, Index, Layout, Recipe

Literal = tuple[Index, float]
Changes = Callable[[Case, str], Iterator[Recipe]]

_PLACES = 4
_SEEDS = (0, 1, 2)
_FEW = 8


def every(names: Sequence[str], change: Callable[[Recipe], Recipe]) -> Callable[[Case], Iterator[Case]]:
    """Return the step that changes several tensors at once."""

    def step(case: Case) -> Iterator[Case]:
        yield with_recipes(case, {name: change(case.tensors[name]) for name in names if case.has(name)})

    return step


def one(name: str, changes: Changes) -> Callable[[Case], Iterator[Case]]:
    """Return the step that tries changes of one tensor."""

    def step(case: Case) -> Iterator[Case]:
        if case.has(name):
            for recipe in changes(case, name):
                yield with_recipes(case, {name: recipe})

    return step


def without(name: str) -> Callable[[Case], Iterator[Case]]:
    """Return the step that removes an optional tensor."""

    def step(case: Case) -> Iterator[Case]:
        if case.has(name):
            yield replace(case, tensors={other: recipe for other, recipe in case.tensors.items() if other != name})

    return step


def only(kept: str, among: Sequence[str]) -> Callable[[Case], Iterator[Case]]:
    """Return the step that makes all of `among` zero except `kept`, which keeps its values or a single non-zero element."""

    def step(case: Case) -> Iterator[Case]:
        silent = {name: zeroed(case.tensors[name]) for name in among if case.has(name) and name != kept}
        if case.has(kept):
            for recipe in single_elements(case, kept):
                yield with_recipes(case, {**silent, kept: recipe})
            yield with_recipes(case, silent)

    return step


def with_recipes(case: Case, recipes: Mapping[str, Recipe]) -> Case:
    """Return `case` with other recipes for some tensors, each without fields that have no effect."""
    return replace(case, tensors={**case.tensors, **{name: tidy(recipe) for name, recipe in recipes.items()}})


def tidy(recipe: Recipe) -> Recipe:
    """Return a recipe of the same values without an unused seed, a scale of zeros, or an overwritten literal."""
    if recipe.kind == "constant" and recipe.scale == 0:
        recipe = replace(recipe, kind="zero")
    if recipe.kind == "zero":
        recipe = replace(recipe, scale=1.0, literals=tuple(pair for pair in recipe.literals if pair[1] != 0))
    if recipe.kind in SEEDLESS:
        recipe = replace(recipe, seed=0)
    if recipe.kind in {"zero", "constant"}:
        recipe = replace(recipe, period=0)
    if recipe.kind == "zero":
        recipe = replace(recipe, rows=0)
    return replace(recipe, literals=tuple(dict(recipe.literals).items()))


def unthinned(recipe: Recipe) -> Recipe:
    """Return a recipe without repetition, and with values in every row."""
    return replace(recipe, period=0, rows=0)


def zeroed(recipe: Recipe) -> Recipe:
    return replace(recipe, kind="zero", literals=())


def contiguous(recipe: Recipe) -> Recipe:
    return replace(recipe, layout=CONTIGUOUS)


def unmarked(recipe: Recipe) -> Recipe:
    return replace(recipe, literals=())


def seed_0(recipe: Recipe) -> Recipe:
    return replace(recipe, seed=0)


def scale_1(recipe: Recipe) -> Recipe:
    return replace(recipe, scale=1.0)


def single_elements(case: Case, name: str) -> Iterator[Recipe]:
    """Yield zeros with one element of 1 or of the present scale, at a few places and where literals are."""
    recipe, shape = case.tensors[name], _shape(case, name)
    if math.prod(shape) < 2:
        return
    for index in dict.fromkeys([*_places(shape), *(index for index, _ in recipe.literals)]):
        for value in _possible(case, name, dict.fromkeys((1.0, recipe.scale))):
            yield replace(recipe, kind="zero", literals=((index, value),))


def kinds(case: Case, name: str) -> Iterator[Recipe]:
    """Yield simpler kinds of values."""
    recipe = case.tensors[name]
    yield zeroed(recipe)
    yield from single_elements(case, name)
    simplest_first = KINDS if _spec(case, name).floating else _spec(case, name).kinds
    for kind in simplest_first[: simplest_first.index(recipe.kind)]:
        yield replace(recipe, kind=kind)


def scales(case: Case, name: str) -> Iterator[Recipe]:
    """Yield simpler scales."""
    recipe = case.tensors[name]
    for scale in numbers_below(recipe.scale):
        yield replace(recipe, scale=scale)


def seeds(case: Case, name: str) -> Iterator[Recipe]:
    """Yield the first few seeds."""
    recipe = case.tensors[name]
    if recipe.kind not in SEEDLESS:
        for seed in _SEEDS:
            yield replace(recipe, seed=seed)


def literals(case: Case, name: str) -> Iterator[Recipe]:
    """Yield fewer literals, then simpler values of each."""
    recipe = case.tensors[name]
    pairs = recipe.literals
    if pairs:
        yield unmarked(recipe)
    if len(pairs) > 3:
        half = len(pairs) // 2
        yield replace(recipe, literals=pairs[:half])
        yield replace(recipe, literals=pairs[half:])
    if len(pairs) > 1:
        for at in range(len(pairs)):
            yield replace(recipe, literals=pairs[:at] + pairs[at + 1 :])
    for at, (index, value) in enumerate(pairs):
        for simpler in _possible(case, name, numbers_below(value)):
            yield replace(recipe, literals=(*pairs[:at], (index, simpler), *pairs[at + 1 :]))


def first_places(case: Case) -> Iterator[Case]:
    """Yield the literals of all tensors at the first index of every axis, then of one axis; two are never brought to one."""
    sizes = case.sizes
    for names in dict.fromkeys((frozenset(sizes), *(frozenset({name}) for name in sizes))):
        moved = {}
        for spec in case.table.drawn:
            recipe = case.tensors[spec.name] if case.has(spec.name) else Recipe()
            placed = {
                tuple([0 if symbol in names else at for symbol, at in zip(spec.present(sizes), index, strict=True)]): value
                for index, value in recipe.literals
            }
            if recipe.literals and len(placed) == len(recipe.literals):
                moved[spec.name] = replace(recipe, literals=tuple(placed.items()))
        if moved:
            yield with_recipes(case, moved)


def layouts(case: Case, name: str) -> Iterator[Recipe]:
    """Yield plainer layouts: contiguous, or plainer in one field."""
    recipe = case.tensors[name]
    layout = recipe.layout
    if layout == CONTIGUOUS:
        return
    yield contiguous(recipe)
    plainer: list[Layout] = [replace(layout, **{part: getattr(CONTIGUOUS, part)}) for part in _LAYOUT_PARTS]
    plainer += [replace(layout, expand=tuple(dim for dim in layout.expand if dim != gone)) for gone in layout.expand]
    plainer += [replace(layout, step=2), replace(layout, pad=1), replace(layout, gap=1), replace(layout, offset=1)]
    for simpler in plainer:
        yield replace(recipe, layout=simpler)


_LAYOUT_PARTS = ("order", "expand", "step", "pad", "gap", "offset")


def written_out(case: Case, name: str) -> Iterator[Recipe]:
    """Yield the random values of a small tensor as a constant or as literals: powers of two, two digits, exact."""
    recipe, spec, shape = case.tensors[name], _spec(case, name), _shape(case, name)
    if spec.values is not None and spec.values.order:
        return  # its values cannot be written one by one
    if recipe.kind in SEEDLESS or not 0 < math.prod(shape) <= _FEW:
        return
    tensor = materialise(case).tensors[name]
    assert tensor is not None
    values = tensor.to(torch.float64)
    indices = [_unraveled(position, shape) for position in range(math.prod(shape))]
    for rounded in (_power_of_two, _two_digits, float) if spec.floating else (float,):
        pairs = [(index, spec.nearest(rounded(float(values[index])), case.sizes)) for index in indices]
        if len(pairs) == 1 and spec.floating:
            yield replace(recipe, kind="constant", scale=pairs[0][1], literals=()) if math.isfinite(pairs[0][1]) else recipe
        else:
            yield replace(recipe, kind="zero", literals=tuple(pairs))


def numbers_below(value: float) -> list[float]:
    """Return simpler numbers, of the same sign first: 1, powers of two between 1 and the value, two digits."""
    if math.isnan(value) or value == 0:
        return [1.0] if math.isnan(value) else []
    if math.isinf(value):
        return [math.copysign(1.0, value), abs(value)]
    sign = math.copysign(1.0, value)
    exponent = _exponent(value)
    toward = {exponent - int(exponent / 2**step) for step in range(1, 8)} | {exponent - 1, exponent, exponent + 1}
    powers = [sign * 2.0**power for power in (0, *sorted(toward, key=abs)) if -1074 <= power < 1024]
    return [one for one in dict.fromkeys([*powers, _two_digits(value), 1.0, abs(value)]) if one != value]


def _exponent(value: float) -> int:
    return round(math.log2(abs(value)))


def _power_of_two(value: float) -> float:
    return value if not math.isfinite(value) or value == 0 else math.copysign(2.0 ** _exponent(value), value)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _spec(case: Case, name: str) -> TensorSpec:
    return next(spec for spec in case.table.drawn if spec.name == name)


def _shape(case: Case, name: str) -> tuple[int, ...]:
    return _spec(case, name).shape(case.sizes)


def _possible(case: Case, name: str, values: Iterable[float]) -> list[float]:
    """Return those of the values that an element of the tensor may have."""
    spec = _spec(case, name)
    held = spec.values
    if held is None:
        return [value for value in values if spec.may_be(value)]
    return [] if held.order else [value for value in values if held.may_be(value, case.sizes)]


def _places(shape: Index) -> list[Index]:
    """Return a few indices, the first and the last among them; none if there are no elements."""
    count = math.prod(shape)
    flat = sorted({place * (count - 1) // (_PLACES - 1) for place in range(_PLACES)}) if count else []
    return [_unraveled(position, shape) for position in flat]


def _unraveled(position: int, shape: Index) -> Index:
    index: list[int] = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))
