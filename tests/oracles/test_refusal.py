"""The refusal gate."""

from dataclasses import replace
from itertools import count

from mhc import Refused, default_case
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, judge_all, symptoms

CASE = default_case(B=1, S=1, n=3, D=2)


def test_a_refusal_with_a_reason_is_not_applicable_and_nothing_else_is_judged() -> None:
    (verdict,) = judge_all(replace(MANUAL, supports=lambda case: Refused("odd n")), CASE)
    assert (verdict.oracle, verdict.status, verdict.message) == ("refusal", Status.NOT_APPLICABLE, "odd n")


def test_no_reason_fails() -> None:
    assert symptoms(judge_all(replace(MANUAL, supports=lambda case: Refused(" ")), CASE)) == {
        ("refusal", "case", "no reason")
    }


def test_a_refusal_that_depends_on_more_than_the_case_fails() -> None:
    calls = count()
    moody = replace(MANUAL, supports=lambda case: True if next(calls) % 2 else Refused("not now"))
    (verdict,) = judge_all(moody, CASE)
    assert (verdict.oracle, verdict.symptom) == ("refusal", "unsteady")
    assert verdict.message == "refused because not now; asked again: took it"
    reasons = (Refused(f"reason {number}") for number in count())
    (verdict,) = judge_all(replace(MANUAL, supports=lambda case: next(reasons)), CASE)
    assert verdict.message == "refused because reason 0; asked again: because reason 1"


def test_a_refusal_out_of_a_stage_fails() -> None:
    def refuse(out: object, arguments: tuple[object, ...]) -> object:
        raise Refused("n must be 4")

    verdicts = judge_all(altered(MANUAL, backward=refuse), CASE)
    assert symptoms(verdicts) == {("refusal", "backward", "late")}
    assert [one.message for one in verdicts if one.status is Status.FAIL] == ["backward raised Refused: n must be 4"]
