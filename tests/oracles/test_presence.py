"""The presence gate: what is returned for some cases is returned for all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mhc import Case, Implementation, Refused, default_case, load
from mhc.case import with_sizes
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from oracles import presence
from oracles.verdict import Status, Verdict
from tests.support.helpers import altered, gate_verdicts, symptoms

SMALL = default_case(B=1, S=2, n=2, D=4, dtype="float32")
BARE = default_case(B=1, S=2, n=2, D=4, dtype="float32", absent=frozenset({"gamma"}))


def verdicts(implementation: Implementation, case: Case) -> list[Verdict]:
    return [one for gate in presence.GATES for one in gate_verdicts(gate, implementation, case)]


def found(implementation: Implementation, case: Case) -> set[tuple[str, str, str]]:
    return symptoms(verdicts(implementation, case))


def without(stage: str, at: int, where: Callable[[Any], bool]) -> Implementation:
    """One result None where a condition on x holds."""

    def edit(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None if i == at and where(arguments) else one for i, one in enumerate(out))

    return altered(MANUAL, **{stage: edit})


@pytest.mark.parametrize(
    ("name", "wrong", "case"),
    [
        ("dphi", without("backward", 1, lambda given: given[0].shape[1] > 64), with_sizes(SMALL, S=65)),
        ("dphi", without("backward", 1, lambda given: given[0].shape[1] < 65), SMALL),
        ("inv_rms", without("forward", 3, lambda given: given[0].shape[3] % 2 == 0), SMALL),
        ("dbias", without("backward", 3, lambda given: given[0].element_size() == 4), SMALL),
        ("dbias", without("backward", 3, lambda given: given[-1] is None), BARE),
        ("dbias", without("backward", 3, lambda given: given[-1] is not None), SMALL),
    ],
    ids=["many tokens", "few tokens", "even widths", "one dtype", "without gamma", "with gamma"],
)
def test_a_result_that_comes_and_goes_fails(name: str, wrong: Implementation, case: Case) -> None:
    assert found(wrong, case) == {("presence", name, "missing")}
    assert not found(MANUAL, case)


def test_a_failure_says_both_shapes() -> None:
    wrong = without("backward", 1, lambda given: given[0].shape[1] > 64)
    (message, *_) = [one.message for one in verdicts(wrong, with_sizes(SMALL, S=65)) if one.status is Status.FAIL]
    assert message == (
        "dphi is None for B = 1, S = 65, n = 2, D = 4, float32, and is returned for B = 1, S = 1, n = 1, D = 1, float32"
    )


def test_a_result_that_is_never_returned_is_legal() -> None:
    simplest, others = verdicts(without("backward", 1, lambda given: True), SMALL)
    assert {(one.subject, one.status) for one in (simplest, others)} == {("dphi", Status.NOT_APPLICABLE)}
    assert simplest.message == "None for B = 1, S = 1, n = 1, D = 1, float32 too"


def test_what_must_be_none_is_not_missing() -> None:
    assert {one.status for one in verdicts(MANUAL, BARE)} == {Status.PASS}


def test_a_probe_that_is_refused_or_raises_is_not_told_of() -> None:
    """One shape is judged; the others may be anything."""

    def supports(case: Case) -> Any:
        return True if case.sizes["n"] == 2 else Refused("two streams")

    def edit(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if arguments[0].shape[1] == 70:
            raise RuntimeError("70 tokens")
        return (out[0], None, *out[2:])

    wrong = replace(altered(MANUAL, backward=edit), supports=supports, dtypes=("float32",))
    assert {one.status for one in verdicts(wrong, SMALL)} == {Status.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("dgamma_missing_for_many_streams", with_sizes(SMALL, n=9)),
        ("no_gradients_in_float16", replace(SMALL, dtype="float16")),
        ("saved_missing_without_gamma", BARE),
    ],
)
def test_mutants(name: str, case: Case) -> None:
    mutant = load(f"oracles.mutants.load:{name}")
    assert {(oracle, symptom) for oracle, _, symptom in found(mutant, case)} == {("presence", "missing")}
