"""The words for the regions of a case: of sizes, scalars, values, layouts and upstream gradients."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from mhc import Case, default_case
from mhc.case import with_tensor
from mhc.operator import OPERATORS
from mhc.recipe import Layout
from mhc.strategies.regions import labels, regions

TABLE = OPERATORS["mhc_pre"]


def told(case: Case, aspect: str) -> set[str]:
    return {label.partition(": ")[2] for label in regions(case) if label.startswith(f"{aspect}: ")}


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1, {"1"}),
        (2, {"2..8"}),
        (8, {"2..8", "a tile"}),
        (9, {"9..64", "beside a tile"}),
        (64, {"9..64", "a tile"}),
        (65, {"65..1024", "beside a tile"}),
        (66, {"65..1024"}),
        (1024, {"65..1024", "a tile"}),
        (1026, {"1025..8192"}),
        (8192, {"1025..8192"}),
        (8193, {"over 8192"}),
        (7, {"2..8", "beside a tile"}),
    ],
)
def test_regions_of_sizes(size: int, words: set[str]) -> None:
    case = default_case(B=1, S=size, n=1, D=size)
    assert told(case, "tokens") == words
    assert told(case, "width") == words | ({"8 mod 16"} if size == 8 else set())
    assert told(default_case(B=0, S=size), "tokens") == {"0"}


@pytest.mark.parametrize(
    ("value", "word"),
    [(0.0, "0"), (9e-10, "tiny"), (1e-9, "usual"), (9e-4, "usual"), (1e-3, "large"), (1.0, "large")],
)
def test_regions_of_scalars(value: float, word: str) -> None:
    assert told(default_case(scalars={"norm_eps": value}), "norm_eps") == {word}


def test_regions_of_values() -> None:
    case = default_case(n=2, D=8)  # phi's usual scale is 2^-2
    for power, word in ((3, None), (4, "large"), (-3, None), (-4, "small")):
        for name, usual in (("x", 0), ("phi", -2)):
            words = told(with_tensor(case, name, scale=2.0 ** (power + usual)), name)
            assert words == {"normal", word} - {None}, (power, name)
    assert told(with_tensor(case, "x", scale=-16.0), "x") == {"normal", "large"}
    assert told(with_tensor(case, "x", scale=0.0), "x") == {"normal"}
    assert told(with_tensor(case, "x", kind="zero", scale=16.0), "x") == {"zero"}
    for value, word in ((math.nan, "NaN"), (math.inf, "infinity"), (-math.inf, "infinity"), (5.0, "outlier")):
        special = with_tensor(case, "x", literals=(((0, 0, 0, 0), value),))
        assert told(special, "special") == {word}
        assert told(special, "x") == {"normal", word}
    assert told(case, "gamma") == {"normal"}
    assert told(default_case(absent=frozenset({"gamma"})), "gamma") == {"absent"}
    assert told(case, "streams") == {"2"}
    assert told(case, "schedule") == set()
    assert told(replace(case, schedules={"a": {"B": 1}}), "schedule") == {"pinned"}


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(), {"contiguous"}),
        (Layout(order=(0, 1, 2, 3)), {"contiguous"}),
        (Layout(order=(1, 0, 2, 3)), {"contiguous", "transposed"}),
        (Layout(step=2), {"contiguous", "stepped"}),
        (Layout(pad=1, offset=1), {"contiguous", "padded", "offset"}),
        (Layout(gap=1), {"contiguous", "gaps"}),
        (Layout(expand=(0,)), {"contiguous", "expanded"}),
    ],
)
def test_regions_of_layouts(layout: Layout, words: set[str]) -> None:
    case = default_case(n=2, D=8)
    assert told(with_tensor(case, "x", layout=layout), "layout") == words
    every = replace(case, tensors={"x": case.tensors["x"], **case.tensors})
    alone = {name: replace(one, layout=Layout(step=2)) for name, one in every.tensors.items()}
    assert told(replace(case, tensors={**alone, "x": replace(case.tensors["x"], layout=layout)}), "layout") == (
        words - ({"contiguous"} if layout != Layout() and layout.order != (0, 1, 2, 3) else set())
    ) | {"stepped"}


def test_regions_of_upstream_gradients() -> None:
    case = default_case(n=2, D=8)
    one = with_tensor(with_tensor(case, "dh_in", kind="zero"), "dh_post", kind="zero")
    none = with_tensor(one, "dh_res", kind="zero")
    hot = with_tensor(none, "dh_in", literals=(((0, 0, 0), 1.0),))
    odd = with_tensor(case, "dh_in", literals=(((0, 0, 0), math.nan),))
    seen = [told(each, "upstream") for each in (case, with_tensor(case, "dh_in", kind="zero"), one, none, hot, odd)]
    assert seen == [{"several"}, {"several"}, {"one"}, {"none"}, {"one element"}, {"with a special value"}]


BINS = ("1", "2..8", "9..64", "65..1024", "1025..8192", "over 8192")


def test_an_axis_is_absent_where_a_case_has_no_size_of_it() -> None:
    case = default_case(operator="rms_norm", B0=2, D=3)
    assert {one for one in regions(case) if one.endswith(": absent")} == {"B1: absent", "B2: absent"}


def test_every_label_is_listed() -> None:
    listed = labels(TABLE)
    assert len(listed) == len(set(listed))
    assert [one for one in listed if one.startswith("tokens")] == [
        f"tokens: {size}" for size in ("0", *BINS, "a tile", "beside a tile")
    ]
    assert [one for one in listed if one.startswith("width")] == [
        f"width: {size}" for size in (*BINS, "8 mod 16", "a tile", "beside a tile")
    ]
    assert [one for one in listed if one.startswith("streams")] == [f"streams: {n}" for n in range(1, 17)]
    counts = Counter(one.partition(":")[0] for one in listed)
    assert {name: counts[name] for name in ("dtype", "norm_eps", "layout", "special", "upstream", "x", "gamma")} == {
        **{"dtype": 4, "norm_eps": 4, "layout": 7, "special": 3, "upstream": 5, "x": 12 + 2 + 3, "gamma": 12 + 2 + 3 + 1}
    }
