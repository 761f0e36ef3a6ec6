"""Plain PyTorch functions read for their error bounds: PyTorch's results lie inside, and wrong variants do not."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mhc.case import default_case
from mhc.inputs import materialise
from mhc.operator import STORAGE_DTYPES
from mhc.oracles import tolerances as tolerances_
from mhc.oracles.bound import read_formula
from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.deviation_number import DeviationNumber
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import Reading, RepeatedReader, read
from mhc.oracles.bounds.rounding import unit_roundoff
from mhc.oracles.bounds.sampled_number import Divisors, SampledNumber, sampled_deviations
from mhc.oracles.bounds.underflow_number import UnderflowNumber
from mhc.reference import reference, widen
from tests.support.far_device import DEVICE, Watch
from tests.support.references import REFERENCES, causal_attention, normal, rms_norm

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def results(function: Callable[..., Tensor], arguments: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
    """The output of a function as PyTorch computes it, and the gradients of its differentiable arguments."""
    given = [one.clone().requires_grad_(one.dtype.is_floating_point) for one in arguments]
    output = function(*given)
    return [output.detach(), *torch.autograd.grad(output, [one for one in given if one.requires_grad], upstream)]


def numbers(reading: Reading) -> list[ErrorNumber]:
    return [*reading.outputs, *(one for one in reading.gradients if one is not None)]


def ratio(got: Tensor, wanted: ErrorNumber) -> float:
    difference = (got.double() - wanted.value).abs()
    return float(torch.where(difference == 0, 0.0, difference / wanted.error).max())


def upstream_of(function: Callable[..., Tensor], arguments: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    output = function(*arguments)
    return normal(generator, *output.shape, dtype=output.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_pytorch_lies_within_the_bounds_forward_and_backward(name: str, dtype: str) -> None:
    one, generator = REFERENCES[name], torch.Generator().manual_seed(len(name))
    for _ in range(2):
        arguments = one.arguments(generator, DTYPES[dtype])
        upstream = upstream_of(one.function, arguments, generator)
        found = numbers(read(one.function, arguments, {}, [upstream]))
        got = results(one.function, arguments, upstream)
        assert len(got) == len(found)
        for tensor, number in zip(got, found, strict=True):
            assert tensor.dtype == number.dtype
            assert bool(number.error.isfinite().all())
            assert ratio(tensor, number) <= 1
        assert float(found[0].error.median()) < 1e4 * unit_roundoff(found[0].dtype) * float(found[0].value.abs().max())


WRONG: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "eps outside the root": (
        "rms_norm",
        lambda x, w: (x.float() / (x.float().square().mean(-1, keepdim=True).sqrt() + 1e-3)).to(x.dtype) * w,
    ),
    "mean over one too few": (
        "rms_norm",
        lambda x, w: rms_norm(x, w) * ((x.shape[-1] - 1) / x.shape[-1]) ** 0.5,
    ),
    "variance without Bessel's correction": ("variance", lambda x: x.float().var(-1, correction=0).sqrt()),
    "softmax in bfloat16": ("softmax", lambda x: F.softmax(x.bfloat16(), -1).to(x.dtype)),
    "sigmoid twice": ("swiglu", lambda a, b: a * a.sigmoid().sigmoid() * b),
    "erf for tanh": ("geglu", lambda a, b: F.gelu(a) * b),
    "halves not swapped": ("rope", lambda x, c, s: x * c + x * s),
    "no scale": ("attention", lambda q, k, v: causal_attention(q * q.shape[-1] ** 0.5, k, v)),
    "not causal": ("attention", lambda q, k, v: (q.float() @ k.float().mT / 4.0).softmax(-1) @ v.float()),
    "mixing transposed": (
        "mhc_post",
        lambda x, y, p, r: torch.einsum("tio,tic->toc", r, x) + p.unsqueeze(-1) * y.unsqueeze(-2),
    ),
    "bfloat16 products": ("linear", lambda x, w, b: F.linear(x.bfloat16(), w.bfloat16()).float() + b),
    "sum, not mean": ("cross_entropy", lambda x, t: F.cross_entropy(x, t, reduction="sum")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_variant_is_outside_of_the_bounds(wrong: str) -> None:
    name, function = WRONG[wrong]
    one, generator = REFERENCES[name], torch.Generator().manual_seed(7)
    arguments = one.arguments(generator, torch.float32)
    upstream = upstream_of(one.function, arguments, generator)
    found = numbers(read(one.function, arguments, {}, [upstream]))
    got = results(function, arguments, upstream)
    assert max(ratio(tensor, number) for tensor, number in zip(got, found, strict=True)) > 1.5


@pytest.mark.parametrize("number", [ErrorNumber, DeviationNumber, UnderflowNumber])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mhc_pre_read_as_plain_pytorch_has_the_same_bounds(number: type[ErrorNumber], dtype: str) -> None:
    """The formula of mHC pre runs on numbers themselves and on tensors that carry them."""
    inputs = materialise(default_case(B=2, S=3, n=4, D=24, dtype=dtype), torch.device("cpu"))
    table, storage, scalars = inputs.case.table, STORAGE_DTYPES[dtype], inputs.case.scalars
    wide, saved = widen(inputs), reference(inputs).outputs
    wanted = read_formula(table, wide, storage, scalars, saved=saved, number=number).results
    specs = table.argument_specs
    given: dict[str, Any] = {
        name: None if one is None else Carried(number.exact(one, specs[name].dtype(storage))) for name, one in wide.items()
    }
    outputs = table.forward(*(given[name] for name in table.forward_arguments), **scalars)
    found = dict(zip((spec.name for spec in table.outputs), outputs, strict=True))
    given |= {name: Carried(number.stored(saved[name], found[name].dtype)) for name in table.saved}
    gradients = table.backward(*(given[name] for name in table.backward_arguments), **scalars)
    found |= dict(zip((spec.name for spec in table.gradients), gradients, strict=True))
    for name, one in wanted.items():
        assert torch.equal(found[name].number.value, one.value), name
        assert torch.equal(found[name].number.error, one.error), name


def test_rounding_may_decide_a_comparison() -> None:
    """0.1 + 0.2 - 0.3 is 0 or not by rounding alone, so that either branch may be taken."""
    x = torch.tensor([0.2, 0.5], dtype=torch.float32)
    (number,) = read(lambda x: torch.where(x + 0.1 > 0.3, x, -x), [x], {}).outputs
    assert number.error[0] >= 2 * 0.2
    assert number.error[1] == 0


@pytest.mark.parametrize("name", ["attention", "layer_norm", "written in place"])
def test_a_function_is_read_on_the_device_of_its_arguments(name: str) -> None:
    """As of a large case on a GPU. The first makes tensors and names no device for them."""
    one = REFERENCES[name]
    arguments = one.arguments(torch.Generator().manual_seed(1), torch.float32)
    upstream = [torch.ones_like(one.function(*arguments))]
    near = read(one.function, arguments, {}, upstream)
    with Watch():
        far = RepeatedReader(one.function, [each.to(DEVICE) for each in arguments], {}, [upstream[0].to(DEVICE)])
        numbers_, again = numbers(far(ErrorNumber)), numbers(far(ErrorNumber))
        for wanted, *found in zip(numbers(near), numbers_, again, strict=True):
            for each in found:
                assert each.value.device == each.error.device == DEVICE
                assert torch.equal(each.value.cpu(), wanted.value)
                assert torch.equal(each.error.cpu(), wanted.error)


def test_what_a_masked_entry_of_a_softmax_gives_its_row_where_its_gradient_is_infinite_is_open() -> None:
    """A kernel may leave it out, where 0 times infinity would be NaN."""
    x, dy = torch.tensor([[1.0, -math.inf], [1.0, 2.0]]), torch.tensor([[1.0, math.inf], [1.0, 1.0]])
    (gradient,) = read(lambda x: x.softmax(-1), [x], {}, [dy]).gradients
    assert gradient is not None
    assert gradient.error.isinf().tolist() == [[True, True], [False, False]]


def test_a_masked_row_of_a_softmax_is_nan_for_certain() -> None:
    (number,) = read(lambda x: x.softmax(-1), [torch.full((2, 3), float("-inf"))], {}).outputs
    assert bool(number.value.isnan().all())
    assert bool((number.error == 0).all())


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.logsumexp])
def test_a_row_in_which_one_argument_may_overflow_is_in_doubt(function: Callable[..., Tensor]) -> None:
    """Where float32 has infinity - infinity, float64 has shares of 1 and 0."""
    (number,) = read(lambda x: function(x * 4.0, -1), [torch.tensor([[3e38, 1.0], [2.0, 1.0]])], {}).outputs
    assert bool(number.error[0].isinf().all())
    assert bool(number.error[1].isfinite().all())


def test_an_intermediate_that_may_overflow_in_its_narrow_dtype_is_in_doubt() -> None:
    """300 * 300 is infinite in float16, and 90,000 / 300 in float64 is not."""
    x = torch.tensor([300.0, 3.0], dtype=torch.float16)
    (number,) = read(lambda x: (x * x) / x, [x], {}).outputs
    assert number.error.isinf().tolist() == [True, False]
    (number,) = read(lambda x: x.float() * 2, [torch.tensor([60000.0], dtype=torch.float16)], {}).outputs
    assert bool(number.error.isfinite().all())


@pytest.mark.parametrize("function", [torch.sin, torch.cos, torch.tanh, torch.erf, torch.sign])
def test_a_bounded_function_of_what_may_be_nan_is_in_doubt(function: Callable[..., Tensor]) -> None:
    """300 * 300 - 300 * 300 is NaN in float16, and so is each function of it."""
    (number,) = read(lambda x: function((x * x - x * x).float()), [torch.tensor([300.0], dtype=torch.float16)], {}).outputs
    assert bool(number.error.isinf().all())


def flushing_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b of bfloat16 factors by a unit that takes subnormal factors and partial sums as 0."""
    least = torch.finfo(torch.float32).smallest_normal
    a, b = (torch.where(one.abs() < least, 0.0, one.float()) for one in (a, b))
    total = torch.zeros(a.shape[0], b.shape[1])
    for at in range(a.shape[1]):
        total = total + a[:, at : at + 1] * b[at]
        total = torch.where(total.abs() < least, 0.0, total)
    return total.bfloat16()


