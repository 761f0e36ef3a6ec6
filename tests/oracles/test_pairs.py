"""Every pair of implementations: on drawn cases, no further apart than both tolerances together allow.

Generated from the registry. Each implementation runs a case once, and all pairs are compared. Where there is a GPU, what
runs on both devices takes part twice, and Triton's interpreter runs the kernels' source beside the compiled kernels.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from mhc import Case, Implementation, Refused
from mhc.case import with_sizes, with_tensor
from mhc.operators.mhc_pre.tir.implementations import TIR
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.operators.mhc_pre.triton.implementations import TRITON_INTERPRETED
from mhc.oracles import pair
from mhc.oracles.bound import judge_tensor
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.pair import Side
from mhc.oracles.verdict import Status, Verdict
from mhc.strategies.cases import cases
from tests.support.helpers import altered, report_folder, scaled_case
from tests.support.pairs import Apart, Participant, hunt, participants, sides, title

BLOCK = 4
BLOCKS = 4
ELEMENTS = 1 << 9
"""Triton's interpreter is among them."""


def told(apart: Apart, folder: Path) -> str:
    """Who, where, both values, both bounds, and what shows each beside float64."""
    path = folder / f"pair-{apart.case.id}.json"
    path.write_text(apart.case.to_json(), encoding="utf-8")
    lines = [
        f"FOUND {title(*apart.pair)}: {apart.verdict.subject}: {apart.verdict.symptom} ({apart.verdict.oracle})",
        apart.verdict.message,
        apart.case.id,
    ]
    for device in dict.fromkeys(one.device for one in apart.pair):
        names = " ".join(f"--impl {one.implementation.name}" for one in apart.pair if one.device == device)
        lines.append(f"python -m mhc.fuzz replay {path} {names}" + ("" if device == "cpu" else f" --device {device}"))
    return "\n    ".join(lines)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, BLOCKS))])
def test_no_two_are_too_far_apart(block: int, tmp_path: Path) -> None:
    those, compared = participants(), Counter[str]()
    assert len(those) > 1
    nightly = settings().max_examples >= 1000
    examples, seed = (50 * BLOCK, None) if nightly else (BLOCK, 1000 + block)
    apart = hunt(those, cases(max_elements=ELEMENTS), examples, seed, compared)
    if apart is not None:
        pytest.fail(told(apart, report_folder(tmp_path)), pytrace=False)
    for left, right in itertools.combinations(those, 2):
        assert compared[title(left, right)], f"nothing of {title(left, right)} could be compared in {examples} cases"


def spoilt(name: str, edit: Callable[[Tensor], Tensor]) -> Implementation:
    """`manual` with one output or gradient edited."""
    stage, at = {"h_in": ("forward", 0), "h_post": ("forward", 1), "dx": ("backward", 0)}[name]

    def edited(returned: tuple[Any, ...], _: object) -> tuple[Any, ...]:
        return (*returned[:at], edit(returned[at].clone()), *returned[at + 1 :])

    return altered(MANUAL, **{stage: edited})


def verdicts(one: Implementation, other: Implementation, case: Case) -> dict[str, Verdict]:
    return {
        verdict.subject: verdict
        for verdict in pair.judge(*sides(case, [Participant(one, "cpu"), Participant(other, "cpu")]))
    }


def put(value: float) -> Callable[[Tensor], Tensor]:
    """The first element replaced."""
    return lambda tensor: torch.where(torch.arange(tensor.numel()).view(tensor.shape) == 0, value, tensor)


CASE = scaled_case(B=1, S=2, n=2, D=3, dtype="float32")


@pytest.mark.parametrize("order", [1, -1])
def test_a_wrong_implementation_is_found_in_its_pair(order: int) -> None:
    first, second = (spoilt("h_post", lambda value: value * 1.001), GOLDEN)[::order]
    failures = {name: one for name, one in verdicts(first, second, CASE).items() if one.status is Status.FAIL}
    assert set(failures) == {"h_post"}
    assert failures["h_post"].symptom == "value"
    number = r"\d[\d.e-]+"
    assert re.fullmatch(
        rf"h_post\[0, \d, \d\] = {number} {first.name}, {number} {second.name}, bound {number} \+ {number}",
        failures["h_post"].message,
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["h_in", "dx"])
def test_a_class_that_differs_is_found(name: str, value: float) -> None:
    found = verdicts(spoilt(name, put(value)), MANUAL, CASE)[name]
    assert (found.status, found.symptom) == (Status.FAIL, "class")
    assert found.message.startswith(f"{name}[0, 0, 0")
    assert f" = {value} altered, " in found.message


