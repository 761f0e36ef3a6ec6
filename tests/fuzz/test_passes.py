"""The minimiser's single steps: exactly which cases each one tries, in which order."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from torch import Tensor

from mhc import Case, default_case, operator
from mhc.case import with_sizes, with_tensor
from mhc.fuzz.minimise.passes import dtypes, early, late, nothing_special, scalar, unpinned
from mhc.fuzz.minimise.search import search
from mhc.fuzz.minimise.shape_passes import merged, resized, sizes_below, smaller, to_ones, without_axis
from mhc.fuzz.minimise.value_passes import (
    contiguous,
    every,
    first_places,
    kinds,
    layouts,
    literals,
    numbers_below,
    one,
    only,
    scale_1,
    scales,
    seed_0,
    seeds,
    single_elements,
    tidy,
    unmarked,
    unthinned,
    without,
    written_out,
    zeroed,
)
from mhc.operator import register
from mhc.recipe import CONTIGUOUS, INTEGER_KINDS, Layout, Recipe

CASE = default_case(B=2, S=3, n=2, D=4, dtype="float32")


def shapes(cases: Iterable[Case]) -> list[tuple[int, int, int, int]]:
    return list(dict.fromkeys((case.sizes["B"], case.sizes["S"], case.sizes["n"], case.sizes["D"]) for case in cases))


def x_of(recipe: Recipe) -> Case:
    return replace(CASE, tensors={**CASE.tensors, "x": recipe})


@operator(x="[T] float32", by=(0.25, 0.0, 2.0))
def shifted(x: Tensor, *, by: float) -> Tensor:
    return x + by


# ---- sizes


@operator(x="[*B, K] float32", w="[N, K] float32", K=(8, 40), N=(2, 64))
def bounded_product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def test_every_step_stays_within_the_range_of_an_axis_and_reaches_its_least() -> None:
    register(bounded_product)
    case = default_case(operator="bounded_product", B0=3, B1=2, K=40, N=5, dtype="float32")
    steps = (*early(case.table), *late(case.table))
    tried = [one for step in steps for one in step(case)]
    assert {8, 9, 10} <= {one.sizes["K"] for one in tried}
    assert min(one.sizes["N"] for one in tried) == 2
    smallest = search(case, lambda one: one.sizes["K"] >= 8, checks=500, seconds=60.0)
    assert (smallest.sizes["K"], smallest.sizes["N"]) == (8, 2)


@operator(x="[D] storage in -1.5..1.5", w="[D] float32 in 0.1..0.9")
def in_ranges(x: Tensor, w: Tensor) -> Tensor:
    return x * w


@pytest.mark.parametrize("seed", range(20))
def test_every_step_stays_within_the_range_of_values(seed: int) -> None:
    register(in_ranges)
    case = default_case(operator="in_ranges", D=8, dtype="float16")
    tensors = {name: replace(recipe, seed=seed, scale=2.0) for name, recipe in case.tensors.items()}
    for step in late(case.table):
        list(step(replace(case, tensors=tensors)))  # a case that is out of range is refused when it is made


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (0, [1]),
        (1, []),
        (2, [1]),
        (3, [1, 2]),
        (6, [1, 2, 3, 4, 5]),
        (9, [1, 2, 3, 5, 7, 8]),
        (24, [1, 2, 3, 8, 12, 16, 18, 20, 21, 22, 23]),
        (29, [1, 2, 3, 5, 13, 15, 21, 22, 25, 26, 27, 28]),
        (200, [1, 2, 3, 8, 72, 100, 136, 150, 168, 175, 184, 188, 192, 194, 196, 197, 198, 199]),
    ],
)
def test_sizes_worth_trying(size: int, wanted: list[int]) -> None:
    assert sizes_below(size) == wanted


def test_steps_on_sizes() -> None:
    assert shapes(to_ones("B", "S")(CASE)) == [(1, 1, 2, 4)]
    assert shapes(to_ones("B", "S", "n", "D")(CASE)) == [(1, 1, 1, 1)]
    assert shapes(to_ones("B")(with_sizes(CASE, B=1))) == []
    assert shapes(to_ones("B", "S")(with_sizes(CASE, B=1))) == [(1, 1, 2, 4)]
    assert shapes(smaller("D")(CASE)) == [(2, 3, 2, 1), (2, 3, 2, 2), (2, 3, 2, 3)]
    assert shapes(merged("B", "S")(CASE)) == [(1, 6, 2, 4)]
    assert shapes(merged("n", "D")(CASE)) == [(2, 3, 1, 8)]
    assert shapes(merged("B", "S")(with_sizes(CASE, B=1))) == []
    assert shapes(merged("B", "S")(with_sizes(CASE, S=0))) == []


@operator(
    **{"x": "[*B, D] float32", "w": "[D] float32", "i": "[D] int64 in 0..V or -100", "j": "[D] int64 in 9-V..9"},  # type: ignore[arg-type]
    s="[D] int64 in 0..V sorted",
    tokens="*B",
    V=(1, 9),
)
def chosen_rows(x: Tensor, w: Tensor, i: Tensor, j: Tensor, s: Tensor) -> Tensor:
    return x * w


def test_literals_of_integers_stay_in_their_range_and_a_sentinel_stays() -> None:
    register(chosen_rows)
    case = default_case(operator="chosen_rows", D=4, V=9, dtype="float32")
    case = with_tensor(case, "i", literals=tuple(((at,), value) for at, value in enumerate((-100.0, 8.0, 3.0, 4.0))))
    case = with_tensor(case, "j", literals=tuple(((at,), value) for at, value in enumerate((0.0, 4.0, 5.0, 8.0))))
    case = with_tensor(case, "w", literals=(((1,), 7.0),), period=2)
    case = with_tensor(with_tensor(case, "s", period=4), "i", period=3)
    (after,) = resized(case, {"V": 4})
    assert [value for _, value in after.tensors["i"].literals] == [-100.0, 3.0, 3.0, 3.0]
    assert [value for _, value in after.tensors["j"].literals] == [5.0, 5.0, 5.0, 8.0]
    assert after.tensors["w"].literals == (((1,), 7.0),)
    assert {name: after.tensors[name].period for name in "wis"} == {"w": 2, "i": 3, "s": 0}, "an order is one of whole rows"


def test_elements_of_integers_are_replaced_by_integers_of_their_range() -> None:
    register(chosen_rows)
    case = default_case(operator="chosen_rows", D=4, V=5, dtype="float32")
    case = with_tensor(case, "i", literals=(((0,), 4.0),))
    allowed = {one_ for one_ in numbers_below(4.0) if one_ in range(5)}
    assert 8.0 in numbers_below(4.0)
    assert {value for recipe in literals(case, "i") for _, value in recipe.literals} == allowed
    assert {value for recipe in single_elements(case, "i") for _, value in recipe.literals} == {1.0}
    assert list(single_elements(case, "s")) == [], "it would not be sorted any more"
    simpler = dict.fromkeys(recipe.kind for recipe in kinds(with_tensor(case, "i", kind="uniform"), "i"))
    assert list(simpler) == [one for one in INTEGER_KINDS if one != "uniform"]


def test_an_axis_is_removed_with_its_part_of_layouts_and_places() -> None:
    register(chosen_rows)
    case = default_case(operator="chosen_rows", B0=2, B1=3, D=4, V=9, dtype="float32")
    literals = (((0, 1, 3), 1.0), ((0, 2, 3), 5.0), ((1, 0, 2), 2.0))
    case = with_tensor(case, "x", literals=literals, layout=Layout(order=(2, 1, 0), step=2, pad=3, offset=5, expand=(0, 1)))
    case = with_tensor(case, "w", layout=Layout(step=2), literals=(((1,), 7.0),))
    (after,) = without_axis("B1")(case)
    assert dict(after.sizes) == {"B0": 2, "D": 4, "V": 9}
    x, w = after.tensors["x"], after.tensors["w"]
    assert x.layout == Layout(order=(1, 0), step=2, pad=3, offset=5, expand=(0,))
    assert x.literals == (((0, 3), 5.0), ((1, 2), 2.0)), "of two that meet, the last"
    assert w == case.tensors["w"]
    (bare,) = without_axis("B0")(after)
    assert bare.tensors["x"].layout == Layout(order=(0,), step=2, pad=3, offset=5)
    assert list(without_axis("B0")(case)) == [], "B1 is not there without it"
    assert list(without_axis("B1")(after)) == []


def test_literals_in_another_shape() -> None:
    case = x_of(Recipe(literals=(((1, 2, 1, 3), 2.0), ((0, 0, 0, 0), 3.0), ((1, 1, 1, 1), 4.0))))
    edge, end, inside = resized(case, {"D": 2})
    assert dict(edge.tensors["x"].literals) == {(1, 2, 1, 1): 2.0, (0, 0, 0, 0): 3.0, (1, 1, 1, 1): 4.0}
    assert dict(end.tensors["x"].literals) == {(1, 2, 1, 1): 2.0, (0, 0, 0, 0): 3.0, (1, 1, 1, 0): 4.0}
    assert dict(inside.tensors["x"].literals) == {(0, 0, 0, 0): 3.0, (1, 1, 1, 1): 4.0}
    (none,) = resized(case, {"S": 0})
    assert none.tensors["x"].literals == ()
    (met, _) = resized(x_of(Recipe(literals=(((0, 0, 0, 3), 2.0), ((0, 0, 0, 2), 5.0)))), {"D": 1})
    assert met.tensors["x"].literals == (((0, 0, 0, 0), 5.0),)


# ---- whole cases


def test_steps_on_whole_cases() -> None:
    table = CASE.table
    pinned = replace(CASE, schedules={"a": {"x": 1, "y": 2}, "b": {"z": 3}})
    assert [{name: dict(one_) for name, one_ in case.schedules.items()} for case in unpinned(pinned)] == [
        {},
        {"b": {"z": 3}},
        {"a": {"y": 2}, "b": {"z": 3}},
        {"a": {"x": 1}, "b": {"z": 3}},
        {"a": {"x": 1, "y": 2}},
        {"a": {"x": 1, "y": 2}, "b": {}},
    ]
    assert list(unpinned(CASE)) == []
    assert [case.dtype for case in dtypes(replace(CASE, dtype="float16"))] == ["float32", "bfloat16"]
    assert list(dtypes(CASE)) == []
    assert [case.scalars["hc_eps"] for case in scalar("hc_eps")(CASE)] == [1e-6, 1.0, 0.0]
    register(shifted)
    assert [case.scalars["by"] for case in scalar("by")(default_case(operator="shifted"))] == [0.25, 0.0]
    odd = replace(pinned, dtype="float64", scalars={"norm_eps": 0.5, "hc_eps": 0.25})
    cases = list(nothing_special(odd))
    assert all(case.dtype == "float32" and not case.schedules for case in cases)
    assert all(dict(case.scalars) == dict(table.scalars) for case in cases)
    assert {recipe for case in cases for recipe in case.tensors.values()} == {Recipe(kind="zero")}
    assert shapes(cases) == [(1, 1, 1, 1), (2, 3, 2, 4)]
    assert not any(case.has("gamma") for case in cases)
    assert len(early(table)) == 1 + 1 + 3 + 4 + 2 + 3 + 1 + 1 + 2 + 1 + 3 + 2 + 1 + 5 * 8
    assert len(late(table)) == len(table.drawn)


def test_steps_on_several_tensors() -> None:
    (after,) = every(["x", "phi", "nothing"], zeroed)(CASE)
    changed = {name for name, recipe in after.tensors.items() if recipe != CASE.tensors[name]}
    assert changed == {"x", "phi"}
    (gone,) = without("gamma")(CASE)
    assert set(CASE.tensors) - set(gone.tensors) == {"gamma"}
    assert list(without("gamma")(gone)) == []
    assert list(one("gamma", scales)(gone)) == []
    upstream = [spec.name for spec in CASE.table.upstream]
    *singles, last = only("dh_post", upstream)(CASE)
    assert {name for name in upstream if last.tensors[name].kind != "zero"} == {"dh_post"}
    for case in singles:
        assert {name for name in upstream if case.tensors[name].literals} == {"dh_post"}
        assert {case.tensors[name].kind for name in upstream} == {"zero"}
    assert len(singles) == 4
    rest = replace(CASE, tensors={name: recipe for name, recipe in CASE.tensors.items() if name != "gamma"})
    assert list(only("gamma", ["gamma", "x"])(rest)) == []


# ---- one tensor


def test_a_recipe_without_what_has_no_effect() -> None:
    assert tidy(Recipe(kind="constant", scale=0.0, seed=3)) == Recipe(kind="zero")
    assert tidy(Recipe(kind="constant", scale=2.0, seed=3)) == Recipe(kind="constant", scale=2.0)
    assert tidy(Recipe(kind="normal", scale=0.0, seed=3)) == Recipe(kind="normal", scale=0.0, seed=3)
    assert tidy(Recipe(kind="zero", period=2, rows=3)) == Recipe(kind="zero")
    assert tidy(Recipe(kind="constant", period=2, rows=3)) == Recipe(kind="constant", rows=3)
    assert tidy(Recipe(kind="normal", period=2, rows=3)) == Recipe(kind="normal", period=2, rows=3)
    assert unthinned(Recipe(kind="normal", period=2, rows=3, scale=2.0)) == Recipe(kind="normal", scale=2.0)
    kept = (((0,), 1.0),)
    assert tidy(Recipe(kind="zero", scale=4.0, literals=(*kept, ((1,), 0.0)))) == Recipe(kind="zero", literals=kept)
    assert tidy(Recipe(literals=(((0,), 0.0), ((1,), 2.0), ((0,), 3.0)))).literals == (((0,), 3.0), ((1,), 2.0))
    full = Recipe(kind="sparse", seed=3, scale=2.0, literals=kept, layout=Layout(step=2))
    assert zeroed(full) == Recipe(kind="zero", seed=3, scale=2.0, layout=Layout(step=2))
    assert contiguous(full).layout == CONTIGUOUS
    assert (unmarked(full).literals, seed_0(full).seed, scale_1(full).scale) == ((), 0, 1.0)


def test_single_elements() -> None:
    case = x_of(Recipe(kind="normal", scale=0.5, literals=(((0, 1, 1, 2), 9.0),)))
    tried = [(recipe.kind, *recipe.literals[0]) for recipe in single_elements(case, "x")]
    # elements 0, 15, 31 and 47 of 48, and where the literal is
    places = [(0, 0, 0, 0), (0, 1, 1, 3), (1, 0, 1, 3), (1, 2, 1, 3), (0, 1, 1, 2)]
    assert [index for _, index, _ in tried[::2]] == places
    assert [value for _, _, value in tried] == [1.0, 0.5] * 5
    assert {kind for kind, _, _ in tried} == {"zero"}
    assert list(single_elements(default_case(), "x")) == []
    assert len(list(single_elements(default_case(D=2), "x"))) == 2
    assert list(single_elements(default_case(B=0), "x")) == []


def test_values_of_one_tensor() -> None:
    case = with_tensor(default_case(dtype="float32"), "x", kind="exact", scale=2.0, seed=7)
    assert [recipe.kind for recipe in kinds(case, "x")] == ["zero", "zero", "constant", "alternating", "sign"]
    assert [recipe.scale for recipe in scales(case, "x")] == numbers_below(2.0)
    assert [recipe.seed for recipe in seeds(case, "x")] == [0, 1, 2]
    assert list(seeds(with_tensor(case, "x", kind="constant"), "x")) == []
    assert list(literals(case, "x")) == []
    pairs = tuple(((0, 0, 0, at), 1.0) for at in range(4))
    wide = with_tensor(CASE, "x", literals=pairs)
    tried = [recipe.literals for recipe in literals(wide, "x")]
    fewer = [(), pairs[:2], pairs[2:], pairs[1:], (pairs[0], *pairs[2:]), (*pairs[:2], pairs[3]), pairs[:3]]
    assert tried[:7] == fewer
    assert all(len(one_) == 4 for one_ in tried[7:])
    assert len(tried[7:]) == 4 * len(numbers_below(1.0))
    two = [recipe.literals for recipe in literals(with_tensor(CASE, "x", literals=pairs[:2]), "x")]
    assert two[:3] == [(), pairs[1:2], pairs[:1]]
    three = [recipe.literals for recipe in literals(with_tensor(CASE, "x", literals=pairs[:3]), "x")]
    assert three[:4] == [(), pairs[1:3], (pairs[0], pairs[2]), pairs[:2]]
    lone = [recipe.literals for recipe in literals(with_tensor(CASE, "x", literals=(((0, 0, 0, 1), math.nan),)), "x")]
    assert lone == [(), (((0, 0, 0, 1), 1.0),)]


def test_literals_move_to_the_first_index_in_all_tensors_at_once() -> None:
    """What is wrong where x * gamma is not 0 is wrong only while both have a value at one place."""
    case = with_tensor(with_tensor(CASE, "x", literals=(((0, 1, 0, 2), 3.0),)), "gamma", literals=(((0, 2), 5.0),))
    tried = [(*one_.tensors["x"].literals, *one_.tensors["gamma"].literals) for one_ in first_places(case)]
    assert tried[0] == (((0, 0, 0, 0), 3.0), ((0, 0), 5.0))
    assert (((0, 1, 0, 0), 3.0), ((0, 0), 5.0)) in tried, "D"
    assert (((0, 0, 0, 2), 3.0), ((0, 2), 5.0)) in tried, "S"
    full = with_tensor(CASE, "x", literals=(((0, 0, 0, 0), 3.0), ((0, 0, 0, 1), 4.0)))
    assert all(one_ == full for one_ in first_places(full)), "two would be at one place"
    assert list(first_places(CASE)) == []


def test_plainer_layouts() -> None:
    layout = Layout(order=(1, 0, 2, 3), step=3, pad=2, gap=4, offset=5, expand=(0, 3))
    tried = [recipe.layout for recipe in layouts(with_tensor(CASE, "x", layout=layout), "x")]
    assert tried == [
        CONTIGUOUS,
        replace(layout, order=()),
        replace(layout, expand=()),
        replace(layout, step=1),
        replace(layout, pad=0),
        replace(layout, gap=0),
        replace(layout, offset=0),
        replace(layout, expand=(3,)),
        replace(layout, expand=(0,)),
        replace(layout, step=2),
        replace(layout, pad=1),
        replace(layout, gap=1),
        replace(layout, offset=1),
    ]
    assert list(layouts(CASE, "x")) == []


def test_random_values_written_out() -> None:
    lone = with_tensor(default_case(dtype="float64"), "x", scale=3.3, literals=(((0, 0, 0, 0), 7.3),))
    assert [(recipe.kind, recipe.scale, recipe.literals) for recipe in written_out(lone, "x")] == [
        ("constant", 8.0, ()),
        ("constant", 7.3, ()),
        ("constant", 7.3, ()),
    ]
    few = with_tensor(default_case(D=2, dtype="float64"), "x", literals=(((0, 0, 0, 0), 5.26), ((0, 0, 0, 1), -0.7)))
    assert [recipe.literals for recipe in written_out(few, "x")] == [
        (((0, 0, 0, 0), 4.0), ((0, 0, 0, 1), -0.5)),
        (((0, 0, 0, 0), 5.3), ((0, 0, 0, 1), -0.7)),
        (((0, 0, 0, 0), 5.26), ((0, 0, 0, 1), -0.7)),
    ]
    assert {recipe.kind for recipe in written_out(few, "x")} == {"zero"}
    assert list(written_out(with_tensor(few, "x", kind="constant"), "x")) == []
    assert len(list(written_out(default_case(D=8), "x"))) == 3
    assert list(written_out(default_case(D=9), "x")) == []
    assert list(written_out(default_case(B=0), "x")) == []
    odd = with_tensor(lone, "x", literals=(((0, 0, 0, 0), math.inf),))
    assert [recipe.kind for recipe in written_out(odd, "x")] == ["normal"] * 3
    wide = with_tensor(few, "x", literals=(((0, 0, 0, 0), math.nan), ((0, 0, 0, 1), 0.0)))
    assert [str(value) for _, value in next(written_out(wide, "x")).literals] == ["nan", "0.0"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.0, []),
        (math.nan, [1.0]),
        (math.inf, [1.0, math.inf]),
        (-math.inf, [-1.0, math.inf]),
        (1.0, [2.0, 0.5]),
        (-1.0, [-2.0, -0.5, 1.0]),
        (5.26, [1.0, 2.0, 4.0, 8.0, 5.3]),
    ],
)
def test_simpler_numbers(value: float, wanted: list[float]) -> None:
    assert numbers_below(value) == wanted


def test_numbers_on_the_way() -> None:
    """Halfway to the exponent, then half of what is left, and so on, from 1 on; the neighbours; two digits."""
    powers = [math.log2(one_) for one_ in numbers_below(2.0**100 * 1.01) if math.log2(one_).is_integer()]
    assert powers == [0.0, 50.0, 75.0, 88.0, 94.0, 97.0, 99.0, 100.0, 101.0]
    assert 2.0**-1073 in numbers_below(5e-324)
    assert all(math.isfinite(one_) for one_ in numbers_below(1.7e308))


# ---- descending


def test_checks_and_seconds_are_counted_exactly() -> None:
    asked = itertools.count()
    search(CASE, lambda case: bool(next(asked) < 0), checks=3)
    assert next(asked) == 3
    asked = itertools.count()
    search(CASE, lambda case: bool(next(asked) < 0), checks=0)
    assert next(asked) == 0
    ticks = itertools.count()
    asked = itertools.count()
    search(CASE, lambda case: bool(next(asked) < 0), seconds=3.0, clock=lambda: float(next(ticks)))
    assert next(asked) == 2, "at 1 and 2; at 3 the time is over"