@pytest.mark.parametrize("spread", [(-127, 100), (-70, -60), (-90, -40), (-133, -10), (-3, 3)])
def test_a_unit_for_bfloat16_may_take_subnormals_as_zero(spread: tuple[int, int]) -> None:
    generator, outside = torch.Generator().manual_seed(3), False
    for length in (1, 3, 33):
        exponents = (spread[0], spread[0] + 8), (spread[1], spread[1] + 8)
        a, b = (
            normal(generator, *shape) * 2.0 ** torch.randint(*between, shape, generator=generator)
            for shape, between in zip(((5, length), (length, 4)), exponents, strict=True)
        )
        a, b = a.bfloat16(), b.bfloat16()
        b[:, 0] = 0
        found = read(torch.matmul, [a, b], {}).outputs[0]
        for product in (flushing_product(a, b), a @ b, (a.float() @ b.float()).bfloat16()):
            assert ratio(product, found) <= 1
        assert bool((found.error[:, 0] == 0).all()), "a sum of zeros is exact"
        kept = read(lambda a, b: (a.float() @ b.float()).bfloat16(), [a, b], {}).outputs[0]
        outside |= ratio(flushing_product(a, b), kept) > 1
        assert (spread != (-3, 3)) or torch.equal(kept.error, found.error)
    assert outside == (spread != (-3, 3)), "the rule is needed below the normal range, and there alone"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_step_of_a_logsumexp_in_a_narrow_dtype_may_be_rounded(dtype: torch.dtype) -> None:
    """PyTorch rounds each on the CPU: one rounding of the result was exceeded twofold."""
    x = normal(torch.Generator().manual_seed(2), 1000, 7, dtype=dtype, scale=3.0)
    (number,) = read(lambda x: x.logsumexp(-1), [x], {}).outputs
    assert 0.3 < ratio(x.logsumexp(-1), number) <= 1
    (number,) = read(lambda x: x.float().logsumexp(-1), [x], {}).outputs
    assert ratio(x.logsumexp(-1), number) > 1000


