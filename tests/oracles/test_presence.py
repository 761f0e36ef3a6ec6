"""The presence gate: what is returned for some cases is returned for all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from mhc import Case, Implementation, Refused, default_case, load, operator
from mhc.case import with_sizes
from mhc.operator import Operator, register
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import presence
from mhc.oracles.verdict import Status, Verdict
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


@operator(x="[T, D] float32", w="[E] float32", E="20-D", T=(3, 20), D=(1, 40))
def faded(x: Tensor, w: Tensor) -> Tensor:
    return x * w.sum()


@operator(x="[T, D] float32", w="[E] float32", E="D-T-1")
def wide_only(x: Tensor, w: Tensor) -> Tensor:
    return x * w.sum()


@operator(x="[T, D] float32", w="[D] float32", T=(3, 20), D=(1, 40))
def weighted(x: Tensor, w: Tensor) -> Tensor:
    return x * w.sum()


def sometimes(table: Operator, there: Callable[[tuple[int, ...]], bool]) -> Implementation:
    """Return an implementation whose dw is not None for some shapes of x."""

    def backward(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        return dy * w.sum(), (dy * x).sum().expand(w.shape).clone() if there(tuple(x.shape)) else None

    return Implementation(name="mine", operator=table, forward=lambda x, w: (x * w.sum(),), backward=backward)


@pytest.mark.parametrize(
    ("table", "shapes"),
    [(faded, [(3, 1), (8, 8)]), (weighted, [(3, 1), (8, 8), (20, 33)]), (wide_only, [(2, 5)])],
    ids=lambda one: one.name if isinstance(one, Operator) else "",
)
def test_probes_of_an_operator_without_any_of_its_own(table: Operator, shapes: list[tuple[int, int]]) -> None:
    """All axes have one of three sizes, within their ranges; where no such shape is possible, the case's own is probed."""
    asked: list[tuple[int, ...]] = []
    register(table)
    case = default_case(operator=table.name, dtype="float32", T=shapes[0][0], D=shapes[0][1])

    def never(shape: tuple[int, ...]) -> bool:
        asked.append(shape)
        return False

    assert not found(sometimes(table, never), case)
    assert list(dict.fromkeys(asked)) == shapes
    assert asked[-1] == shapes[-1], "of other dtypes, the largest"
    for shape in shapes[1:]:
        (told,) = [one for one in verdicts(sometimes(table, shape.__eq__), case) if one.status is Status.FAIL]
        assert (told.subject, told.symptom) == ("dw", "missing")
        assert told.message.endswith(f"and is returned for T = {shape[0]}, D = {shape[1]}, float32")


@operator(x="[*B, D] float32", w="[D] float32")
def weighted_rows(x: Tensor, w: Tensor) -> Tensor:
    return x * w.sum()


def test_probes_of_many_axes_are_small_and_each_axis_is_large_in_one() -> None:
    asked: dict[tuple[int, ...], None] = {}
    register(weighted_rows)
    case = default_case(operator=weighted_rows.name, dtype="float32", B0=2, D=3)

    def never(shape: tuple[int, ...]) -> bool:
        asked[shape] = None
        return False

    assert not found(sometimes(weighted_rows, never), case)
    assert [*asked] == [(2, 3), (1, 1, 1, 1), (8, 8, 8, 8), (33, 33, 1, 3), (1, 3, 33, 33)]
    for at in range(4):
        assert found(sometimes(weighted_rows, lambda shape, at=at: shape[at:][:1] > (32,)), case)  # type: ignore[misc]


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
    mutant = load(f"mhc.oracles.mutants.load:{name}")
    assert {(oracle, symptom) for oracle, _, symptom in found(mutant, case)} == {("presence", "missing")}
