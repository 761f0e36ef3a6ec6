"""The order of cases that the minimiser descends: chains of cases, each simpler than the next."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from torch import Tensor

from mhc import Case, default_case, operator
from mhc.case import with_sizes, with_tensor
from mhc.fuzz.findings.ordering import KINDS, elements, number_rank, rank, scalars_rank
from mhc.operator import register
from mhc.recipe import INTEGER_KINDS, Layout

DECLARED: dict[str, Any] = {
    **{"x": "[T, D]", "w": "[D] optional", "i": "[T] int64 in 0..9 or -1", "T": (0, 99), "D": (0, 99)},
    **{"eps": (0.5, 1.0, 0.0), "tokens": "T"},
}


@operator(**DECLARED)
def declared_order(x: Tensor, w: Tensor | None, i: Tensor, *, eps: float) -> Tensor:
    return x * eps if w is None else x * w


register(declared_order)
BASE = default_case(operator="declared_order", T=3, D=4, dtype="float32")
BASE = with_tensor(with_tensor(BASE, "x", kind="zero"), "i", kind="zero")


def x(**changes: Any) -> Case:
    return with_tensor(BASE, "x", **changes)


def scalar(value: float) -> Case:
    return replace(BASE, scalars={"eps": value})


def sized(T: int, D: int) -> Case:
    return with_sizes(BASE, T=T, D=D)


ONE, TWO = ((0, 0), 1.0), ((0, 1), 1.0)
LITERALS = (1.0, -1.0, 2.0, -2.0, 4.0, 3.0, 100.0, 1.2345, math.inf, -math.inf, math.nan)
CHAINS: dict[str, list[Case]] = {
    "schedules": [
        BASE,
        replace(BASE, schedules={"a": {"BLOCK": 1}}),
        replace(BASE, schedules={"a": {"BLOCK": 1, "WARPS": 1}}),
        replace(BASE, schedules={"a": {"BLOCK": 1}, "b": {"BLOCK": 1}}),
    ],
    "sizes": [sized(1, 1), sized(1, 2), sized(2, 1), sized(2, 2), sized(9, 9), sized(0, 1), sized(0, 2)],
    "an axis of size 0": [sized(3, 0), sized(4, 0)],
    "sizes before dtypes": [replace(sized(1, 1), dtype="float64"), sized(2, 1)],
    "dtypes": [replace(BASE, dtype=one) for one in ("float32", "bfloat16", "float16", "float64")],
    "scalars": [scalar(one) for one in (0.5, 1.0, 0.0, 7.0)],
    "kinds": [x(kind=one) for one in ("zero", *KINDS[1:3])]
    + [x(kind="zero", literals=(ONE, TWO))]
    + [x(kind=one) for one in KINDS[3:]],
    "kinds of integers": [with_tensor(BASE, "i", kind=one) for one in INTEGER_KINDS],
    "elements of zeros": [x(), x(literals=(ONE,)), x(kind="constant"), x(kind="alternating"), x(literals=(ONE, TWO))],
    "a literal": [x(literals=(((0, 0), one),)) for one in LITERALS],
    "literals": [x(kind="normal"), x(kind="normal", literals=(ONE,)), x(kind="normal", literals=(ONE, TWO))],
    "repeated": [x(kind="normal", seed=9), x(kind="normal", period=2)],
    "few rows": [x(kind="normal", seed=9), x(kind="normal", rows=2)],
    "the scale": [x(kind="normal", scale=one) for one in (1.0, 2.0, 4.0, 3.0, 1.2345)],
    "seeds": [x(kind="normal", seed=one) for one in (0, 1, 5)],
    "layouts": [
        *(x(layout=one) for one in (Layout(), Layout(offset=1), Layout(offset=2), Layout(pad=1))),
        *(x(layout=one) for one in (Layout(step=2), Layout(step=3), Layout(expand=(0,)), Layout(expand=(0, 1)))),
        x(layout=Layout(order=(1, 0))),
    ],
    "optional tensors": [
        replace(BASE, tensors={name: one for name, one in BASE.tensors.items() if name != "w"}),
        with_tensor(BASE, "w", kind="zero", seed=0),
        with_tensor(BASE, "w", kind="zero", seed=1),
    ],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_each_case_of_a_chain_is_simpler_than_the_next(chain: str) -> None:
    for simpler, other in pairwise(CHAINS[chain]):
        assert rank(simpler) < rank(other)
        assert not rank(other) <= rank(simpler)


def test_a_literal_nearer_to_the_first_element_is_simpler_where_all_else_is_the_same() -> None:
    first, last = (((0, 0), 1.0),), (((1, 1), 1.0),)
    assert rank(x(literals=first)) < rank(x(literals=last))
    assert rank(x(literals=last)) < rank(x(literals=first, layout=Layout(step=2)))
    assert rank(x(literals=(((0, 1), 1.0),))) == rank(x(literals=(((1, 0), 1.0),)))


def test_two_schedules_of_one_name_are_as_simple_as_one_of_three() -> None:
    two = replace(BASE, schedules={"a": {"BLOCK": 1}, "b": {"BLOCK": 1}})
    assert rank(two) == rank(replace(BASE, schedules={"a": {"BLOCK": 1, "WARPS": 1, "STAGES": 1}}))


def test_numbers_have_ranks() -> None:
    ranks = {
        **{0.0: (0, 0, False), 1.0: (1, 0, False), -1.0: (1, 0, True), 2.0: (1, 1, False), 0.5: (1, 1, False)},
        **{-8.0: (1, 3, True), 3.0: (2, 2, False), 0.3: (2, 1, False), -0.3: (2, 1, True), 1.25: (3, 1, False)},
        **{math.inf: (5, 0, False), -math.inf: (5, 0, True)},
    }
    assert {value: number_rank(value) for value in ranks} == ranks
    assert number_rank(-0.0) == (0, 0, True)
    assert number_rank(math.nan) == (6, 0, False)


def test_scalars_have_ranks() -> None:
    assert [scalars_rank(scalar(one)) for one in (0.5, 1.0, 0.0, 10.0)] == [(0,), (1,), (2,), (3,)]


def test_elements_are_those_of_the_first_input() -> None:
    assert elements(sized(3, 5)) == 15
    assert elements(sized(0, 5)) == 0