def test_a_term_with_a_factor_of_zero_may_be_left_out_of_a_product() -> None:
    a = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]])
    for other in (math.nan, math.inf):
        b = torch.tensor([[other], [2.0]])
        for product in (torch.matmul, lambda a, b: (b.mT @ a.mT).mT, lambda a, b: torch.addmm(torch.zeros(3, 1), a, b)):
            error = read(product, [a, b], {}).outputs[0].error[:, 0]
            assert error.isinf().tolist() == [True, False, True]
            assert float(error[1]) == 0, "no term of it is 0: its class is certain"


def test_a_token_without_a_loss_may_be_left_out() -> None:
    x = torch.tensor([[math.inf, 1.0], [math.inf, 1.0], [1.0, 2.0]])
    target, dy = torch.tensor([-100, 0, -100]), torch.ones(3)
    reading = read(lambda x, t: F.cross_entropy(x, t, reduction="none"), [x, target], {}, [dy], constant=[1])
    dx = reading.gradients[0]
    assert dx is not None
    assert dx.error.isinf().tolist() == [[True, True], [False, False], [False, False]]
    assert dx.value[1].isnan().all()
    assert (dx.error[1] == 0).all(), "a token with a loss has NaN for certain"
    assert (dx.value[2] == 0).all()


def test_the_gradient_of_a_loss_may_be_formed_from_the_difference() -> None:
    x, dy = torch.tensor([[0.0, -30.0]]), torch.tensor([0.7])
    reading = read(lambda x, t: F.cross_entropy(x, t, reduction="none"), [x, torch.tensor([1])], {}, [dy], constant=[1])
    dx = reading.gradients[0]
    assert dx is not None
    p = x.softmax(-1)
    formed = (p - torch.tensor([0.0, 1.0])) * dy[:, None]
    assert ratio(formed, dx) <= 1
    assert float(dx.error[0, 1]) >= 3 * 2.0**-24 * 0.7, "three roundings: of the difference, the product, and the result"
    assert float(dx.error[0, 1]) <= 4 * 2.0**-24 * 0.7


