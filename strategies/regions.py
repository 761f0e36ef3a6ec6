"""Labels of the regions in which a case lies, for `hypothesis.event` and for reports."""

import math
from collections.abc import Mapping

from mhc.case import Case
from mhc.operator import STORAGE_DTYPES, Operator
from mhc.recipe import Layout
from mhc.strategies.shapes import TILES, edges
from mhc.strategies.values import MASKED, maskable

_SIZES = (
    *((0, "0"), (1, "1"), (8, "2..8"), (64, "9..64"), (1024, "65..1024"), (8192, "1025..8192")),
    (math.inf, "over 8192"),
)
_SPECIAL = ("NaN", "infinity", "outlier")


def regions(case: Case) -> frozenset[str]:
    """Return the labels of `case`, each "aspect: value"; they depend on the case only."""
    labels = {f"dtype: {case.dtype}"}
    for name, symbol in _shown(case.table).items():
        if symbol in case.sizes:
            values = _size_labels(case.table, symbol)
            labels |= {f"{name}: {value}" for value in _of_size(case.sizes[symbol]) if value in values}
    labels |= {f"{name}: absent" for name in case.table.axis_names if name not in case.sizes}
    labels |= {f"{spec.name}: absent" for spec in case.table.drawn if spec.optional and not case.has(spec.name)}
    labels |= {f"{name}: {_epsilon(value)}" for name, value in case.scalars.items()}
    labels.add(f"upstream: {_upstream(case)}")
    usual = case.table.usual_exponents(case.sizes)
    for name, recipe in case.tensors.items():
        labels.add(f"{name}: {recipe.kind}")
        labels |= {f"layout: {word}" for word in _layout(recipe.layout)}
        exponent = math.log2(abs(recipe.scale)) - usual.get(name, 0) if recipe.scale else 0.0
        if recipe.kind != "zero" and abs(exponent) >= 4:
            labels.add(f"{name}: {'large' if exponent > 0 else 'small'}")
        for _, value in recipe.literals:
            labels |= {f"special: {_class(value)}", f"{name}: {_class(value)}"}
    if case.schedules:
        labels.add("schedule: pinned")
    return frozenset(labels)


def labels(operator: Operator) -> tuple[str, ...]:
    """Return every label that a drawn case can have, in the order of reports, so that reports can list empty regions.

    "schedule: pinned" is left out, since only implementations with a schedule can have it.
    """
    deep = any(len(spec.symbols) > 2 for spec in operator.drawn)
    aspects: dict[str, list[str]] = {
        **{name: _size_labels(operator, symbol) for name, symbol in _shown(operator).items()},
        "dtype": list(STORAGE_DTYPES),
        **{name: ["0", "tiny", "usual", "large"] for name in operator.scalars},
        "layout": ["contiguous", "transposed", "stepped", "padded", *(["gaps"] if deep else []), "offset", "expanded"],
        "special": list(_SPECIAL),
        "upstream": ["none", "one", "several", "one element", "with a special value"],
    }
    for spec in operator.drawn:
        extremes = ["large", "small", *_SPECIAL] if spec.floating else []
        kinds = [kind for kind in spec.kinds if kind != MASKED or spec in maskable(operator)]
        aspects[spec.name] = [*kinds, *extremes, *(["absent"] if spec.optional else [])]
    return tuple(f"{aspect}: {value}" for aspect, values in aspects.items() for value in values)


def _shown(operator: Operator) -> Mapping[str, str]:
    """Return the symbols whose sizes have labels, by their words."""
    return operator.size_labels or {axis.name: axis.name for axis in operator.axes}


def _size_labels(operator: Operator, symbol: str) -> list[str]:
    """Return the labels that the size of a symbol can have: for streams each number, else ranges."""
    axis = next((axis for axis in operator.axes if axis.name == symbol), None)
    ranges = [name for _, name in _SIZES]
    if axis is None:
        return [*ranges, "a tile", "beside a tile"]
    if symbol == operator.streams:
        return [str(size) for size in range(axis.least, axis.most + 1)]
    absent = ["absent"] if axis.leading else []
    return [*absent, *ranges[axis.least == 1 :], "8 mod 16", "a tile", "beside a tile"]


def _of_size(size: int) -> set[str]:
    """Return all labels of a size."""
    words = {str(size), next(name for most, name in _SIZES if size <= most)}
    if size in edges(TILES):
        words.add("a tile" if size in TILES else "beside a tile")
    return words | ({"8 mod 16"} if size % 16 == 8 else set())


def _epsilon(value: float) -> str:
    return "0" if value == 0 else "tiny" if value < 1e-9 else "usual" if value < 1e-3 else "large"


def _upstream(case: Case) -> str:
    live = [spec.name for spec in case.table.upstream if case.tensors[spec.name].kind != "zero"]
    if any(case.tensors[spec.name].literals for spec in case.table.upstream):
        return "one element" if not live else "with a special value"
    return {0: "none", 1: "one"}.get(len(live), "several")


def _layout(layout: Layout) -> set[str]:
    words = set()
    if layout.order and layout.order != tuple(range(len(layout.order))):
        words.add("transposed")
    if layout.step > 1:
        words.add("stepped")
    if layout.pad:
        words.add("padded")
    if layout.gap:
        words.add("gaps")
    if layout.offset:
        words.add("offset")
    if layout.expand:
        words.add("expanded")
    return words or {"contiguous"}


def _class(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "infinity" if math.isinf(value) else "outlier"
