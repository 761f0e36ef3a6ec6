"""The determinism gate."""

from itertools import count

from mhc import Implementation, default_case
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from oracles import determinism
from tests.support.helpers import altered, gate_symptoms, nudged


def test_a_result_that_changes_from_call_to_call_fails() -> None:
    """By one unit in the last place: the bound gate does not see it."""
    calls = count()
    wrong = altered(MANUAL, backward=lambda out, _: (out[0], nudged(out[1]) if next(calls) % 2 else out[1], *out[2:]))
    case = default_case(B=2, S=3, n=2, D=5, dtype="float32")
    assert gate_symptoms(determinism.GATE, wrong, case) == {("determinism", "dphi", "differs")}
    assert not gate_symptoms(determinism.GATE, MANUAL, case)


def test_none_at_one_time_and_a_tensor_at_another_fails() -> None:
    calls = count()

    def sometimes(implementation: Implementation) -> Implementation:
        return altered(implementation, forward=lambda out, _: (*out[:3], None if next(calls) % 2 else out[3], *out[4:]))

    case = default_case(B=1, S=1, n=1, D=2)
    assert gate_symptoms(determinism.GATE, sometimes(MANUAL), case) == {("determinism", "inv_rms", "differs")}