@pytest.mark.parametrize(
    ("function", "promised"),
    [
        (lambda x: x.sum(-1) * 2.0, True),
        (lambda x: x.sum(-1) * x.square().sum(-1), True),
        (lambda x: x.sum(-1) * x.square().sum(-1).rsqrt(), False),
        (lambda x: x.mean(-1) * x.square().sum(-1).rsqrt(), False),
        (lambda x: x.sum(-1) / (x.square().sum(-1) + 1).rsqrt(), False),
        (lambda x: (x @ (x * x).mT) @ (x[:, :1] + 1e-3), False),
        (lambda x: (x @ (x * x).mT) @ x[:, :1], True),
        (lambda x: (x[..., 0] - x[..., 0]) * x.square().sum(-1).rsqrt(), False),
    ],
)
def test_a_sum_that_cancels_is_no_exact_zero_times_what_is_rounded(function: Callable[..., Tensor], promised: bool) -> None:
    found = read(function, [torch.tensor([[3.0, -3.0]])], {}, with_quantum=True).outputs[0]
    assert bool((found.value == 0).all())
    assert bool((found.error == 0).all()) == promised


def test_what_no_rule_reads_is_named_with_its_line() -> None:
    def multiplies(x: Tensor) -> Tensor:
        return x.lgamma()

    line = multiplies.__code__.co_firstlineno + 1
    with pytest.raises(UnreadableReference, match=rf"aten\.lgamma\.default in .*test_reading\.py:{line}: no rule derives"):
        read(multiplies, [torch.ones(3)], {})


