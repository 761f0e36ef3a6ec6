"""The determinism gate."""

from itertools import count

from mhc import Implementation, default_case
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import determinism
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, gate_symptoms, gate_verdicts, nudged


def test_a_result_that_changes_from_call_to_call_fails() -> None:
    """By one unit in the last place: the bound gate does not see it."""
    calls = count()
    wrong = altered(MANUAL, backward=lambda out, _: (out[0], nudged(out[1]) if next(calls) % 2 else out[1], *out[2:]))
    case = default_case(B=2, S=3, n=2, D=5, dtype="float32")
    assert gate_symptoms(determinism.GATE, wrong, case) == {("determinism", "dphi", "differs")}
    assert not gate_symptoms(determinism.GATE, MANUAL, case)
    (verdict,) = [one for one in gate_verdicts(determinism.GATE, wrong, case) if one.status is Status.FAIL]
    assert verdict.locate is not None, "a report shows where"


def test_each_result_is_compared_unless_it_has_no_element_or_is_not_returned() -> None:
    for batch, compared in ((1, True), (0, False)):
        case = default_case(B=batch, S=1, n=1, D=1, dtype="float32")
        without = altered(MANUAL, forward=lambda out, _: (*out[:3], None, *out[4:]))
        told = {one.subject: (one.status, one.message) for one in gate_verdicts(determinism.GATE, without, case)}
        assert told.pop("inv_rms") == (Status.NOT_APPLICABLE, "not returned")
        assert told["dphi"][0] is Status.PASS
        assert told["h_in"] == ((Status.PASS, "") if compared else (Status.NOT_APPLICABLE, "no elements"))
        assert {status for status, _ in told.values()} <= {Status.PASS, told["h_in"][0]}


def test_none_at_one_time_and_a_tensor_at_another_fails() -> None:
    calls = count()

    def sometimes(implementation: Implementation) -> Implementation:
        return altered(implementation, forward=lambda out, _: (*out[:3], None if next(calls) % 2 else out[3], *out[4:]))

    case = default_case(B=1, S=1, n=1, D=2)
    assert gate_symptoms(determinism.GATE, sometimes(MANUAL), case) == {("determinism", "inv_rms", "differs")}
