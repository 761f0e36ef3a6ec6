"""Whole cases of an operator, drawn from its table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hypothesis import strategies as st

from mhc.case import Case, ScheduleValue
from mhc.operator import STORAGE_DTYPES
from mhc.operators import OPERATORS
from strategies.schedules import schedules
from strategies.shapes import shapes
from strategies.values import layouts, recipes, special_values

DTYPES = ("float32", "bfloat16", "float16", "float64")
EPSILONS = (1e-6, 0.0, 1e-12, 0.125, 1.0)

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
) -> Case:
    """One case: shape, dtype, hyper-parameters, for each tensor a recipe and a layout, and now and then a kernel schedule.

    Args:
        dtypes: of x, simplest first.
        max_elements: of the largest tensor.
        special: admit NaN, infinities and outliers.
        spaces: by implementation, the schedules that it declares.
    """
    table = OPERATORS[operator]
    B, S, n, D = draw(shapes(max_n=table.max_n, max_elements=max_elements))
    sizes = table.sizes(B, S, n, D)
    dtype = draw(st.sampled_from(dtypes))
    present = [spec for spec in table.drawn if not spec.optional or draw(st.booleans())]
    strided = draw(st.booleans())
    spoilt = draw(st.sampled_from([None, *(spec.name for spec in present)])) if special and draw(st.booleans()) else None
    tensors = {}
    for spec in present:
        recipe, shape = draw(recipes()), spec.shape(sizes)
        if strided:
            recipe = replace(recipe, layout=draw(layouts(len(shape))))
        if spec.name == spoilt:
            recipe = replace(recipe, literals=draw(special_values(shape)))
        tensors[spec.name] = recipe
    scalars = {name: draw(st.sampled_from(EPSILONS)) for name in table.scalars}
    drawn = {name: draw(schedules(spaces[name])) for name in sorted(spaces)}
    pinned = {name: schedule for name, schedule in drawn.items() if schedule}
    return Case(operator=operator, B=B, S=S, n=n, D=D, dtype=dtype, tensors=tensors, scalars=scalars, schedules=pinned)