def test_numbers_of_the_precision_gate_have_no_rules_for_functions_yet() -> None:
    with pytest.raises(UnreadableReference, match="monotone of a DeviationNumber"):
        read(torch.exp, [torch.ones(3)], {}, number=DeviationNumber)


def test_what_overflows_in_float32_on_its_way_from_float64_has_no_bound() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return (x.float() * w.float()).double()

    x = torch.tensor([1e30, 1e38, 3.4e38], dtype=torch.float64)
    found = read(function, [x, torch.zeros(3, dtype=torch.float64)], {}).outputs[0]
    assert found.error.isinf().tolist() == [False, True, True], "0 times it is NaN where it is infinite"


def test_a_function_sees_the_layout_and_the_dtype_of_an_ordinary_tensor() -> None:
    def seen_by(x: Tensor) -> list[Any]:
        views = (x, x.mT, x.mT.contiguous(), x[:, 1:], x[:, ::2], x.unsqueeze(1).expand(3, 2, 4))
        return [(one.shape, one.stride(), one.is_contiguous(), one.dtype, one.device.type) for one in views]

    for dtype in DTYPES.values():
        noted: list[list[Any]] = []

        def function(x: Tensor, noted: list[list[Any]] = noted) -> Tensor:
            noted.append(seen_by(x))
            return x * 1.0

        x = torch.arange(12.0, dtype=dtype).reshape(3, 4)
        read(function, [x], {})
        assert noted == [seen_by(x)]
    far = ErrorNumber(torch.empty(2, 3, dtype=torch.float64, device="meta"), torch.empty(2, 3, device="meta"), torch.float16)
    for needed in (True, False):
        one = Carried(far, needed)
        assert (one.device.type, one.dtype, one.requires_grad, one.shared) == ("meta", torch.float16, needed, False)


def test_an_output_of_integers_has_no_error_on_its_own_device() -> None:
    for device in ("cpu", "meta"):
        number = tolerances_._plain(torch.ones(2, 3, dtype=torch.int64, device=device), torch.int64)
        assert (number.error.shape, number.error.dtype) == ((2, 3), torch.float64)
        assert number.error.device.type == number.value.device.type == device
    assert tolerances_._plain(torch.ones(2, dtype=torch.int64), torch.int64).value.dtype == torch.int64
    assert tolerances_._plain(torch.ones(2), torch.float32).value.dtype == torch.float64
    assert not tolerances_._plain(torch.ones(2), torch.float32).error.any()


def test_a_copy_that_is_contiguous_has_its_elements_in_order() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    found = read(lambda x: torch.as_strided(x.mT.contiguous(), (12,), (1,)), [x], {}).outputs[0]
    assert found.value.tolist() == x.mT.flatten().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_promised_of_an_input_beside_the_largest_number(dtype: torch.dtype) -> None:
    """dy / n * 4 is finite, and dy * 4 / n is not."""
    largest = torch.finfo(dtype).max
    x, dy = torch.ones(2, dtype=dtype), torch.tensor([largest * 0.9, largest * 0.05], dtype=dtype)
    (gradient,) = read(lambda x: x / 1000 * 4, [x], {}, [dy]).gradients
    assert gradient is not None
    assert gradient.error.isinf().tolist() == [True, False]
    (output,) = read(lambda x: x / 1000 * 4, [dy], {}).outputs
    assert output.error.isinf().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_and_products_of_integers_are_certain_indices(dtype: torch.dtype) -> None:
    def function(x: Tensor, table: Tensor) -> Tensor:
        left = torch.floor(x)
        return table[(left + 1).long()] + table[(2 * left.clamp(0, 9) - left.abs() + 3).long()] * (left + 1 - x)

    x, table = torch.tensor([0.25, 1.5, 2.75], dtype=dtype), torch.linspace(-1.0, 1.0, 9, dtype=dtype)
    found = read(function, [x, table], {}, [torch.ones(3, dtype=dtype)])
    assert not found.decided
    for got, number in zip(results(function, [x, table], torch.ones(3, dtype=dtype)), numbers(found), strict=True):
        assert bool(number.error.isfinite().all())
        assert ratio(got, number) <= 1
    for run in range(4):
        own = {"__slots__": (), "operations": itertools.count(run), "alike": False, "divisors": Divisors()}
        moved = type("Run", (SampledNumber,), own)
        value = read(lambda x: (torch.floor(x) + 1) * 3, [x], {}, number=moved).outputs[0].value
        assert value.tolist() == [3.0, 6.0, 9.0]