def test_an_infinity_of_the_other_sign_is_another_class_and_a_nan_agrees_with_a_nan() -> None:
    case = with_tensor(CASE, "x", literals=(((0, 0, 0, 0), math.nan),))
    assert verdicts(MANUAL, GOLDEN, case)["h_in"].status is Status.PASS
    number = ErrorNumber(torch.tensor([math.inf, 1.0]), torch.zeros(2), torch.float32)
    right = torch.tensor([math.inf, 1.0])
    agreed = pair.compare("h_in", (right, right), (number, number), ("a", "b"))
    assert (agreed.status, agreed.ratio) == (Status.PASS, 0.0)
    found = pair.compare("h_in", (right, right * torch.tensor([-1, 1])), (number, number), ("a", "b"))
    assert (found.symptom, found.message) == ("class", "h_in[0] = inf a, -inf b, bound 0 + 0")


def compared(a: float, b: float, *, value: float = 1.0, error: float = 0.1, dtype: torch.dtype = torch.float32) -> Verdict:
    """Two elements against tolerances of one reference."""
    number = ErrorNumber(torch.tensor([value], dtype=torch.float64), torch.tensor([error], dtype=torch.float64), dtype)
    values = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    return pair.compare("h_in", values, (number, number), ("a", "b"))


def test_each_within_its_own_bound_is_within_the_sum_and_no_more() -> None:
    apart = compared(0.901, 1.099)
    assert apart.status is Status.PASS
    assert apart.ratio == pytest.approx(0.99)
    beyond = compared(0.899, 1.101)
    assert beyond.status is Status.FAIL
    assert beyond.ratio == pytest.approx(1.01)
    assert compared(3.0, 3.15).status is Status.PASS  # both wrong alike: for the bound gate
    number = ErrorNumber(torch.ones(1, dtype=torch.float64), torch.full((1,), 0.1, dtype=torch.float64), torch.float32)
    assert judge_tensor("h_in", torch.tensor([3.0]), number).status is Status.FAIL


def test_where_a_reference_may_overflow_or_not_both_classes_are_right() -> None:
    near = {"value": 65519.0, "error": 32.0, "dtype": torch.float16}
    unsure = compared(65504.0, math.inf, **near)  # type: ignore[arg-type]
    assert unsure.status is Status.NOT_APPLICABLE
    assert unsure.message == "no element is finite in both, and no class is promised"
    assert compared(65504.0, math.nan, **near).status is Status.NOT_APPLICABLE  # type: ignore[arg-type]  # one alone tells
    assert compared(1.0, math.inf, error=math.inf).message == "no element has a finite tolerance in both"


def test_what_cannot_be_compared_says_why() -> None:
    for pair_of in ((MANUAL, TIR), (TIR, MANUAL)):
        absent = verdicts(*pair_of, scaled_case(B=1, S=2, n=2, D=3, absent=frozenset({"gamma"})))
        assert {name: one.message for name, one in absent.items() if one.status is not Status.PASS} == {
            **dict.fromkeys(("dx", "dphi", "dalpha", "dbias"), "not returned by tir"),
            "dgamma": "absent in this case",
        }
    empty = verdicts(MANUAL, GOLDEN, scaled_case(B=1, S=0, n=2, D=3))
    assert empty["h_in"].message == "no elements"
    picky = replace(MANUAL, name="picky", supports=lambda case: Refused("odd D"))
    assert verdicts(picky, GOLDEN, CASE)["case"].message == "picky refused: odd D"
    raising = altered(MANUAL, forward=lambda *_: 1 / 0)
    assert verdicts(GOLDEN, raising, CASE)["case"].message == "altered raised ZeroDivisionError"
    both = [verdicts(picky, GOLDEN, CASE), verdicts(GOLDEN, raising, CASE)]
    assert all(one.status is Status.NOT_APPLICABLE for found in both for one in found.values())


def test_returned_by_one_where_it_must_be_none() -> None:
    case = scaled_case(B=1, S=2, n=2, D=3, absent=frozenset({"gamma"}))
    generous = altered(MANUAL, backward=lambda returned, given: (*returned[:4], torch.ones(2, 3)))
    found = verdicts(generous, MANUAL, case)["dgamma"]
    assert (found.symptom, found.message) == ("unwanted", "dgamma is None of manual alone; it must be None")
    assert verdicts(generous, generous, case)["dgamma"].symptom == "unwanted"


