"""The reducer: what it makes of a case is asserted to the last field, for bugs that need little and for odd ones."""

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhc import Case, Layout, Recipe, default_case
from mhc.case import with_tensor
from mhc.fuzz.findings.ordering import number_rank, rank
from mhc.fuzz.minimise.search import search
from mhc.fuzz.minimise.shape_passes import resized, sizes_below
from mhc.fuzz.minimise.value_passes import numbers_below
from mhc.operator import OPERATORS
from mhc.strategies.cases import cases

NAN_AT = ((1, 4, 2, 30), math.nan)

BIG = replace(
    with_tensor(
        default_case(B=3, S=17, n=4, D=136, dtype="bfloat16"),
        "x",
        kind="row_scaled",
        scale=0.375,
        literals=(NAN_AT, ((2, 16, 3, 135), 7.25)),
        layout=Layout(order=(1, 0, 2, 3), step=2, pad=3, offset=8),
    ),
    scalars={"norm_eps": 0.125, "hc_eps": 64.0},
    schedules={"triton": {"block_k": 32, "splits": 4}, "tilelang": {"tile": 8}},
)


def plain(
    values: Mapping[str, Recipe] | None = None, *, absent: frozenset[str] = frozenset({"gamma"}), **fields: object
) -> Case:
    """The simplest case of all, but for what is given."""
    names = [spec.name for spec in OPERATORS["mhc_pre"].drawn if spec.name not in absent]
    simplest = Case(dtype="float32", tensors={name: Recipe(kind="zero") for name in names})
    sizes = {name: fields.pop(name) for name in simplest.table.axis_names if name in fields}
    return replace(simplest, tensors={**simplest.tensors, **(values or {})}, sizes=sizes, **fields)  # type: ignore[arg-type]


def nonzero(case: Case, name: str) -> bool:
    return case.has(name) and (case.tensors[name].kind != "zero" or bool(case.tensors[name].literals))


def one_hot(*index: int, value: float = 1.0) -> Recipe:
    return Recipe(kind="zero", literals=((index, value),))


@pytest.mark.parametrize(
    ("holds", "smallest"),
    [
        pytest.param(lambda case: True, plain(), id="everything"),
        pytest.param(lambda case: case.sizes["D"] % 16 == 8, plain(D=8), id="eight mod sixteen"),
        pytest.param(lambda case: case.sizes["D"] > 64 and case.sizes["S"] % 2 == 1, plain(D=65), id="beyond a tile"),
        pytest.param(lambda case: case.sizes["B"] * case.sizes["S"] >= 5, plain(S=5), id="tokens, whichever"),
        pytest.param(lambda case: case.sizes["K"] >= 40 and case.sizes["n"] >= 2, plain(n=2, D=20), id="a width of both"),
        pytest.param(lambda case: case.sizes["K"] >= 40, plain(D=40), id="a width of one"),
        pytest.param(lambda case: case.dtype == "bfloat16", plain(dtype="bfloat16"), id="dtype"),
        pytest.param(lambda case: case.has("gamma"), plain({"gamma": Recipe(kind="zero")}, absent=frozenset()), id="gamma"),
        pytest.param(lambda case: case.scalars["hc_eps"] > 0.5, plain(scalars={"hc_eps": 1.0}), id="scalar"),
        pytest.param(
            lambda case: case.schedules.get("triton", {}).get("splits") == 4,
            plain(schedules={"triton": {"splits": 4}}),
            id="schedule",
        ),
        pytest.param(
            lambda case: case.tensors["x"].layout.pad > 0,
            plain({"x": Recipe(kind="zero", layout=Layout(pad=1))}),
            id="layout",
        ),
        pytest.param(
            lambda case: any(math.isnan(value) for _, value in case.tensors["x"].literals),
            plain({"x": one_hot(0, 0, 0, 0, value=math.nan)}),
            id="a NaN goes along with the shape",
        ),
        pytest.param(
            lambda case: any(index[1] >= 1 and math.isnan(value) for index, value in case.tensors["x"].literals),
            plain({"x": one_hot(0, 1, 0, 0, value=math.nan)}, S=2),
            id="a NaN in the second token",
        ),
        pytest.param(
            lambda case: (
                case.sizes["K"] >= 8
                and any(index[2:] == (case.sizes["n"] - 1, case.sizes["D"] - 1) for index, _ in case.tensors["x"].literals)
            ),
            plain({"x": one_hot(0, 0, 0, 7)}, D=8),
            id="the last element of a row",
        ),
        pytest.param(
            lambda case: nonzero(case, "dh_res"), plain({"dh_res": Recipe(kind="constant")}), id="an upstream gradient"
        ),
        pytest.param(
            lambda case: nonzero(case, "dh_post") and case.sizes["n"] > 2,
            plain({"dh_post": one_hot(0, 0, 0)}, n=3),
            id="one element of an upstream gradient",
        ),
        pytest.param(
            lambda case: nonzero(case, "x") and abs(case.tensors["x"].scale) < 0.5,
            plain({"x": Recipe(kind="constant", scale=0.25)}),
            id="scale",
        ),
        pytest.param(
            lambda case: case.tensors["phi"].kind == "normal",
            plain({"phi": Recipe(kind="normal")}),
            id="nothing but random values",
        ),
    ],
)
def test_the_smallest_case_is(holds: Callable[[Case], bool], smallest: Case) -> None:
    assert holds(BIG)
    assert holds(smallest), "the test is wrong"
    assert search(BIG, holds) == smallest