def test_integers_that_the_dtype_does_not_hold_are_rounded() -> None:
    x = torch.tensor([2.0**24 - 1, 2.0**24 + 2, 2.0**20])
    (total,) = read(lambda x: torch.floor(x) + 1, [x], {}).outputs
    assert (total.error > 0).tolist() == [False, True, False]
    (product,) = read(lambda x: torch.floor(x) * 17, [x], {}).outputs
    assert (product.error > 0).tolist() == [True, True, True]
    (half,) = read(lambda x: torch.floor(x) + 0.5, [x], {}).outputs
    assert (half.error > 0).all()


def test_a_sum_of_integers_and_another_number_may_be_taken_in_another_order() -> None:
    """-8 + (1 + y) is rounded at 8 where y is a little more than 7, and (-8 + 1) + y is exact."""
    x, y = torch.tensor([-8.0]), torch.tensor([7.0 + 2.0**-21])
    (found,) = read(lambda x, y: torch.floor(x) + 1 + y, [x, y], {}).outputs
    assert float(((x + (1 + y)).double() - found.value).abs()) > 0
    assert ratio(x + (1 + y), found) <= 1


LEAST = torch.finfo(torch.float32).min
FAR_BELOW: dict[str, Callable[[Tensor], Tensor]] = {
    "exp of a sum": lambda x: torch.exp(-1e38 - x) + x,
    "a running maximum": lambda x: running_maximum(x, -1e38),
    "an added mask": lambda x: torch.softmax(x + torch.where(x > 0, 0.0, LEAST), -1),
    "two added masks": lambda x: torch.softmax(x + torch.where(x > 0, 0.0, LEAST) + torch.where(x > 1, LEAST, 0.0), -1),
    "a mask in logsumexp": lambda x: torch.logsumexp(x + torch.where(x > 0, 0.0, LEAST), -1),
    "a mask in bfloat16": lambda x: torch.softmax(
        x.bfloat16() + torch.where(x > 0, 0.0, torch.finfo(torch.bfloat16).min).to(torch.bfloat16), -1
    ),
    "a mask in float16": lambda x: torch.softmax(x.half() + torch.where(x > 0, 0.0, -65504.0).half(), -1),
    "a mask and its maximum": lambda x: exp_less_maximum(x + torch.where(x > 0, 0.0, LEAST)),
}


def running_maximum(x: Tensor, start: float) -> Tensor:
    most, total = torch.full_like(x[0], start), torch.zeros_like(x[0])
    for row in x:
        new = torch.maximum(most - 0.5, row)
        total, most = total * torch.exp(most - 0.5 - new) + torch.exp(row - new), new
    return total.log() + most


def exp_less_maximum(x: Tensor) -> Tensor:
    return torch.exp(x - x.amax(-1, keepdim=True))


@pytest.mark.parametrize("name", FAR_BELOW)
def test_what_is_certainly_far_below_has_an_exponential_of_0(name: str) -> None:
    function, generator = FAR_BELOW[name], torch.Generator().manual_seed(1)
    x = normal(generator, 4, 6, dtype=torch.float32)
    x[:, 0] = 0.5
    upstream = upstream_of(function, [x], generator)
    found = read(function, [x], {}, [upstream])
    assert not found.decided
    for got, number in zip(results(function, [x], upstream), numbers(found), strict=True):
        assert bool(number.error.isfinite().all())
        assert ratio(got, number) <= 1