def test_two_cases_are_no_pair() -> None:
    (one,), (other,) = (sides(case, [Participant(MANUAL, "cpu")]) for case in (CASE, with_sizes(CASE, S=3)))
    with pytest.raises(ValueError, match="two cases"):
        pair.judge(one, other)


def test_on_two_devices_a_message_says_which() -> None:
    (side,) = sides(CASE, [Participant(MANUAL, "cpu")])
    moved = Side(observation=replace(side.observation, device=torch.device("cuda")), allowed=side.allowed)
    assert pair.labels(side.observation, moved.observation) == ("manual on cpu", "manual on cuda")


def test_a_wrong_one_among_several_is_named_shrunk_and_told_in_a_few_lines(tmp_path: Path) -> None:
    def wrong(returned: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
        wide = given[0].shape[2] >= 2 and given[0].shape[3] >= 3
        return (returned[0], returned[1] * (1.001 if wide else 1), *returned[2:])

    those = [Participant(one, "cpu") for one in (MANUAL, altered(GOLDEN, forward=wrong), GOLDEN)]
    apart = hunt(those, cases(max_elements=ELEMENTS), 30, 1, Counter())
    assert apart is not None
    assert [getattr(apart.case, symbol) for symbol in ("B", "S", "n", "D")] == [1, 1, 2, 3]
    lines = told(apart, tmp_path).splitlines()
    assert lines[0] == "FOUND manual on cpu and altered on cpu: h_post: value (pair)"
    assert lines[1].startswith("    h_post[0, 0, ")
    assert len(lines) == 4
    assert max(len(line.replace(str(tmp_path), "fuzz_reports")) for line in lines) <= 120


@pytest.mark.slow
def test_the_interpreter_in_a_process_of_its_own_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process has Triton for a GPU, its interpreter needs another, with a variable that is not set here."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    here, there = sides(CASE, [Participant(MANUAL, "cpu"), Participant(TRITON_INTERPRETED, "cpu", apart=True)])
    found = pair.judge(here, there)
    assert {one.status for one in found} == {Status.PASS}
    assert len(found) == 11
    assert any(one.ratio for one in found)


def test_integers_are_equal_or_not() -> None:
    one, other = torch.tensor([3, 5]), torch.tensor([3, 6])
    number = ErrorNumber.exact(torch.tensor([3.0, 5.0], dtype=torch.float64), torch.float32)
    assert pair.compare("at", (one, one.clone()), (number, number), ("a", "b")).status is Status.PASS
    found = pair.compare("at", (one, other), (number, number), ("a", "b"))
    assert (found.status, found.symptom, found.message) == (Status.FAIL, "value", "at[1] = 5 a, 6 b")
    partly = ErrorNumber(number.value, torch.tensor([0.0, math.inf], dtype=torch.float64), torch.float32)
    for pair_of in ((partly, number), (number, partly)):
        assert pair.compare("at", (one, other), pair_of, ("a", "b")).status is Status.PASS
        assert pair.compare("at", (one, one + 1), pair_of, ("a", "b")).message == "at[0] = 3 a, 4 b"
    unknown = ErrorNumber(number.value, torch.full((2,), math.inf), torch.float32)
    assert pair.compare("at", (one, other), (unknown, unknown), ("a", "b")).status is Status.NOT_APPLICABLE


def test_each_side_is_judged_by_its_own_tolerance() -> None:
    def number(error: float, value: float = 1.0) -> ErrorNumber:
        return ErrorNumber(torch.tensor([value]).double(), torch.tensor([error]).double(), torch.float32, finite=True)

    def compare(a: float, b: float, *wanted: ErrorNumber) -> Verdict:
        return pair.compare("y", (torch.tensor([a]), torch.tensor([b])), (wanted[0], wanted[1]), ("a", "b"))

    for wanted in ((number(0.125), number(0.375)), (number(0.375), number(0.125))):
        assert compare(1.0, 1.25, *wanted).ratio == 0.5
        assert compare(1.0, 1.625, *wanted).status is Status.FAIL
    for wanted in ((number(math.inf), number(0.125)), (number(0.125), number(math.inf))):
        assert compare(1.0, 9.0, *wanted).message == "no element has a finite tolerance in both"
    wide, sure = number(1e38, 3e38), number(0.0, 3e38)  # the first permits infinity as well
    for wanted in ((wide, sure), (sure, wide)):
        assert compare(3e38, math.inf, *wanted).status is Status.NOT_APPLICABLE
