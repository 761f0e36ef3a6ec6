"""The non-finite gate: classes of single elements, and what it must catch."""

import math

import pytest
import torch

from mhc import default_case
from mhc.case import with_tensor
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import bound, nonfinite
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, failing, judged, symptoms


@pytest.mark.parametrize(
    ("got", "value", "fits"),
    [
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (-math.inf, math.inf, False),
        (math.nan, 1.0, False),
        (math.inf, 1.0, False),
        (1.0, math.nan, False),
        (1.0, math.inf, False),
        (math.nan, math.inf, False),
        (math.inf, 7e4, True),  # float16 overflows there
        (-math.inf, -7e4, True),
        (65504.0, 7e4, False),
        (math.inf, 65400.0, False),
    ],
)
def test_the_class_of_every_element(got: float, value: float, fits: bool) -> None:
    wanted = ErrorNumber.exact(torch.tensor([value], dtype=torch.float64), torch.float32).to(torch.float16)
    verdict = nonfinite.judge_tensor("h_in", torch.tensor([got]), wanted)
    assert (verdict.status is Status.PASS) is fits
    assert verdict.symptom == ("" if fits else "class")
    assert bound.judge_tensor("h_in", torch.tensor([got]), wanted).status is not Status.FAIL


def test_a_message_says_where_the_dtype_has_infinity() -> None:
    values = torch.tensor([7e4, 65400.0], dtype=torch.float64)
    wanted = ErrorNumber.exact(values, torch.float32).to(torch.float16)
    verdict = nonfinite.judge_tensor("y", torch.tensor([0.0, 65408.0]), wanted)
    assert verdict.message == "y[0] = 0, float64 70000, bound 34.2; float16 has infinity there"
    verdict = nonfinite.judge_tensor("y", torch.tensor([math.inf, math.inf]), wanted)
    assert verdict.message == "y[1] = inf, float64 65400, bound 31.9"


def test_what_cannot_be_judged_is_not_a_pass() -> None:
    empty = ErrorNumber.exact(torch.empty(0, 3, dtype=torch.float64), torch.float32)
    assert nonfinite.judge_tensor("h_in", torch.empty(0, 3), empty).status is Status.NOT_APPLICABLE
    beyond = ErrorNumber.exact(torch.tensor([1e30], dtype=torch.float64), torch.float32).square()
    assert nonfinite.judge_tensor("h_in", torch.tensor([1.0]), beyond).status is Status.NOT_APPLICABLE


def test_a_swallowed_nan_fails() -> None:
    case = with_tensor(default_case(B=2, S=3, n=2, D=5), "x", literals=(((1, 1, 0, 2), math.nan),))
    wrong = altered(MANUAL, forward=lambda out, _: (out[0].nan_to_num(), *out[1:]))
    assert symptoms(judged(wrong, case)[2]) == {("nonfinite", "h_in", "class")}
    assert not failing(judged(MANUAL, case)[2])