def test_what_is_far_below_has_no_bound_where_another_order_or_a_difference_may_be_nan() -> None:
    x, far = torch.tensor([0.5, 1.0]), torch.tensor([1e38, 3e38])
    open_: list[tuple[Callable[..., Tensor], Tensor]] = [
        (lambda x: x + LEAST, x),
        (lambda x: torch.exp((x - 1e38) - (x.square() - 1e38)), x),
        (lambda x: torch.softmax(x + LEAST, -1), x),
        (lambda x: torch.exp(-(x - 1e38)), x),
        (lambda x: torch.exp((x * 2 - 3e38) * 0.0), x),
        (lambda x: torch.exp(x + x - 3.4e38 - 3.4e38), far),
        (lambda x: torch.exp(LEAST + x - 500), torch.tensor([2e38, math.nan])),
    ]
    for function, given in open_:
        (found,) = read(function, [given], {}).outputs
        assert bool((found.error.isinf() | found.value.isnan()).all())


@pytest.mark.parametrize("signs", [(1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
def test_the_gradient_of_logcumsumexp_has_a_bound(signs: tuple[float, float]) -> None:
    """PyTorch adds up logarithms of the positive and of the negative upstream gradients, with finfo.min for the others."""
    generator = torch.Generator().manual_seed(3)
    x, upstream = (normal(generator, 6, 6, dtype=torch.float32) for _ in range(2))
    upstream = upstream.abs() * torch.tensor(signs).repeat(3)

    def function(x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, -1)

    found = read(function, [x], {}, [upstream])
    assert not found.decided
    for got, number in zip(results(function, [x], upstream), numbers(found), strict=True):
        assert float(number.error.max()) < 1e-4
        assert ratio(got, number) <= 1


def averaged(m: Tensor, g: Tensor, *, beta: float, steps: int) -> tuple[Tensor, Tensor]:
    new = m * beta + g * (1 - beta)
    return new, new / (1 - beta**steps)


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999, 0.9999])
def test_what_is_computed_from_scalars_may_be_computed_in_float32(beta: float) -> None:
    generator = torch.Generator().manual_seed(1)
    g, scalars = normal(generator, 50, dtype=torch.float32), {"beta": beta, "steps": 3}
    found = read(averaged, [torch.zeros(50), g], scalars).outputs
    given = torch.tensor(beta)  # as a kernel has it
    assert given.dtype == torch.float32
    got = g * (1 - given)
    assert 0.01 < ratio(got, found[0]) <= 1
    assert 0.01 < ratio(got / (1 - given**3), found[1]) <= 1
    assert ratio(g * (1 - given) * (1 + 4e-7 / (1 - beta)), found[0]) > 1


def test_a_weighted_mean_of_two_may_be_computed_from_their_difference() -> None:
    generator = torch.Generator().manual_seed(1)
    m, g = normal(generator, 2, 200, dtype=torch.float32)
    m[::5] = 0.0
    new, _ = read(averaged, [m, g], {"beta": 0.99, "steps": 1}).outputs
    beta = torch.tensor(0.99)
    assert ratio(g + beta * (m - g), new) <= 1
    assert ratio(m + (1 - beta) * (g - m), new) <= 1
    assert ratio(g + beta * (m - g) + 5e-7 * (m - g), new) > 1


def test_in_float64_what_is_computed_from_scalars_has_no_error_of_float32() -> None:
    (found,) = read(lambda g, *, beta: g * (1 - beta), [torch.ones(3, dtype=torch.float64)], {"beta": 0.99}).outputs
    assert float(found.error.max()) < 1e-17


def test_an_integer_that_rounding_decides_is_one_of_its_neighbours() -> None:
    x = torch.tensor([0.5 / 1.7, 1.0, 2.5 / 1.7, 1e9])
    whole, moved = read(lambda x: ((x * 1.7).round().to(torch.int8), (x * 3.4).floor().to(torch.uint8) + 1), [x], {}).outputs
    assert whole.error.tolist() == [1.0, 0.0, 1.0, math.inf]
    assert moved.error.tolist() == [1.0, 0.0, 1.0, math.inf]


def test_booleans_that_rounding_decides_may_be_written_where_indices_say() -> None:
    x, order = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([2, 0, 1])

    def kept(x: Tensor, order: Tensor) -> Tensor:
        return torch.zeros(3, dtype=torch.bool).scatter(0, order, x * 1.7 >= 1.7)

    (found,) = read(kept, [x, order], {}).outputs
    assert (found.value.tolist(), found.unsure.tolist()) == ([True, True, False], [True, False, False])
    (found,) = read(lambda x: kept(x, (x * 1.7 > 1.7).int().argsort()), [x], {}).outputs
    assert found.unsure.all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, b, on: x * -(1 - b),
        lambda x, b, on: 0.0 * x - (1 - b),
        lambda x, b, on: x * abs(b - 1),
        lambda x, b, on: x * (on * (1 - b)),
        lambda x, b, on: x * ((1 - b) * on),
        lambda x, b, on: torch.full_like(x, 1 - b),
        lambda x, b, on: x * torch.full((8,), 1 - b),
        lambda x, b, on: torch.where(x > 0, 1 - b, x + 1),
        lambda x, b, on: x / (1 - b),
    ],
)
def test_an_error_follows_a_scalar_into_what_is_made_of_it(function: Callable[..., Tensor]) -> None:
    x = torch.linspace(0.5, 1.5, 8)
    (found,) = read(lambda x, *, b, on: function(x, b, on), [x], {"b": 0.99, "on": True}).outputs
    held = float(1 - (1 - torch.tensor(0.99)))  # of which 1 - held is what a kernel has
    assert 0.1 < ratio(function(x, held, True).float(), found) <= 1.01