def test_a_step_is_taken_again_before_the_next_one() -> None:
    asked: list[Case] = []

    def holds(case: Case) -> bool:
        asked.append(case)
        return case.sizes["D"] >= 20 and case.dtype == "bfloat16"

    assert search(BIG, holds) == plain(D=20, dtype="bfloat16")
    first = next(at for at, case in enumerate(asked) if case.sizes["D"] in range(20, 136) and case.dtype == "bfloat16")
    assert asked[first].sizes["D"] == 68
    following = asked[first : next(at for at, case in enumerate(asked) if case.sizes["D"] == 34)]
    assert {case.dtype for case in following} == {"bfloat16"}, "no other dtype is tried before 34 is"
    assert {case.sizes["D"] for case in following} == {68, 4}


def test_an_empty_case_stays_empty_where_that_is_the_bug() -> None:
    empty = default_case(B=3, S=0, n=4, D=40)
    assert search(empty, lambda case: case.sizes["N"] == 0) == plain(S=0)
    assert search(empty, lambda case: case.sizes["n"] == 4) == plain(n=4)


def test_a_batch_of_single_tokens_becomes_one_sequence_and_streams_one_wide_stream() -> None:
    assert search(default_case(B=5), lambda case: case.sizes["N"] >= 4) == plain(S=4)
    assert search(default_case(n=16), lambda case: case.sizes["K"] >= 12) == plain(D=12)


def test_random_values_of_a_small_tensor_are_written_out() -> None:
    """The bug needs two different values, of which no kind without a seed has a pair."""

    def holds(case: Case) -> bool:
        recipe = case.tensors["bias"]
        return recipe.kind == "normal" or len({value for _, value in recipe.literals}) > 1

    found = search(default_case(n=1), holds)
    assert found.tensors["bias"].kind == "zero"
    assert len(found.tensors["bias"].literals) == 2
    assert {number_rank(value)[0] for _, value in found.tensors["bias"].literals} == {1}, "both powers of two"


def test_nothing_is_asked_twice_nor_of_a_case_that_is_no_simpler() -> None:
    asked: list[Case] = []

    def holds(case: Case) -> bool:
        asked.append(case)
        return case.sizes["D"] >= 3 and case.tensors["x"].kind != "zero"

    search(BIG, holds)
    assert BIG not in asked
    assert len(set(asked)) == len(asked)
    assert all(rank(case) < rank(BIG) for case in asked)


def test_where_it_stops_no_single_step_is_left() -> None:
    def holds(case: Case) -> bool:
        return case.sizes["D"] * case.sizes["S"] >= 7 and nonzero(case, "dh_in")

    smallest = search(BIG, holds)
    assert search(smallest, holds) == smallest


def test_budgets_end_it_with_the_best_so_far() -> None:
    count = itertools.count(1)
    search(BIG, lambda case: bool(next(count)) and case.sizes["D"] >= 5, checks=4)
    assert next(count) == 5
    ticks = itertools.count()
    best = search(BIG, lambda case: case.sizes["D"] >= 5, seconds=10.0, clock=lambda: float(next(ticks)))
    assert best.sizes["D"] >= 5
    assert rank(best) < rank(BIG)
    assert next(ticks) < 20


@given(case=cases(), ask=st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_whatever_holds_the_result_holds_and_is_no_less_simple(case: Case, ask: random.Random) -> None:
    """Also where what holds follows no rule: every case on the way is valid, since `Case` itself says so."""
    held = {case}

    def holds(candidate: Case) -> bool:
        if ask.random() < 0.3:
            held.add(candidate)
        return candidate in held

    smallest = search(case, holds, checks=60)
    assert smallest in held
    assert rank(smallest) <= rank(case)


def test_sizes_keep_their_remainder_of_a_power_of_two_or_come_near() -> None:
    assert sizes_below(1) == []
    assert sizes_below(0) == [1]
    assert sizes_below(5) == [1, 2, 3, 4]
    assert {8, 72, 100, 136, 150, 199} <= set(sizes_below(200))
    assert sizes_below(200) == sorted(sizes_below(200))


def test_literals_outside_the_new_shape_move_to_its_edge_or_go() -> None:
    case = with_tensor(default_case(S=3, D=5), "x", literals=(((0, 0, 0, 4), 2.0), ((0, 2, 0, 1), 3.0)))
    moved, shifted, dropped = resized(case, {"D": 3})
    assert moved.tensors["x"].literals == (((0, 0, 0, 2), 2.0), ((0, 2, 0, 1), 3.0))
    assert shifted.tensors["x"].literals == (((0, 0, 0, 2), 2.0), ((0, 2, 0, 0), 3.0))
    assert dropped.tensors["x"].literals == (((0, 2, 0, 1), 3.0),)
    (inside,) = resized(case, {"B": 1})
    assert inside == case


@pytest.mark.parametrize("value", [1e-40, -0.3, 5.0, 3e38, math.inf, -math.inf, math.nan, 2.0**-100])
def test_simpler_numbers_begin_with_one(value: float) -> None:
    simpler = numbers_below(value)
    assert 1.0 in (simpler[0], abs(simpler[0]))
    assert numbers_below(0.0) == []
    assert not [one for one in numbers_below(1.0) if number_rank(one) < number_rank(1.0)]
