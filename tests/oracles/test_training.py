"""The training gate finds functions that are right in one use of autograd and wrong in another."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, default_case, operator
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operators.mhc_pre.torch.implementations import GOLDEN
from mhc.oracles import training
from mhc.oracles.trial import Gate
from mhc.oracles.verdict import Status, Verdict
from tests.support.helpers import gate_symptoms, gate_verdicts, symptoms


@operator(x="[T, D] float32", a="[D] float32", b="[D] float32", T=(1, 40), D=(1, 40))
def product_and_sum(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return x * a + b, x.sum(-1)


class Right(torch.autograd.Function):
    """The operator with a backward written by hand; wrong variants replace a part."""

    @classmethod
    def outputs(cls, ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x * a + b, x.sum(-1)

    @classmethod
    def forward(cls, ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, a)
        return cls.outputs(ctx, x, a, b)

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a = ctx.saved_tensors
        dx = torch.zeros_like(x) if dy is None else dy * a
        if ds is not None:
            dx = dx + ds[:, None]
        return (dx, None, None) if dy is None else (dx, (dy * x).sum(0), dy.sum(0))


class Training(Right):
    """Other outputs where an input requires a gradient."""

    @classmethod
    def outputs(cls, ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x * a + b * (1.01 if any(ctx.needs_input_grad) else 1.0), x.sum(-1)


class Frozen(Right):
    """dx without a part where `b` alone requires no gradient."""

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        dx, *others = super().backward(ctx, dy, ds)
        return (dy * ctx.saved_tensors[1] if ctx.needs_input_grad == (True, True, False) else dx, *others)


class Alone(Right):
    """No gradient of `a` where it is the only one that is asked for."""

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        dx, da, db = super().backward(ctx, dy, ds)
        return dx, None if ctx.needs_input_grad == (False, True, False) else da, db


class Unused(Right):
    """dx is forgotten where the product has no upstream gradient."""

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, None) if dy is None else super().backward(ctx, dy, ds)


class Scales(Right):
    """Each backward doubles the saved factor."""

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.factor = 2 * getattr(ctx, "factor", 0.5)
        dx, *others = super().backward(ctx, dy, ds)
        return (dx * ctx.factor, *others)


class Once(Right):
    """The saved tensors are given away in the first backward."""

    @classmethod
    def backward(cls, ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
        if hasattr(ctx, "gone"):
            raise ValueError("nothing was kept")
        ctx.gone = True
        return super().backward(ctx, dy, ds)


class Inferring(Right):
    """Other outputs where no gradient can be asked for."""

    @classmethod
    def outputs(cls, ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x * a + b * (1.0 if any(ctx.needs_input_grad) else 1.01), x.sum(-1)


def made(function: type[Right]) -> Implementation:
    return Implementation(name="one", operator=product_and_sum, function=function.apply)


def case_of(**changes: Any) -> Case:
    return default_case(operator=made(Right).table.name, dtype="float32", T=3, D=4, **changes)


def gate(variant: str) -> Gate:
    (found,) = (one for one in training.GATES if one.variant == variant)
    return found


def found(variant: str, function: type[Right], case: Case | None = None) -> set[tuple[str, str, str]]:
    return gate_symptoms(gate(variant), made(function), case or case_of())


VARIANTS = [one.variant for one in training.GATES]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_function_passes_in_every_use(variant: str) -> None:
    verdicts = gate_verdicts(gate(variant), made(Right), case_of())
    assert {one.status for one in verdicts} == {Status.PASS}
    assert {one.subject for one in verdicts} == {"y0", "y1", "dx", "da", "db"}


WRONG = [
    ("all gradients", Training, {("y0", "with gradients")}, "all gradients: y0["),
    ("some gradients", Training, {("y0", "with gradients")}, "only da: y0["),
    ("no upstream gradient", Training, {("y0", "with gradients")}, "no upstream gradient of y0: y0["),
    ("second backward", Training, {("y0", "with gradients")}, "second backward: y0["),
    ("some gradients", Frozen, {("dx", "some gradients")}, "without db: dx["),
    ("some gradients", Alone, {("da", "some gradients")}, "only da: da["),
    ("no upstream gradient", Unused, {("dx", "no upstream gradient")}, "no upstream gradient of y0: dx["),
    ("second backward", Scales, {("dx", "second backward")}, "second backward: dx["),
]


@pytest.mark.parametrize(("variant", "function", "wanted", "message"), WRONG)
def test_what_is_wrong_in_one_use_is_found(
    variant: str, function: type[Right], wanted: set[tuple[str, str]], message: str
) -> None:
    verdicts = gate_verdicts(gate(variant), made(function), case_of())
    assert symptoms(verdicts) == {("training", *one) for one in wanted}
    assert next(one.message for one in verdicts if one.status is Status.FAIL).startswith(message)
    if function is not Training:
        others: set[tuple[str, str, str]] = set()
        assert others.union(*(found(one, function) for one in VARIANTS if one != variant)) == set()


def test_a_second_backward_that_raises_is_a_failure_that_says_where() -> None:
    (verdict,) = gate_verdicts(gate("second backward"), made(Once), case_of())
    assert (verdict.oracle, verdict.subject, verdict.symptom) == ("liveness", "training", "raises ValueError")
    wanted = r"training raised ValueError: nothing was kept \(test_training.py, line \d+\) \(run: second backward\)"
    assert re.fullmatch(wanted, verdict.message)


def test_the_forward_is_judged_without_gradients() -> None:
    failures = check(made(Inferring), case_of(), "cpu", Level.PLAIN).failures
    assert symptoms(failures) == {("bound", "y0", "value")}
    assert found("all gradients", Inferring) == set()


def test_a_function_that_leaves_gradients_off_is_noticed() -> None:
    def leaves(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        results = x * a + b, x.sum(-1)
        torch.set_grad_enabled(False)
        return results

    wrong = Implementation(name="one", operator=product_and_sum, function=leaves)
    assert symptoms(check(wrong, case_of(), "cpu", Level.PLAIN).failures) == {("effects", "grad mode", "changed")}
    assert torch.is_grad_enabled()


def reasons(verdicts: Sequence[Verdict]) -> set[str]:
    assert {one.status for one in verdicts} == {Status.NOT_APPLICABLE}
    return {one.message for one in verdicts}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_backward_that_is_given_is_not_asked_for_other_uses(variant: str) -> None:
    case = default_case(B=1, S=2, n=2, D=3, dtype="float32")
    assert reasons(gate_verdicts(gate(variant), GOLDEN, case)) == {"its backward is not autograd's"}


@operator(x="[T] float32")
def plain_double(x: Tensor) -> Tensor:
    return 2 * x


def test_a_use_needs_two_inputs_or_two_outputs() -> None:
    one = Implementation(name="one", operator=plain_double, function=lambda x: x + x)
    case = default_case(operator=one.table.name, dtype="float32", T=3)
    for variant in ("some gradients", "no upstream gradient"):
        assert reasons(gate_verdicts(gate(variant), one, case)) == {"fewer than two to choose from"}
    assert {one.status for one in gate_verdicts(gate("second backward"), one, case)} == {Status.PASS}


def test_an_upstream_gradient_of_zeros_is_none_only_where_all_is_finite() -> None:
    case = with_tensor(case_of(), "a", literals=(((1,), float("inf")),))
    (reason,) = reasons(gate_verdicts(gate("no upstream gradient"), made(Right), case))
    assert reason.startswith("not finite everywhere")
    upstream = with_tensor(case_of(), "dy0", literals=(((0, 1), float("nan")),))
    (reason,) = reasons(gate_verdicts(gate("no upstream gradient"), made(Right), upstream))
    assert reason.startswith("not finite everywhere")
    assert found("some gradients", Right, case) == set()


@operator(x="[T, D] float32", w="[D] float32", mutates=("x",), T=(1, 40), D=(1, 40))
def scaled_in_place(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def test_an_input_may_be_written_where_the_operator_says_so() -> None:
    right = Implementation(name="one", operator=scaled_in_place, function=lambda x, w: x.mul_(w))
    case = default_case(operator=right.table.name, dtype="float32", T=3, D=4)
    for variant in ("all gradients", "some gradients", "second backward"):
        verdicts = gate_verdicts(gate(variant), right, case)
        assert {one.status for one in verdicts} == {Status.PASS}, variant