def test_a_scalar_without_bounds_and_a_plain_constant_have_no_error_of_scalars() -> None:
    x = torch.ones(3)
    for function, scalars in (
        (lambda x, *, b: x + 0.0 * (1 / b), {"b": math.inf}),
        (lambda x, *, b: x * (b**-1 * 0 + 1.0), {"b": 1e-46}),
        (lambda x, *, b: (1.0 - x) * (b * 10), {"b": 0.1}),
    ):
        (found,) = read(function, [x], scalars).outputs
        assert float(found.error.max()) <= 2**-23


def test_a_weighted_mean_with_an_infinity_is_open() -> None:
    infinite, one, nan = math.inf, 1.0, math.nan
    m, g = torch.tensor([infinite, one, one, nan]), torch.tensor([one, infinite, one, one])
    new, _ = read(averaged, [m, g], {"beta": 0.9, "steps": 1}).outputs
    assert new.error.isinf().tolist() == [True, True, False, False]


def test_the_error_of_a_scalar_is_one_and_the_same_for_all_elements_of_a_sum() -> None:
    """So it adds up, also where deviations are sampled."""
    x, beta = torch.linspace(0.5, 1.5, 4096).reshape(4, 1024), 0.9999
    reader = RepeatedReader(lambda x, *, beta: (x * (1 - beta)).sum(-1), [x], {"beta": beta})
    composed = reader(ErrorNumber)
    deviation, _ = sampled_deviations(reader, composed, truncates=False)
    off = (x.double() * float(1 - torch.tensor(beta))).sum(-1) - composed.outputs[0].value
    assert deviation is not None
    assert bool((off.abs() < 4 * deviation).all())


def test_pytorchs_decompositions_do_not_import_torchdynamo() -> None:
    code = """if True:
        import sys
        import torch
        from torch.nn import functional
        from mhc.oracles.bounds.reading import read

        for function in (functional.gelu, functional.softplus, functional.huber_loss):
            arguments = [torch.rand(4, requires_grad=True) for _ in range(1 + (function is functional.huber_loss))]
            read(function, arguments, {}, [torch.ones_like(function(*arguments))])
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
