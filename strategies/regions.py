"""Labels of the regions in which a case lies, for `hypothesis.event` and for reports."""

import math

from mhc.case import Case
from mhc.operator import STORAGE_DTYPES, Operator
from mhc.recipe import Layout
from strategies.shapes import TILES, edges

_SIZES = (
    *((0, "0"), (1, "1"), (8, "2..8"), (64, "9..64"), (1024, "65..1024"), (8192, "1025..8192")),
    (math.inf, "over 8192"),
)
_NAMES = [name for _, name in _SIZES]
_ASPECTS = {
    "tokens": [*_NAMES, "a tile", "beside a tile"],
    "width": [*_NAMES[1:], "8 mod 16", "a tile", "beside a tile"],
    "streams": [str(n) for n in range(1, 17)],
}
_SPECIAL = ("NaN", "infinity", "outlier")


def regions(case: Case) -> frozenset[str]:
    """Return the labels of `case`, each "aspect: value"; they depend on the case only."""
    labels = {f"dtype: {case.dtype}"}
    for name, size in _sizes(case).items():
        labels.add(f"{name}: {size}" if name == "streams" else f"{name}: {_size(size)}")
        if size in edges(TILES) and name != "streams":
            labels.add(f"{name}: beside a tile" if size not in TILES else f"{name}: a tile")
        if size % 16 == 8 and name not in {"tokens", "streams"}:
            labels.add(f"{name}: 8 mod 16")
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


def _sizes(case: Case) -> dict[str, int]:
    """Return the sizes that have labels, by aspect: those of the axes, and for mHC pre in the words of its reports."""
    if case.table.production is None:
        return {name: case.sizes[name] for name in case.axes}
    return {"tokens": case.token_count, "width": case.sizes["D"], "streams": case.sizes["n"]}


def labels(operator: Operator) -> tuple[str, ...]:
    """Return every label that a drawn case can have, in the order of reports, so that reports can list empty regions.

    "schedule: pinned" is left out, since only implementations with a schedule can have it.
    """
    sizes = [name for _, name in _SIZES]
    aspects: dict[str, list[str]] = {
        **(_aspects_of_axes(operator, sizes) if operator.production is None else _ASPECTS),
        "dtype": list(STORAGE_DTYPES),
        **{name: ["0", "tiny", "usual", "large"] for name in operator.scalars},
        "layout": ["contiguous", "transposed", "stepped", "padded", "offset", "expanded"],
        "special": list(_SPECIAL),
        "upstream": ["none", "one", "several", "one element", "with a special value"],
    }
    for spec in operator.drawn:
        extremes = ["large", "small", *_SPECIAL] if spec.floating else []
        aspects[spec.name] = [*spec.kinds, *extremes, *(["absent"] if spec.optional else [])]
    return tuple(f"{aspect}: {value}" for aspect, values in aspects.items() for value in values)


def _aspects_of_axes(operator: Operator, names: list[str]) -> dict[str, list[str]]:
    """Return the labels of the sizes of axes."""
    return {
        axis.name: [
            *(["absent"] if axis.leading else []),
            *names[axis.least == 1 :],
            *("8 mod 16", "a tile", "beside a tile"),
        ]
        for axis in operator.axes
    }


def _size(count: int) -> str:
    return next(name for most, name in _SIZES if count <= most)


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
    if layout.offset:
        words.add("offset")
    if layout.expand:
        words.add("expanded")
    return words or {"contiguous"}


def _class(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "infinity" if math.isinf(value) else "outlier"
