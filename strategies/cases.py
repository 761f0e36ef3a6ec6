"""Whole cases of an operator, drawn from its table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hypothesis import event
from hypothesis import strategies as st

from mhc.case import Case, ScheduleValue
from mhc.operator import STORAGE_DTYPES, Operator
from mhc.operators import OPERATORS
from mhc.recipe import Recipe
from strategies.choice import choice
from strategies.layouts import laid_out
from strategies.reach import Reach, reached
from strategies.regions import regions
from strategies.schedules import schedules, tiles
from strategies.shapes import TILES, shapes
from strategies.values import EXPONENTS, KINDS, one_hot, special_values

DTYPES = ("float32", "bfloat16", "float16", "float64")
EPSILONS = (1e-6, 1e-6, 0.0, 1e-12, 0.125, 1.0, 64.0)
UPSTREAM = ("as drawn", "as drawn", "as drawn", "as drawn", "one of them", "one element", "none", "huge", "tiny")

assert set(DTYPES) == set(STORAGE_DTYPES)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    operator: str = "mhc_pre",
    dtypes: tuple[str, ...] = DTYPES,
    max_elements: int = 1 << 15,
    special: bool = True,
    spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]] = MappingProxyType({}),
    like: Case | None = None,
    reach: Reach = Reach.USUAL,
) -> Case:
    """One case: shape, dtype, hyper-parameters, for each tensor a recipe and a layout, and now and then a kernel schedule.

    Scales are as in a model (`Operator.usual_exponents`) but for one tensor in some cases, and for a regime in some.

    Args:
        dtypes: of x, simplest first.
        max_elements: of the largest tensor.
        special: admit NaN, infinities and outliers.
        spaces: by implementation, the schedules that it declares.
        like: a case whose n, D, dtype, optional tensors and schedules are taken, which compiled programs depend on.
    """
    table = OPERATORS[operator]
    beside = tiles(spaces) or TILES
    kept = None if like is None else (like.n, like.D)
    if reach is Reach.USUAL:
        B, S, n, D = draw(shapes(max_n=table.max_n, max_elements=max_elements, tiles=beside, like=kept))
    else:
        B, S, n, D = draw(reached(reach, max_elements))
    sizes = table.sizes(B, S, n, D)
    if like is None:
        dtype = draw(choice(dtypes))
        present = [spec for spec in table.drawn if not spec.optional or draw(st.booleans())]
    else:
        dtype = like.dtype
        present = [spec for spec in table.drawn if like.has(spec.name)]
    tensors = _values(draw, table, sizes, [spec.name for spec in present])
    if draw(st.integers(0, 2)) == 2:
        tensors = draw(laid_out(tensors, {spec.name: len(spec.symbols) for spec in present}))
    if special and draw(st.integers(0, 3)) == 3:
        # x above all, and what comes from outside at run time more often than parameters
        spec = draw(st.sampled_from([*(present[0],) * 3, *present, *table.upstream * 2]))
        tensors[spec.name] = replace(tensors[spec.name], literals=draw(special_values(spec.shape(sizes))))
    scalars = {name: draw(choice(EPSILONS)) for name in table.scalars}
    if like is None:
        drawn = {name: draw(schedules(spaces[name])) for name in sorted(spaces)}
    else:
        drawn = {name: dict(schedule) for name, schedule in like.schedules.items()}
    pinned = {name: schedule for name, schedule in drawn.items() if schedule}
    case = Case(operator=operator, B=B, S=S, n=n, D=D, dtype=dtype, tensors=tensors, scalars=scalars, schedules=pinned)
    for label in sorted(regions(case)):
        event(label)
    return case


def _values(draw: st.DrawFn, table: Operator, sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, Recipe]:
    """A recipe for each tensor."""
    first = draw(st.integers(0, 2**16 - 1))
    usual = table.usual_exponents(sizes)
    odd = draw(choice((*(None,) * len(names), *names)))
    exponent = draw(choice(EXPONENTS)) if odd is not None else 0
    tensors = {}
    for at, name in enumerate(names):
        scale = usual.get(name, 0) + (exponent if name == odd else 0)
        tensors[name] = Recipe(kind=draw(choice(KINDS)), scale=2.0**scale, seed=first + at)
    regime = draw(choice((*(None,) * (2 * len(table.regimes) + 1), *table.regimes)))
    if regime is not None:
        for name, (kind, power) in table.regimes[regime].items():
            tensors[name] = replace(tensors[name], kind=kind or tensors[name].kind, scale=2.0**power)
    upstream = [spec.name for spec in table.upstream]
    match draw(choice(UPSTREAM)):
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
    return tensors
