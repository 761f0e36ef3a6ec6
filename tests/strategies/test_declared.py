"""What is drawn for operators that a function declares: sizes of models, stretched sizes, scales, regimes, relations."""

import math

import pytest
import torch
from hypothesis import given, seed
from torch import Tensor

from mhc import Case, Implementation, Recipe, materialise, operator
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.notation import DeclarationError
from mhc.operator import Regime, Relation, register
from mhc.strategies.cases import cases
from mhc.strategies.reach import PERIOD, Reach
from mhc.strategies.rounds import quiet
from mhc.strategies.shapes import MIDDLE

MADE = (1024, 2048, 4096)


@operator(
    x="[*B, D] storage",
    w="[E, D] storage",
    index="[*B] int32 in 0..E",
    tokens="*B",
    E=(1, 64),
    usual=lambda sizes: {"w": -(sizes["D"].bit_length() // 2)},
    regimes={"dead": Regime(tensors={"w": ("zero", 0, 0)}, scalars={"eps": 1.0})},
    production={"D": MADE},
    relations=[Relation(name="scaled weights", factors=lambda sizes, power: {"w": power, "y": power, "dx": power})],
    exact={"x": Recipe(kind="sign"), "eps": 0.0},
    eps=(1e-6, 0.0, 1.0),
)
def declared_choice(x: Tensor, w: Tensor, index: Tensor, *, eps: float) -> Tensor:
    return (x.float() * w[index].float()).sum(-1)


RIGHT = Implementation(name="right", operator=declared_choice, function=declared_choice.function)
WRONG = Implementation(
    name="wrong",
    operator=declared_choice,
    forward=lambda *given, **named: tuple(one + 1 for one in declared_choice.forward(*given, **named)),
    backward=declared_choice.backward,
)


def drawn(reach: Reach, rounds: int, most: int, name: str = "declared_choice") -> list[Case]:
    found = []
    for at in range(rounds):

        @seed(at)
        @quiet(10)
        @given(cases(operator=name, max_elements=most, reach=reach))
        def collect(case: Case) -> None:
            found.append(case)

        collect()
    return found


def test_stretched_cases_have_one_long_axis() -> None:
    found = drawn(Reach.STRETCHED, 12, 1 << 16)
    long = [{name for name in case.axes if case.sizes[name] > max(MIDDLE)} for case in found]
    assert all(len(names) <= 1 for names in long)
    assert {"B0", "B1", "D"} <= set[str]().union(*long)
    assert max(case.sizes["D"] for case in found) > 4096


@operator(a="[T] float32 in -8..0", b="[T] float32 in 0..1", c="[T] float32 in -0.5..300", d="[T] float32 in 0..inf")
def filled_ranges(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a + b + c + d


register(filled_ranges)


def test_values_reach_both_ends_of_a_range() -> None:
    """They fill it in half of the cases; near 0 they are otherwise."""
    found = [materialise(case).tensors for case in drawn(Reach.USUAL, 20, 64, "filled_ranges") if case.sizes["T"] >= 16]
    reached = {
        name: [
            (float(tensor.nan_to_num().min()), float(tensor.nan_to_num().max()))
            for one in found
            if (tensor := one[name]) is not None
        ]
        for name in "abc"
    }
    for name, (low, high) in {"a": (-7.0, -0.5), "b": (0.1, 0.9), "c": (10.0, 200.0)}.items():
        assert sum(least < low and most > high for least, most in reached[name]) > len(found) / 6, name
    assert sum(least > -3 for least, _ in reached["a"]) > len(found) / 4


@operator(a="[T, H] float32", b="[T, H] float32", v="[T, D]")
def declared_merge(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return torch.logaddexp(a, b).sum() * v


register(declared_merge)


def test_tensors_of_one_shape_are_special_at_one_place() -> None:
    found = [case.tensors for case in drawn(Reach.USUAL, 60, 1 << 12, "declared_merge")]
    masked = [one for one in found if one["a"].kind == "masked"]
    assert {one["b"].kind == "masked" for one in masked} == {True, False}
    special = [one for one in found if one["a"].literals]
    assert {one["b"].literals == one["a"].literals for one in special} == {True, False}
    assert all(one["v"].literals != one["a"].literals for one in special)


def test_zeros_meet_special_elements() -> None:
    found = [case.tensors for case in drawn(Reach.USUAL, 60, 1 << 12, "declared_merge")]
    sparse = [one["v"].kind == "sparse" for one in found if one["a"].literals]
    assert sum(sparse) / len(sparse) > 3 * sum(one["v"].kind == "sparse" for one in found) / len(found)


def test_a_magnitude_is_sometimes_the_number_below_a_power_of_two() -> None:
    """Its logarithm in float32 is a whole number, that of the power: a kernel that takes the floor has twice the scale."""
    scales = [one.scale for case in drawn(Reach.USUAL, 60, 1 << 12, "declared_merge") for one in case.tensors.values()]
    below = [torch.tensor(scale, dtype=torch.float64) for scale in scales if math.frexp(scale)[0] != 0.5]
    assert 0.005 < len(below) / len(scales) < 0.05
    assert all(one.float().log2().floor() == one.log2().floor() + 1 for one in below if one > 2.0**-126)


@operator(x="[T, D]", D="K+rest", K=(1, 8), rest=(0, 50))
def declared_rest(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("most", [1, 2, 8])
def test_an_axis_that_may_be_0_is_drawn_where_next_to_nothing_fits(most: int) -> None:
    register(declared_rest)
    for reach in Reach:
        assert all(case.sizes["T"] * case.sizes["D"] <= most for case in drawn(reach, 8, most, "declared_rest")), reach


def test_model_cases_have_sizes_of_models_and_many_tokens() -> None:
    found = drawn(Reach.MODEL, 6, 1 << 18)
    widths = {case.sizes["D"] for case in found}
    assert widths <= {one + odd for one in MADE for odd in (0, 1, -1, 37, -64)}
    assert widths & {*MADE}
    assert widths - {*MADE}
    assert max(case.token_count for case in found) > PERIOD
    for case in found:
        many = case.token_count > PERIOD
        assert case.tensors["index"].period == (PERIOD if many else 0), case.id
    large = max(found, key=lambda case: case.token_count)
    assert not check(RIGHT, large, "cpu", Level.PLAIN).failures


def test_scales_and_regimes_are_those_of_the_declaration() -> None:
    found = drawn(Reach.USUAL, 12, 1 << 12)
    usual = sum(case.tensors["w"].scale == 2.0 ** -(case.sizes["D"].bit_length() // 2) for case in found)
    assert usual > len(found) / 2
    assert sum(case.tensors["w"].kind == "zero" and case.scalars["eps"] == 1.0 for case in found) > len(found) / 8
    assert declared_choice.exact_recipes == {"x": Recipe(kind="sign")}
    assert declared_choice.exact_scalars == {"eps": 0.0}


def test_a_relation_of_a_declaration_is_judged() -> None:
    case = next(case for case in drawn(Reach.USUAL, 1, 1 << 10) if case.dtype == "float32" and not _special(case))
    judged = [one for one in check(RIGHT, case, "cpu", Level.FULL).verdicts if one.oracle == "algebra"]
    assert "y" in {one.subject for one in judged}
    assert not [one for one in judged if one.symptom == "scaled weights"]
    failures = check(WRONG, case, "cpu", Level.FULL).failures
    assert ("algebra", "y", "scaled weights") in {(one.oracle, one.subject, one.symptom) for one in failures}


def _special(case: Case) -> bool:
    return any(recipe.literals or abs(recipe.scale) != 1 for recipe in case.tensors.values())


def identity(x: Tensor) -> Tensor:
    return x * torch.ones_like(x)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"usual": {"z": 1}}, r"usual must name some of dy, x, was \['z'\]"),
        ({"production": {"V": (1,)}}, r"production must name some of T, was \['V'\]"),
        ({"exact": {"eps": 0.0}}, r"exact must name some of dy, x, was \['eps'\]"),
        (
            {"regimes": {"a": Regime(tensors={"w": (None, 0, 0)})}},
            r"regimes: a: tensors must name some of dy, x, was \['w'\]",
        ),
    ],
)
def test_names_that_are_not_declared_are_refused(declared: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        operator(x="[T]", **declared)(identity)  # type: ignore[arg-type]
