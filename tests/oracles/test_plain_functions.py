"""Gates with further runs on operators that a plain function declares: what each finds, and what all of them pass."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mhc import Implementation, Layout, default_case, operator
from mhc.case import with_tensor
from mhc.fuzz.check.check import further
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.operator import Operator
from mhc.oracles import exact, linear, precision
from mhc.oracles.bound import tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import RepeatedReader
from mhc.oracles.judge import judge
from mhc.oracles.trial import Gate, Trial
from mhc.oracles.verdict import Status, Verdict
from mhc.reference import reference


@operator(x="[T, K] float32", w="[N, K] float32")
def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


@operator(a="[T, D] storage", b="[T, D] storage")
def gated(a: Tensor, b: Tensor) -> Tensor:
    return functional.silu(a) * b


@operator(q="[S, D] storage", k="[S, D] storage", v="[S, D] storage")
def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q.float() @ k.float().mT / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape, dtype=torch.bool, device=q.device).triu(1)
    output: Tensor = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v.float()
    return output.to(q.dtype)


SIZES: dict[str, dict[str, Any]] = {
    "product": {"T": 40, "K": 600, "N": 24},
    "gated": {"T": 20, "D": 200},
    "attended": {"S": 30, "D": 32},
}


def trial(table: Operator, function: Callable[..., Tensor], precision: str = "float32") -> tuple[Implementation, Trial]:
    implementation = Implementation(name="one", operator=table, function=function, precision={"matmul": precision})
    case = default_case(operator=table.name, dtype="float32", **SIZES[table.name])
    for name in case.tensors:
        case = with_tensor(case, name, layout=Layout(step=2))
    inputs = materialise(case)
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted, declared=implementation.declared)
    seen = observe(implementation, inputs, wanted.saved)
    return implementation, Trial(
        inputs=inputs, reference=wanted, allowed=allowed, observation=seen, declared=implementation.declared
    )


def judged(gate: Gate, table: Operator, function: Callable[..., Tensor], precision: str = "float32") -> list[Verdict]:
    return [one for one in further(*trial(table, function, precision), [gate]) if one.oracle == gate.name]


def by_hand(a: Tensor, b: Tensor) -> Tensor:
    return a / (1 + torch.exp(-a)) * b


def in_two_parts(x: Tensor, w: Tensor) -> Tensor:
    return x[:, ::2] @ w[:, ::2].T + x[:, 1::2] @ w[:, 1::2].T


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


@pytest.mark.parametrize("gate", [precision.GATE, exact.GATE, linear.GATE], ids=lambda gate: gate.name)
@pytest.mark.parametrize(("table", "function"), [(product, in_two_parts), (gated, by_hand), (attended, fused)])
def test_another_order_of_evaluation_passes(gate: Gate, table: Operator, function: Callable[..., Tensor]) -> None:
    verdicts = judged(gate, table, function)
    statuses = {one.status for one in verdicts}
    # a difference that cancels is no exact 0 in another order: of attention's dq and dk nothing is exact
    assert statuses == {Status.PASS} or (gate.name, table.name) == ("exact", "attended")
    assert Status.PASS in statuses
    assert Status.FAIL not in statuses


def tf32(value: Tensor) -> Tensor:
    """The value rounded to TF32's 11 digits; its gradient passes."""
    rounded = ((value.detach().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return value + (rounded - value).detach()


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clamp(-2, 2)


def clipped(a: Tensor, b: Tensor) -> Tensor:
    output: Tensor = Clipped.apply(by_hand(a, b))  # type: ignore[no-untyped-call]
    return output


def short_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with products in bfloat16."""
    return attended.forward(q.bfloat16().float(), k.bfloat16().float(), v)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("gate", "table", "function", "symptom"),
    [
        (precision.GATE, product, lambda x, w: tf32(x) @ tf32(w).T, "imprecise"),
        (precision.GATE, gated, lambda a, b: gated.forward(a.bfloat16().float(), b)[0], "imprecise"),
        (precision.GATE, attended, short_softmax, "imprecise"),
        (exact.GATE, product, lambda x, w: x[:, :-1] @ w[:, :-1].T, "value"),
        (linear.GATE, gated, clipped, "not linear"),
    ],
)
def test_what_a_gate_finds(gate: Gate, table: Operator, function: Callable[..., Tensor], symptom: str) -> None:
    assert symptom in {one.symptom for one in judged(gate, table, function) if one.status is Status.FAIL}


class RoundedProduct(torch.autograd.Function):
    """A product of factors that `round_` rounds, forward and backward."""

    @staticmethod
    def forward(ctx: Any, round_: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
        ctx.round, ctx.factors = round_, (a, b)
        return round_(a) @ round_(b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        (a, b), upstream = ctx.factors, ctx.round(gradients[0])
        return None, upstream @ ctx.round(b).mT, ctx.round(a).mT @ upstream


ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": lambda value: value,
    "tf32": lambda value: (value.view(torch.int32) & ~0x1FFF).view(torch.float32),
    "bfloat16": lambda value: value.bfloat16().float(),
    "float16": lambda value: value.half().float(),
    "six digits": lambda value: (value.view(torch.int32) & ~0x3FFFF).view(torch.float32),
    "four digits": lambda value: (value.view(torch.int32) & ~0xFFFFF).view(torch.float32),
}


def rounded_product(rounding: str) -> Callable[..., Tensor]:
    def multiply(x: Tensor, w: Tensor) -> Tensor:
        output: Tensor = RoundedProduct.apply(ROUNDINGS[rounding], x, w.T)  # type: ignore[no-untyped-call]
        return output

    return multiply


@pytest.mark.parametrize(
    ("declared", "computed", "right"),
    [
        ("float32", "float32", True),
        ("float32", "tf32", False),
        ("tf32", "tf32", True),
        ("tf32", "float32", True),
        ("tf32", "float16", True),
        ("tf32", "six digits", False),
        ("bfloat16", "bfloat16", True),
        ("bfloat16", "tf32", True),
        ("float16", "float16", True),
        ("float16", "six digits", False),
        ("bfloat16", "four digits", False),
    ],
)
def test_less_precision_is_right_where_it_is_declared(declared: str, computed: str, right: bool) -> None:
    function = rounded_product(computed)
    for gate in (precision.GATE, exact.GATE, linear.GATE):
        failed = [one for one in judged(gate, product, function, declared) if one.status is Status.FAIL]
        if right or gate is not precision.GATE:
            assert not failed
        else:
            assert {one.symptom for one in failed} == {"imprecise"}
    _, seen = trial(product, function, declared)
    verdicts = judge(seen.observation, seen.allowed)
    assert not (right and any(one.status is Status.FAIL for one in verdicts))


def test_a_wrong_product_is_wrong_whatever_is_declared() -> None:
    for declared in ("tf32", "bfloat16", "float16"):
        found = judged(exact.GATE, product, lambda x, w: x[:, :-1] @ w[:, :-1].T, declared)
        assert "value" in {one.symptom for one in found}


def test_gates_take_tensors_of_integers() -> None:
    @operator(x="[T, V] storage", target="[T] int64 in 0..V")
    def entropy(x: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(x.float(), target)

    SIZES["entropy"] = {"T": 5, "V": 7}
    for gate in (precision.GATE, linear.GATE):
        verdicts = judged(gate, entropy, lambda x, t: -x.log_softmax(-1).gather(1, t[:, None]).mean())
        assert Status.PASS in {one.status for one in verdicts}
        assert Status.FAIL not in {one.status for one in verdicts}


def test_a_code_beside_the_middle_of_two_may_be_either() -> None:
    """A quotient of 63.5 is 63 or 64, as 1 / scale is rounded; all others are what they are."""

    @operator(x="[T, D] storage constant")
    def codes(x: Tensor) -> Tensor:
        return torch.round(x / (x.abs().amax(-1, keepdim=True) / 127.0)).to(torch.int8)

    for right, found in (([127, 64, 44], set()), ([127, 63, 44], set()), ([127, 64, 45], {"value"})):
        codes_of = torch.tensor([right], dtype=torch.int8)
        mine = Implementation(name="mine", operator=codes, forward=lambda x, of=codes_of: of.clone())
        case = default_case(operator="codes", dtype="float32", T=1, D=3)
        case = with_tensor(case, "x", literals=tuple(((0, at), one) for at, one in enumerate((2.0, 1.0, 0.7))))
        inputs = materialise(case)
        wanted = reference(inputs)
        verdicts = judge(observe(mine, inputs, wanted.saved), tolerances(inputs, wanted, declared=mine.declared))
        assert {one.symptom for one in verdicts if one.status is Status.FAIL} == found


def test_where_rounding_decides_a_comparison_precision_does_not_judge() -> None:
    @operator(x="[T, D] storage")
    def jumps(x: Tensor) -> Tensor:
        y = x * 0.1 + 0.2 - 0.3
        return torch.where(y - y.amax(-1, keepdim=True) >= 0, y, 0.0)

    SIZES["jumps"] = {"T": 3, "D": 4}
    (verdict,) = judged(precision.GATE, jumps, lambda x: jumps.forward(x)[0])
    assert verdict.status is Status.NOT_APPLICABLE
    assert verdict.message == "rounding may decide a comparison"


@operator(x="[T, D] storage", mask="[T, D] float32 constant", w="[D] float32", T=(1, 9), D=(1, 9), half=(0.0, 0.5))
def softmax_and_largest(x: Tensor, mask: Tensor, w: Tensor, *, half: float) -> tuple[Tensor, Tensor]:
    """softmax(x + mask) w, and half the largest element of each row."""
    return ((x.float() + mask).softmax(-1) * w).to(x.dtype), half * x.float().amax(-1)


def classes(function: Callable[..., Any], changes: dict[str, dict[str, Any]], half: float = 0.5) -> list[str]:
    """What fails on a case of two rows of three elements."""
    mine = Implementation(name="mine", operator=softmax_and_largest, function=function)
    case = default_case(operator="softmax_and_largest", dtype="float32", T=2, D=3, scalars={"half": half})
    for name, recipe in changes.items():
        case = with_tensor(case, name, **recipe)
    inputs = materialise(case)
    wanted = reference(inputs)
    seen = observe(mine, inputs, wanted.saved)
    return [f"{one.subject}: {one.symptom}" for one in judge(seen, tolerances(inputs, wanted)) if one.status is Status.FAIL]


def test_a_nan_that_depends_on_no_nan_of_the_inputs_is_not_promised() -> None:
    def masked(x: Tensor, mask: Tensor, w: Tensor, *, half: float) -> tuple[Tensor, Tensor]:
        y, largest = softmax_and_largest(x, mask, w, half=half)
        return y.nan_to_num(0.0), largest if half else largest.nan_to_num(0.0)

    hidden: dict[str, Any] = {"kind": "constant", "literals": tuple(((0, at), -math.inf) for at in range(3))}
    assert classes(masked, {"mask": hidden}) == [], "a row of which all is masked: 0 in place of NaN"
    assert classes(masked, {"x": {"literals": (((0, 1), math.inf),)}}) == [], "of +inf, softmax is inf - inf"
    assert classes(masked, {"x": {"literals": (((0, 1), math.nan),)}}) == ["y0: class"], "a NaN that is lost"
    assert classes(masked, {"x": {"literals": (((0, 1), math.nan),)}}, half=0.0) == ["y0: class"], "0 * NaN is left out"
    both = {"x": {"literals": (((1, 1), math.nan),)}, "mask": hidden}
    assert classes(masked, both) == ["y0: class"], "of both kinds, only the row with the NaN"
    large: dict[str, Any] = {"kind": "alternating", "scale": 1024.0, "literals": (((0, 1), math.nan),)}
    assert classes(masked, {"x": large}) == ["y0: class"], "a saturated row is the same for all numbers that are not large"
    everywhere: dict[str, Any] = {"literals": tuple(((0, at), math.nan) for at in range(3))}
    assert classes(masked, {"x": everywhere}) == ["y0: class"], "and one of equal numbers whatever they are"
    least: dict[str, Any] = {"kind": "zero", "literals": (((0, 1), -1e9),)}
    assert classes(masked, {"x": large, "mask": least}) == [], "a mask that adds a large number hides the NaN"


@operator(x="[T, D] storage", T=(1, 9), D=(1, 9))
def clamped_twice(x: Tensor) -> Tensor:
    return x.float().clamp(-1.0, 1.0).square().to(x.dtype)


@pytest.mark.parametrize("at_nan", [math.nan, 7.0])
def test_a_gradient_that_a_nan_masks_is_not_promised_and_others_are(at_nan: float) -> None:
    """PyTorch's clamp has no gradient at NaN, where x is neither above the range nor below it; a kernel may."""

    def gradients(wrong: float) -> list[str]:
        def backward(x: Tensor, dy: Tensor) -> Tensor:
            held = torch.where(x.isnan(), at_nan, 2 * x * dy)
            return torch.where(x.abs() > 1, 0.0, held) + wrong * torch.eye(2, 3)

        mine = Implementation(name="mine", operator=clamped_twice, backward=backward)
        case = default_case(operator="clamped_twice", dtype="float32", T=2, D=3)
        case = with_tensor(case, "x", literals=(((0, 1), math.nan), ((1, 1), 0.5)))
        inputs = materialise(case)
        wanted = reference(inputs)
        seen = observe(mine, inputs, wanted.saved)
        return [one.subject for one in judge(seen, tolerances(inputs, wanted)) if one.status is Status.FAIL]

    assert gradients(0.0) == []
    assert gradients(1.0) == ["dx"]


@operator(a="[D] storage", b="[D] storage", D=(1, 9))
def positive_difference(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() - b.float()).relu().to(a.dtype)


@pytest.mark.parametrize("given", [math.inf, math.nan])
def test_what_an_order_of_nan_decides_is_open(given: float) -> None:
    """inf - inf is neither above 0 nor below it, and the gradient of relu is that of either side."""

    def backward(masks: bool, wrong: float, a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        x = a - b
        da = (torch.where(x > 0, dy, 0.0) if masks else torch.where(x <= 0, 0.0, dy)) + wrong
        return da, -da

    SIZES["positive_difference"] = {"D": 4}
    infinite: dict[str, dict[str, Any]] = {
        "a": {"literals": (((1,), math.inf), ((2,), 3.0))},
        "b": {"literals": (((1,), math.inf), ((3,), given))},
    }
    for masks, wrong, fails in ((True, 0.0, []), (False, 0.0, []), (True, 1.0, ["da", "db"])):
        mine = Implementation(name="mine", operator=positive_difference, backward=partial(backward, masks, wrong))
        assert failing(positive_difference, mine, **infinite) == fails


@operator(a="[D] storage", b="[D] storage", D=(1, 9))
def above_zero(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a.float() - b.float() > 0, 2.0, 1.0)


def test_what_an_order_of_nan_decides_is_promised_where_the_nan_is_given() -> None:
    SIZES["above_zero"] = {"D": 4}
    turned = Implementation(name="mine", operator=above_zero, function=lambda a, b: torch.where(a - b <= 0, 1.0, 2.0))
    infinite: dict[str, dict[str, Any]] = {
        "a": {"literals": (((1,), math.inf), ((2,), 3.0))},
        "b": {"literals": (((1,), math.inf),)},
    }
    assert failing(above_zero, turned, **infinite) == []
    assert failing(above_zero, turned, a={"literals": (((1,), math.nan),)}) == ["y"]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.where((a - b > 0) != (a > 0), a, b),
        lambda a, b: torch.where((a - b > 0).any(), a, b),
        lambda a, b: b.masked_scatter(a - b > 0, a),
    ],
)
def test_where_what_is_open_has_no_rule_nan_decides_as_in_the_reference(function: Callable[..., Tensor]) -> None:
    a, b = torch.tensor([1.0, math.inf, 2.0]), torch.tensor([0.0, math.inf, 3.0])
    reader = RepeatedReader(function, [a, b], {}, [torch.ones(3)])
    for _ in ("read", "repeated"):
        (output,) = reader(ErrorNumber).outputs
        torch.testing.assert_close(output.value, function(a.double(), b.double()))


def failing(table: Operator, mine: Implementation, dtype: str = "float32", /, **changes: dict[str, Any]) -> list[str]:
    """What fails on a case of ones, but for the changes."""
    case = default_case(operator=table.name, dtype=dtype, **SIZES[table.name])
    for name in case.tensors:
        case = with_tensor(case, name, kind="constant", **changes.get(name, {}))
    inputs = materialise(case)
    wanted = reference(inputs)
    seen = observe(mine, inputs, wanted.saved)
    return [one.subject for one in judge(seen, tolerances(inputs, wanted)) if one.status is Status.FAIL]


@operator(x="[T, D] storage", bias="[D] storage", tokens="T", T=(1, 9), D=(1, 9))
def clamped_sum(x: Tensor, bias: Tensor) -> Tensor:
    return (0.125 * (x.float() + bias)).clamp(-1.0, 1.0).to(x.dtype)


def test_a_sum_over_tokens_is_open_in_the_column_of_a_nan() -> None:
    """A kernel may multiply by the 0 of an upstream gradient what the reference masks."""
    SIZES["clamped_sum"] = {"T": 2, "D": 3}

    def backward(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        dx = 0.125 * dy + 0 * dy * x
        return dx, dx.sum(0)

    def spread(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        dx, dbias = backward(x, bias, dy)
        return dx, dbias + 0 * dbias.sum()

    nan: dict[str, Any] = {"literals": (((0, 1), math.nan),)}
    for function, wrong in ((backward, []), (spread, ["dbias"])):
        mine = Implementation(name="mine", operator=clamped_sum, backward=function)
        assert failing(clamped_sum, mine, x=nan, dy={"scale": 0.0}) == wrong


@operator(q="[S, D]", k="[S, D]", v="[S, D]", S=(2, 9), D=(1, 9))
def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    output: Tensor = (q.float() @ k.float().mT).masked_fill(hidden, -math.inf).softmax(-1) @ v.float()
    return output.to(q.dtype)


def causal_backward(*arguments: Tensor) -> tuple[Tensor, ...]:
    q, k, v, dy = (one.float() for one in arguments)
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    p = (q @ k.mT).masked_fill(hidden, -math.inf).softmax(-1)
    ds = p * (dy @ v.mT - (dy * (p @ v)).sum(-1, keepdim=True))
    return tuple(one.to(arguments[0].dtype) for one in (ds @ k, ds.mT @ q, p.mT @ dy))


@operator(q="[B, S, D]", k="[B, S, D]", v="[B, S, D]", B=(1, 3), S=(2, 9), D=(1, 9), tokens="B")
def causal_of_batches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return causal(q, k, v)  # type: ignore[no-any-return]


@pytest.mark.parametrize("value", [2.0**127, math.inf])
def test_a_difference_that_overflows_may_be_multiplied_by_0_in_its_own_token(value: float) -> None:
    SIZES["causal_of_batches"] = {"B": 2, "S": 3, "D": 1}
    mine = Implementation(name="mine", operator=causal_of_batches, backward=causal_backward)
    signs = {"literals": (((0, 1, 0), -1.0), ((1, 1, 0), -1.0))}
    given: dict[str, Any] = {"dy": {"literals": (((0, 0, 0), value),)}, "v": signs}
    assert failing(causal_of_batches, mine, **given) == []

    def spread(*arguments: Tensor) -> tuple[Tensor, ...]:
        dq, dk, dv = causal_backward(*arguments)
        return dq, dk + 0 * dk.sum(), dv

    elsewhere = Implementation(name="elsewhere", operator=causal_of_batches, backward=spread)
    assert failing(causal_of_batches, elsewhere, **given) == ["dk"]
    query = {**given, "dy": {"literals": (((0, 1, 0), 2.0), ((1, 2, 0), 2.0))}, "q": {"literals": (((0, 0, 0), value),)}}
    query["k"] = {"literals": (((0, 0, 0), 2.0),)}
    assert failing(causal_of_batches, mine, "bfloat16", **query) == []
    assert failing(causal_of_batches, elsewhere, "bfloat16", **query) == ["dk"]


@pytest.mark.parametrize("name", ["q", "dy"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_causal_attention_may_multiply_by_0_what_is_behind_its_mask(name: str, value: float) -> None:
    """In its gradients: the first query has no part in those of the last key. The forward's rows stay apart."""
    SIZES["causal"] = {"S": 3, "D": 2}
    mine = Implementation(name="mine", operator=causal, forward=causal.function, backward=causal_backward)
    assert failing(causal, mine, **{name: {"literals": (((0, 0), value),)}}) == []
    assert failing(causal, mine) == []
    spread = replace(mine, forward=lambda q, k, v: causal(q, k, v) + 0 * q.sum())
    assert failing(causal, spread, q={"literals": (((2, 0), value),)}) == ["y"]


@operator(x="[T]", w="[T]", s="[T]", T=(1, 9))
def scaled_twice(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return x.float() * w * s


def test_an_outlier_whose_product_with_another_tensor_overflows_promises_nothing() -> None:
    SIZES["scaled_twice"] = {"T": 3}
    mine = Implementation(name="mine", operator=scaled_twice, forward=lambda x, w, s: x * s * w)
    zero: dict[str, Any] = {"literals": (((0,), 0.0),)}
    for outlier, other in ((1e30, 1e10), (1e30, 1e5), (1e10, 1e35)):
        changes = {"x": {"literals": (((0,), outlier),)}, "s": {"literals": (((0,), other),)}}
        assert failing(scaled_twice, mine, w=zero, **changes) == []
    lost = replace(mine, forward=lambda x, w, s: (x * s * w).nan_to_num(nan=7.0) * torch.tensor([1.0, 1.0, 1.5]))
    changes = {"x": {"literals": (((0,), 1e30),)}, "s": {"literals": (((0,), 1e10),)}}
    assert failing(scaled_twice, lost, w=zero, **changes) == ["y"], "elements beside it are judged"
    off = replace(mine, forward=lambda x, w, s: x * w * s * 1.5)
    assert failing(scaled_twice, off, x={"literals": (((0,), 1e30),)}) == ["y"]


def test_a_nan_that_is_swallowed_or_spread_is_found() -> None:
    def swallowed(x: Tensor, mask: Tensor, w: Tensor, *, half: float) -> tuple[Tensor, Tensor]:
        y, _ = softmax_and_largest(x, mask, w, half=half)
        return y, half * x.float().nan_to_num(-math.inf).amax(-1)

    def spread(x: Tensor, mask: Tensor, w: Tensor, *, half: float) -> tuple[Tensor, Tensor]:
        y, largest = softmax_and_largest(x, mask, w, half=half)
        return y + 0.0 * x.float().sum(), largest

    marked = {"x": {"literals": (((0, 1), math.nan),)}}
    assert "y1: class" in classes(swallowed, marked)
    assert "y0: class" in classes(spread, marked), "row 1 has no NaN in the reference"


@operator(x="[T, D] storage", w="[D] float32", kept="[T] bool", T=(1, 9), D=(1, 9), tokens="T")
def kept_rows(x: Tensor, w: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, (x.float() * w).sum(-1), 0.0)


class ByFactors(torch.autograd.Function):
    """It multiplies by 0 what the reference leaves out; with `leaks`, a NaN reaches all rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, kept: Tensor, leaks: bool) -> Tensor:
        ctx.save_for_backward(x, w, kept.float())
        ctx.leaks = leaks
        return (x.float() * w).sum(-1).masked_fill(~kept, 0.0)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w, factor = ctx.saved_tensors
        rows = (dy * factor).unsqueeze(-1)
        dx = rows * w + (0.0 * dy.sum() if ctx.leaks else 0.0)
        return dx.to(x.dtype), (rows * x.float()).sum(0), None, None


def by_factors(leaks: bool, x: Tensor, w: Tensor, kept: Tensor) -> Tensor:
    y: Tensor = ByFactors.apply(x, w, kept, leaks)  # type: ignore[no-untyped-call]
    return y


@pytest.mark.parametrize(("leaks", "wanted"), [(False, []), (True, ["dx: class"])])
def test_a_gradient_of_an_ignored_token_may_be_multiplied_by_its_0(leaks: bool, wanted: list[str]) -> None:
    mine = Implementation(name="mine", operator=kept_rows, function=partial(by_factors, leaks))
    case = with_tensor(default_case(operator="kept_rows", dtype="float32", T=3, D=2), "dy", literals=(((1,), math.nan),))
    case = with_tensor(case, "kept", kind="constant", literals=(((1,), 0.0),))
    inputs = materialise(case)
    seen = observe(mine, inputs, reference(inputs).saved)
    allowed = tolerances(inputs, reference(inputs))
    assert [f"{one.subject}: {one.symptom}" for one in judge(seen, allowed) if one.status is Status.FAIL] == wanted
    assert allowed.gradients["dx"].error.isinf().tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert allowed.gradients["dw"].error.isinf().all()


@operator(x="[T] float32", T=(1, 9))
def small_loss(x: Tensor) -> Tensor:
    return 0.75 * torch.nn.functional.softplus(x) * torch.sigmoid(x) ** 1.5 / 26


@pytest.mark.parametrize(("factor", "fails"), [(1.0, []), (4.0, ["dx: value"])])
def test_a_derivative_may_underflow_before_the_upstream_gradient_is_multiplied(factor: float, fails: list[str]) -> None:
    """As in a loss that computes its gradient in the forward: of subnormal numbers half of one is lost, times dy."""

    def backward(x: Tensor, dy: Tensor) -> Tensor:
        wide = x.double().requires_grad_()
        (derivative,) = torch.autograd.grad(small_loss.forward(wide)[0].sum(), wide)
        return factor * derivative.float() * dy

    mine = Implementation(name="mine", operator=small_loss, forward=lambda x: small_loss.forward(x)[0], backward=backward)
    case = with_tensor(default_case(operator="small_loss", dtype="float32", T=2), "dy", kind="constant", scale=1024.0)
    inputs = materialise(with_tensor(case, "x", kind="constant", scale=-40.25))
    wanted = reference(inputs)
    verdicts = judge(observe(mine, inputs, wanted.saved), tolerances(inputs, wanted))
    assert [f"{one.subject}: {one.symptom}" for one in verdicts if one.status is Status.FAIL] == fails
