"""Maps of where a tensor is wrong: the largest error / bound of each block, and what a file may hold of one."""

import math
from dataclasses import asdict

import msgspec
import pytest
import torch

from mhc.oracles import bound
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.error_map import MOST, ErrorMap, block, difference_map, error_map
from mhc.oracles.verdict import Status, located
from tests.oracles.test_judging import number, values


def test_a_letter_says_the_decade_and_the_worst_of_a_block_counts() -> None:
    ratio = torch.tensor([[0.1, 0.5, 1.0, 1.5], [10.0, 99.0, 1e4, 1e5], [1e9, math.inf, -1.0, 0.0]], dtype=torch.float64)
    found = error_map(ratio)
    assert found.cells == (".--1", "1234", "55?.")
    assert (found.wrong, found.judged, found.rows, found.columns) == (7, 11, (0, 2), (0, 3))


def test_one_wrong_element_shows_in_a_large_tensor_of_any_shape() -> None:
    for shape, rows, columns in (((2, 3, 50, 130), 300, 130), ((4097,), 1, 4097), ((129, 1), 129, 1), ((), 1, 1)):
        ratio = torch.full((math.prod(shape),), 0.01, dtype=torch.float64)
        ratio[-1] = 3.0
        found = error_map(ratio.reshape(shape))
        assert found.matrix == (rows, columns)
        assert found.shape == shape
        assert len(found.cells) == math.ceil(rows / block(rows)) <= MOST
        assert {len(row) for row in found.cells} == {math.ceil(columns / block(columns))}
        letters = "".join(found.cells)
        assert letters == "." * (len(letters) - 1) + "1"
        assert (found.rows, found.columns) == ((rows - 1, rows - 1), (columns - 1, columns - 1))


@pytest.mark.parametrize(("size", "wanted"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 4), (1 << 20, 1 << 14)])
def test_a_cell_is_a_power_of_two_and_no_larger_than_needed(size: int, wanted: int) -> None:
    assert block(size) == wanted


def test_a_wrong_class_is_not_hidden_by_what_is_worse_in_its_block() -> None:
    ratio = torch.zeros(1, 128, dtype=torch.float64)
    ratio[0, 0], ratio[0, 2] = 1e9, -1.0
    classes = torch.zeros(1, 128, dtype=torch.bool)
    classes[0, 1] = True
    found = error_map(ratio, classes)
    assert found.cells == ("N" + "." * 63,)
    assert found.wrong == 2
    assert difference_map(classes).cells == ("5" + "." * 63,)


def test_a_failing_verdict_is_located_if_that_is_wanted() -> None:
    wanted = number((1.0, 0.5), (2.0, 0.5), (3.0, math.inf))
    got = values(1.0, math.nan, 9.0)
    classes, within = bound.judge_class_and_magnitude("h", got, wanted)
    assert (classes.status, within.status) == (Status.FAIL, Status.PASS)
    shown = located(classes, lambda _: True)
    assert shown.where is not None
    assert shown.where.cells == (".N?",)
    assert (shown.where.wrong, shown.where.judged) == (1, 2)
    assert shown.locate is None
    assert located(classes, lambda _: False) == classes
    assert located(classes, lambda _: False).locate is None
    equal = ErrorNumber(torch.tensor([1, 3]), torch.zeros(2, dtype=torch.float64), torch.int64)
    integers = bound.judge_integers("i", torch.tensor([1, 2]), equal)
    assert located(integers, lambda _: True).where == error_map(torch.tensor([0.0, math.inf]))


GOOD = error_map(torch.tensor([[0.0, 5.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    "changed",
    [
        {"cells": ()},
        {"cells": (".1", ".1")},
        {"cells": (".1.",)},
        {"cells": (".x",)},
        {"shape": (1, 2**40, 3)},
        {"shape": (0, 2)},
        {"rows": (0, 1)},
        {"columns": (1, 0)},
        {"wrong": 0},
        {"wrong": 3},
        {"judged": 3},
    ],
)
def test_a_map_that_does_not_fit_itself_is_refused(changed: dict[str, object]) -> None:
    assert msgspec.convert(asdict(GOOD), ErrorMap) == GOOD
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(asdict(GOOD) | changed, ErrorMap)
