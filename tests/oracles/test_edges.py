"""Where the errors of operands reach a pole, the end of a domain, a branch or another integer, nothing else is promised."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import read

F32 = torch.float32
U = 2.0**-24


def of(value: Any, error: Any = 0.0, dtype: torch.dtype = F32) -> Any:
    """Return a tensor that carries a number with an error."""
    value = torch.as_tensor(value, dtype=torch.float64)
    return Carried(ErrorNumber(value, torch.as_tensor(error, dtype=torch.float64).expand(value.shape).clone(), dtype))


def errors(carried: Any) -> Any:
    return carried.number.error.tolist()


def number(carried: Any) -> Any:
    return carried.number


@pytest.mark.parametrize(
    ("function", "inside", "beyond"),
    [
        (torch.tan, 1.4, 1.5),
        (torch.tan, -4.6, -4.7),
        (torch.asin, 0.8, 0.95),
        (torch.acos, -0.8, -0.95),
        (torch.atanh, 0.8, 0.95),
        (torch.acosh, 1.2, 1.05),
        (torch.erfinv, 0.8, 0.95),
    ],
)
def test_what_may_leave_the_domain_has_no_bound(function: Callable[[Tensor], Tensor], inside: float, beyond: float) -> None:
    near, far = errors(function(of([inside, beyond], 0.1)))
    assert (math.isfinite(near), far) == (True, math.inf)
    assert all(map(math.isfinite, errors(function(of([inside, beyond])))))


def test_a_tangent_of_0_moves_as_far_as_its_ends() -> None:
    assert errors(torch.tan(of([0.0, 0.0], [0.0, 1.5]))) == [0.0, pytest.approx(math.tan(1.5), rel=1e-4)]


def test_an_angle_is_as_unsure_as_the_point_is_near() -> None:
    y, x = (
        of([0.0, 3.0, 0.0, 0.0, 0.0], [0.5, 0.3, 0.1, 0.0, 0.3]),
        of([1.0, 4.0, -1.0, -1.0, 0.2], [0.0, 0.4, 0.0, 0.0, 0.0]),
    )
    found = errors(torch.atan2(y, x))
    assert found[0] == pytest.approx(math.asin(0.5), rel=1e-6)
    assert found[1] == pytest.approx(math.asin(0.1), rel=1e-5)
    assert found[2] == pytest.approx(2 * math.pi, rel=1e-5), "the sign of y decides between pi and -pi"
    assert found[3] == pytest.approx(9 * U * math.pi)
    assert found[4] == pytest.approx(math.pi, rel=1e-5), "it may be on the other side of 0"
    assert errors(torch.hypot(of(3.0, 0.3), of(4.0, 0.4))) == pytest.approx(0.5 + 9 * U * 5.5)
    assert errors(torch.hypot(of(1e30), of(1e30))) == pytest.approx(9 * U * 2**0.5 * 1e30), "no overflow between"


def test_a_rest_is_off_by_the_divisor_where_the_quotient_may_be_another() -> None:
    a, b = of([7.5, 7.95, 8.0, 0.5], [0.1, 0.1, 0.0, 0.0]), of([2.0, 2.0, 2.0, 2.0])
    for function in (torch.fmod, torch.remainder):
        sure, unsure, multiple, exact = errors(function(a, b))
        assert sure == pytest.approx(0.1, rel=1e-4)
        assert unsure == pytest.approx(2.1, rel=1e-4)
        assert multiple == pytest.approx(2.0, rel=1e-4), "the quotient may be rounded below 4"
        assert exact <= 2.0**-149
        assert errors(function(of([7.5]), of([2.0], 0.1))) == pytest.approx([0.3], rel=1e-4)
        assert errors(function(of([7.5]), of([0.1], 0.2))) == [math.inf]


def test_a_sign_that_an_error_may_change_is_either() -> None:
    unsure = of([0.05, -0.5, 0.0], [0.1, 0.1, 0.0])
    assert errors(torch.copysign(of([3.0, 3.0, 3.0], 0.25), unsure)) == [6.25, 0.25, 0.25]
    assert number(torch.signbit(unsure)).unsure.tolist() == [True, False, False]
    assert torch.signbit(of([1.0, -1.0])).tolist() == [False, True]


def test_of_two_the_one_that_is_not_nan() -> None:
    a, b = of([math.nan, 1.0, math.nan], [0.0, 0.25, 0.0]), of([2.0, math.nan, math.nan], [0.5, 0.0, 0.0])
    found = torch.fmax(a, b)
    assert number(found).value[:2].tolist() == [2.0, 1.0]
    assert errors(found) == [0.5, 0.25, 0.0]
    assert number(torch.fmin(of([1.0]), of([2.0]))).value.tolist() == [1.0]


def test_places_that_an_error_may_choose_otherwise_are_unsure() -> None:
    a, places = of([1.5, 1.95, 9.0], 0.1), torch.tensor([1.0, 2.0, 3.0])
    for found in (torch.searchsorted(places, a), torch.bucketize(a, places)):
        assert (number(found).value.tolist(), number(found).unsure.tolist()) == ([1, 1, 3], [False, True, False])
    assert torch.searchsorted(of([1.0, 2.0]), torch.tensor([1.5])).tolist() == [1]
    with pytest.raises(UnreadableReference, match="places that have an error"):
        torch.searchsorted(of([1.0, 2.0], 0.1), torch.tensor([1.5]))
    found, index = of([1.0, 3.0, 2.0], [0.0, 0.0, 0.1]).cummax(0)
    assert (found.number.value.tolist(), index.number.unsure.tolist()) == ([1.0, 3.0, 3.0], [False, False, True])


def test_a_product_in_any_order_may_leave_the_range() -> None:
    assert errors(of([1e30, 1e30, 1e-30]).prod()) == math.inf
    assert errors(of([1e10, 1e10, 1e-10]).prod()) < 1e4
    small = errors(of([1e-30, 1e-30, 1e30]).prod())
    assert small == pytest.approx(3 * 2.0**-150 * 1e30, rel=0.2), "1e-60 is rounded to 0, or 1e30 times less is lost"
    assert errors(of([math.inf, 1e-30, 1e-30]).cumprod(0)) == [0, 0, math.inf], "infinity times 1e-60, which is 0"
    assert errors(of([2.0, 3.0], 0.5).prod()) == pytest.approx(2.5 * 3.5 - 6, rel=1e-4)
    assert errors(of([2.0, 3.0, 4.0]).cumprod(0)) == pytest.approx([2 * 2 * U, 6 * 2 * U, 24 * 2 * U], rel=1e-3)


def test_an_infinity_may_multiply_the_terms_of_a_sum_one_by_one() -> None:
    """inf a + inf b is NaN where one is 0, or they have opposite signs; where a sum has one sign, it is infinite."""
    a, b, c = of([2.0, 2.0, 0.0, 2.0]), of([1.0, -1.0, 1.0, -1.0]), of([math.inf, math.inf, -math.inf, 3.0])
    for product in (c * (a + b), (a + b) * c, c * (b + a).reshape(2, 2).reshape(4)):
        assert [math.isinf(one) for one in errors(product)] == [False, True, True, False]


def test_an_infinity_may_multiply_the_terms_of_a_factor_of_a_matrix_product() -> None:
    """q (dy v) and (q dy) v, of which the second is NaN where dy has a 0; and q S where S is a sum that began at 0."""
    q, dy, v = of([[math.inf]]), of([[1.0, 0.0]]), of([[1.0], [1.0]])
    assert errors(q @ (dy @ v)) == [[math.inf]]
    assert errors((dy @ v) @ q) == [[math.inf]]
    assert errors(q @ (of([[0.0]]) + of([[2.0]]))) == [[math.inf]]
    assert errors(q @ (of([[1.0]]) + of([[2.0]]))) == [[0.0]], "inf and inf"
    assert errors(q @ of([[2.0]])) == [[0.0]], "no sum"
    assert all(math.isfinite(one) for one in errors(of([[2.0]]) @ (dy @ v))[0])


def test_of_an_infinite_logit_no_logsumexp_is_promised_and_of_a_masked_row_it_is() -> None:
    """exp(inf - inf) is NaN, which PyTorch avoids; -infinity is how a mask is written."""
    rows = of([[1.0, math.inf], [-math.inf, -math.inf], [1.0, 2.0]])
    found = errors(torch.logsumexp(rows, -1))
    assert found[:2] == [math.inf, 0.0]
    assert math.isfinite(found[2])


def test_the_shares_of_large_logits_may_exceed_one_in_a_kernel_that_computes_them_twice() -> None:
    large = errors(of([1e9, 0.0], 30.0).softmax(-1))
    assert large[0] > 1e10, "exp(a - l), both off by 30"
    assert errors(of([-1e9, -1e9], 30.0).softmax(-1)) == pytest.approx([1.0, 1.0], rel=1e-4), "a row that is masked by -1e9"


def test_what_is_certainly_cut_off_has_no_error_and_no_gradient() -> None:
    """The gradient of relu asks whether its result is above 0: of one that is 0 with an error, both answers were right."""
    x, y = torch.tensor([0.3, 0.5, 0.6]), torch.tensor([1.0, 1.0, 1.01])
    for function in (lambda x, y: torch.relu(x * y - 0.5), lambda x, y: (x * y - 0.5).clamp(min=0.0)):
        found = read(function, [x, y], {}, [torch.ones(3)])
        assert found.outputs[0].error.tolist()[0] == 0.0
        assert found.gradients[0] is not None
        assert [one > 0.5 for one in found.gradients[0].error.tolist()] == [False, True, False]
        assert found.gradients[0].error.tolist()[0] == 0.0


def test_a_python_number_is_one_that_all_hold() -> None:
    assert of([1.0, -3.0]).abs().max().item() == 3.0
    with pytest.raises(UnreadableReference, match="of what rounding changes: keep it a tensor"):
        (of([1.0, -3.0]) * 1.1).max().item()
    with pytest.raises(UnreadableReference, match="that rounding may decide"):
        bool((of([1.0], 0.5) > 1.25)[0])
    assert bool((of([1.0], 0.1) > 1.25)[0]) is False


def test_the_gradient_of_a_product_with_what_may_be_0_is_in_doubt() -> None:
    """Autograd looks for the first 0; which one that is, rounding decides here."""
    found = read(lambda x: x.sigmoid().cumprod(-1), [torch.tensor([[0.5, -200.0, 1.0]])], {}, [torch.ones(1, 3)])
    assert found.gradients[0] is not None
    assert found.gradients[0].error.isinf().any()
    counted = number(torch.cumsum(of([1.0, 2.0, 3.0], [0.0, 1.5, 0.0]) > 1.0, 0))
    assert (counted.value.tolist(), counted.unsure.tolist()) == ([0, 1, 2], [False, True, True])


def test_random_numbers_are_refused() -> None:
    """Each evaluation would draw its own, and no two agree."""
    with pytest.raises(UnreadableReference, match=r"aten\.rand\.default .*take them as an input"):
        read(lambda x: x * torch.rand(3), [torch.ones(3)], {})

    def seeded(x: Tensor) -> Tensor:
        return x * torch.rand(3, generator=torch.Generator().manual_seed(1))

    assert torch.equal(read(seeded, [torch.ones(3)], {}).outputs[0].value, seeded(torch.ones(3)).double())


def test_what_is_kept_as_it_is_has_no_error_in_a_narrow_dtype() -> None:
    exact = Carried(ErrorNumber.exact(torch.tensor([1.5, -3.0], dtype=torch.float64), torch.bfloat16))
    for function in (torch.abs, torch.neg, lambda a: a.float().bfloat16(), lambda a: a.abs().amax()):
        assert not number(function(exact)).error.any()
    inexact = Carried(ErrorNumber.exact(torch.tensor([1.1, -3.0], dtype=torch.float64), F32))
    assert errors(inexact.bfloat16())[0] > 0


def test_a_complex_product_has_the_bound_of_its_parts() -> None:
    a, b, c, d = (of([one], 0.01) for one in (1.5, -0.5, 0.75, 2.0))
    found = torch.view_as_real(torch.complex(a, b) * torch.complex(c, d))
    assert errors(found)[0] == [*errors(a * c - b * d), *errors(a * d + b * c)]
    assert found.dtype == F32
    quotient = torch.view_as_real(torch.complex(a, b) / torch.complex(c, d))
    size = c * c + d * d
    assert errors(quotient)[0] == [*errors((a * c + b * d) / size), *errors((b * c - a * d) / size)]
    with pytest.raises(UnreadableReference, match=r"complex numbers of torch\.bfloat16"):
        of([1.0], 0.0, torch.bfloat16) * 1j
    with pytest.raises(UnreadableReference, match="the angle of a real number"):
        a.angle()
    with pytest.raises(UnreadableReference, match="a part of complex numbers"):
        torch.view_as_real(torch.complex(a, b)).mul_(2.0)


def rotated(x: Tensor) -> Tensor:
    """Rotate pairs as Llama's reference does, with frequencies of its own."""
    frequencies = torch.outer(torch.arange(5), 1.0 / (1e4 ** (torch.arange(0, 8, 2).float() / 8)))
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(frequencies), frequencies)).flatten(-2).type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotary_embedding_of_complex_numbers_is_read(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    leaf, upstream = x.clone().requires_grad_(), torch.ones(3, 5, 8).to(dtype)
    y = rotated(leaf)
    (dx,) = torch.autograd.grad(y, leaf, upstream)
    found = read(rotated, [x], {}, [upstream])
    for one, tensor in ((found.outputs[0], y.detach()), (found.gradients[0], dx)):
        assert one is not None
        assert bool(((one.value - tensor.double()).abs() <= one.error).all())
        assert float(one.error.max()) < (3e-5 if dtype == torch.float32 else 0.05)


X = torch.randn(1000, generator=torch.Generator().manual_seed(2)) * 4
SMALL = X * 2.0 ** torch.randint(-22, 2, (1000,), generator=torch.Generator().manual_seed(3))
NARROW: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "sigmoid": (torch.sigmoid, (X,)),
    "tanh": (torch.tanh, (X,)),
    "silu": (torch.nn.functional.silu, (X,)),
    "gelu": (torch.nn.functional.gelu, (X,)),
    "elu": (torch.nn.functional.elu, (X,)),
    "hardswish": (torch.nn.functional.hardswish, ((X / 2).round() * 2 + 1,)),
    "relu": (torch.relu, (X,)),
    "cubes": (lambda x: x**3, (X,)),
    "fmod": (torch.fmod, (X, X.flip(0).abs() + 0.5)),
    "remainder": (torch.remainder, (X, X.flip(0).abs() + 0.5)),
    "atan2": (torch.atan2, (X, SMALL)),
    "copysign": (torch.copysign, (X, SMALL)),
    "prod": (lambda x: x.reshape(100, 10).prod(-1), (X / 4,)),
    "cumprod": (lambda x: x.reshape(100, 10).cumprod(-1), (X / 4,)),
    "where": (lambda x, y: torch.where(x > y, x * 1.1, y), (X, SMALL)),
    "cat": (lambda x, y: torch.cat((x * 1.1, y)), (X, SMALL)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", NARROW)
def test_pytorch_itself_is_inside_the_bound_in_narrow_dtypes(name: str, dtype: torch.dtype) -> None:
    """With upstream gradients of all sizes, down to where their products are no longer normal."""
    function, given = NARROW[name]
    leaves = [one.to(dtype).requires_grad_() for one in given]
    result = function(*leaves)
    upstream = SMALL.repeat(2)[: result.numel()].reshape(result.shape).to(dtype)
    found = read(function, [one.detach() for one in leaves], {}, [upstream])
    pairs = [(found.outputs[0], result.detach())]
    if name != "prod":  # PyTorch forms its gradient as a quotient by each element, the reading as products of the others
        pairs += zip(found.gradients, torch.autograd.grad(result, leaves, upstream, allow_unused=True), strict=True)
    for one, tensor in pairs:
        if one is None:
            assert tensor is None or not tensor.any()
            continue
        judged = one.error.isfinite() & (tensor.isfinite() | (one.value.abs() < torch.finfo(dtype).max))
        assert bool((((tensor.double() - one.value).abs() <= one.error) | ~judged).all())
        assert bool(judged.double().mean() > 0.7)


@pytest.mark.parametrize("size", [1e-6, 0.5, 2.9, 20.0])
def test_the_other_forms_of_a_gradient_are_inside_its_bound(size: float) -> None:
    """Kernels use what they have: the result of an elu, relu6(x + 3) of a hardswish."""
    x = (torch.linspace(-1, 1, 101) * size).requires_grad_()
    dy = torch.linspace(0.3, 1.7, 101)
    elu, selu = torch.nn.functional.elu, torch.nn.functional.selu
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    with torch.no_grad():
        others: dict[Callable[..., Any], Tensor] = {
            elu: torch.where(x > 0, dy, dy * (elu(x) + 1.0)),
            selu: torch.where(x > 0, dy * scale, dy * (selu(x) + scale * alpha)),
            torch.nn.functional.hardswish: torch.where(
                x <= -3, 0.0, torch.where(x < 3, dy * (((x + 3).clamp(0, 6) + x) / 6), dy)
            ),
        }
    for function, other in others.items():
        found = read(function, [x.detach()], {}, [dy]).gradients[0]
        assert found is not None
        assert bool(((other.double() - found.value).abs() <= found.error).all()), function
        assert float(found.error.max()) < 40 * U * 1.7 * scale * alpha
