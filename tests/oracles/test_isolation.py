"""The isolation gate."""

from typing import Any

from torch import Tensor

from mhc import Implementation, default_case, operator
from mhc.case import with_sizes
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import isolation
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, failing, gate_symptoms, gate_verdicts, judged, with_layout

CASE = default_case(B=2, S=3, n=2, D=5, dtype="float32")


def leaky(out: tuple[Any, ...], _: Any) -> Any:
    """A masked sum over a tile that multiplies by 0 what it should leave out: NaN times 0 is NaN."""
    return (out[0] + 0 * out[0].sum((0, 1)), *out[1:])


def test_a_nan_that_leaks_through_a_shared_tile_fails() -> None:
    wrong = altered(MANUAL, forward=leaky)
    assert not failing(judged(wrong, CASE)[2])
    assert gate_symptoms(isolation.GATE, wrong, CASE) == {("isolation", "h_in", "leak")}
    assert not gate_symptoms(isolation.GATE, MANUAL, CASE)


def test_a_leak_in_the_backward_fails() -> None:
    assert gate_symptoms(isolation.GATE, altered(MANUAL, backward=leaky), CASE) == {("isolation", "dx", "leak")}


def test_one_token_or_shared_memory_is_not_applicable() -> None:
    shared = [with_layout(CASE, "x", expand=axes) for axes in ((0,), (1,), (0, 1))]
    for case in (default_case(B=1, S=1, n=2, D=5), *shared):
        (verdict,) = gate_verdicts(isolation.GATE, MANUAL, case)
        assert verdict.status is Status.NOT_APPLICABLE
        assert verdict.message == ("fewer than two tokens" if case.token_count == 1 else "tokens share their memory")


def test_memory_that_is_shared_within_a_token_or_of_an_axis_of_size_1_is_judged() -> None:
    wrong = altered(MANUAL, forward=leaky)
    for case in (with_layout(CASE, "x", expand=(3,)), with_layout(with_sizes(CASE, B=1), "x", expand=(0,))):
        assert gate_symptoms(isolation.GATE, wrong, case) == {("isolation", "h_in", "leak")}
        assert {one.status for one in gate_verdicts(isolation.GATE, MANUAL, case)} == {Status.PASS}


@operator(w="[D] float32", i="[T] int32 in 0..9", x="[T, D] float32", tokens="T")
def shifted_rows(w: Tensor, i: Tensor, x: Tensor) -> Tensor:
    return x * w + i[:, None]


def test_the_nan_is_in_the_first_input_of_numbers_that_has_rows_of_tokens() -> None:
    right = Implementation(name="right", operator=shifted_rows, function=shifted_rows.function)
    case = default_case(operator="shifted_rows", dtype="float32", T=5, D=3)
    verdicts = {one.subject: one.status for one in gate_verdicts(isolation.GATE, right, case)}
    assert verdicts == dict.fromkeys(("y", "dx"), Status.PASS), "dw is a sum over tokens"
    wrong = Implementation(name="wrong", operator=shifted_rows, function=lambda w, i, x: x * w + i[:, None] + 0 * x.sum(0))
    assert ("isolation", "y", "leak") in gate_symptoms(isolation.GATE, wrong, case)
