"""The isolation gate."""

from typing import Any

from mhc import default_case
from mhc.case import with_tensor
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.recipe import Layout
from oracles import isolation
from oracles.verdict import Status
from tests.support.helpers import altered, failing, gate_symptoms, gate_verdicts, judged

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
    for case in (default_case(B=1, S=1, n=2, D=5), with_tensor(CASE, "x", layout=Layout(expand=(0, 1)))):
        (verdict,) = gate_verdicts(isolation.GATE, MANUAL, case)
        assert verdict.status is Status.NOT_APPLICABLE
