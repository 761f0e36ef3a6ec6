"""Readings of functions that order elements, look at windows, or write into tensors of their own."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mhc import Implementation, default_case, operator
from mhc.case import with_tensor
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.reading import read
from mhc.oracles.judge import judge
from mhc.oracles.tolerances import tolerances
from mhc.oracles.verdict import Status
from mhc.reference import InFloat64, reference

Function = Callable[..., Tensor]


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def kept_best(x: Tensor) -> Tensor:
    share, chosen = x.softmax(-1).topk(2, -1)
    weights = torch.arange(1.0, x.shape[-1] + 1)[chosen]
    return share / share.sum(-1, keepdim=True) * weights


def test_equal_elements_keep_their_order_in_a_stable_sort_of_many() -> None:
    """A sort of few elements keeps it also where none is asked for."""
    values, index = read(lambda x: x.sort(stable=True), [torch.tensor([1.0, 0.0] * 500)], {}).outputs
    assert index.tolist() == [*range(1, 1000, 2), *range(0, 1000, 2)]
    assert values.value.tolist() == [0.0] * 500 + [1.0] * 500


def added_in_place(x: Tensor) -> Tensor:
    return torch.zeros(3, x.shape[-1]).index_add_(0, torch.tensor([0, 1, 0, 2, 1]), x)


ADDED_BY_AN_INDEX: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "index_add": lambda zeros, index, x: zeros.index_add(0, index, x),
    "scatter_add": lambda zeros, index, x: zeros.scatter_add(0, index, x),
    "index_put": lambda zeros, index, x: zeros.index_put((index,), x, accumulate=True),
    "put": lambda zeros, index, x: zeros.put(index, x, accumulate=True),
    "scatter_add of rows": lambda zeros, index, x: zeros[None].scatter_add(1, index[None], x[None])[0],
    "embedding": lambda zeros, index, x: torch.ops.aten.embedding_dense_backward(x[:, None], index, 3, -1, False)[:, 0],
}


@pytest.mark.parametrize("name", ADDED_BY_AN_INDEX)
def test_equal_terms_that_an_index_adds_do_not_average_out(name: str) -> None:
    """8 and 158 times 0.00053, one after the other in float32; without the repeats the bound is too narrow."""

    def summed(terms: Tensor, index: Tensor) -> ErrorNumber:
        number: ErrorNumber = read(lambda x: ADDED_BY_AN_INDEX[name](torch.zeros(3), index, x), [terms], {}).outputs[0]
        return number

    terms, into_one = torch.tensor([1.0] * 8 + [0.00053] * 158), torch.zeros(166, dtype=torch.int64)
    number, got = summed(terms, into_one), np.float32(0.0)
    for one in terms.numpy():
        got += one
    assert abs(float(got) - float(number.value[0])) <= float(number.error[0]) < 1e-4
    spread = drawn(166)
    assert float(summed(spread, into_one).error[0]) < 7 * 166**0.5 * 2**-24 * float(spread.abs().sum()), "other terms do"
    assert float(summed(terms, torch.arange(166) % 3).error.max()) < 7 * 56**0.5 * 2**-24 * 3.1, "56 terms each are few"


def by_slopes(x: Tensor) -> Tensor:
    return x * 2.0 ** (-8 * torch.arange(1, 10) / 9)


def by_unpooling(x: Tensor) -> Tensor:
    largest, at = functional.max_pool2d(x * 1.1, 2, return_indices=True)
    return torch.zeros(2, 3, 24).scatter(-1, at.flatten(-2), largest.flatten(-2))


def by_complex_quotient(a: Tensor, b: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(a) / torch.view_as_complex(b))


def by_index(x: Tensor, source: Tensor) -> Tensor:
    with warnings.catch_warnings(action="ignore"):  # it may change, says PyTorch
        return x.index_reduce(0, torch.tensor([0, 2, 0]), source, "mean")


PLACES = torch.linspace(-1.2, 1.1, 2 * 3 * 7 * 2).reshape(2, 3, 7, 2)
ROWS = torch.tensor([3, 0, 3, 1])
FUNCTIONS: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "sort": (lambda x: (x * 1.1).sort(0, descending=True).values, (drawn(5, 9),)),
    "median": (lambda x: (x / 3).median(-1).values, (drawn(5, 9),)),
    "min": (lambda x: (x / 3).min(-1).values, (drawn(5, 9),)),
    "largest by index": (lambda x: x.gather(-1, (x * 1.1).argmax(-1, keepdim=True)), (drawn(5, 9),)),
    "topk": (kept_best, (drawn(5, 9),)),
    "straight through": (lambda x: x + (torch.round(x * 7) / 7 - x).detach(), (drawn(5, 9),)),
    "norm": (lambda x: functional.normalize(x, dim=-1), (drawn(5, 9),)),
    "group norm": (lambda x, w: functional.group_norm(x, 2, w, w), (drawn(3, 4, 5), drawn(4))),
    "batch norm": (lambda x: functional.batch_norm(x, None, None, None, None, True), (drawn(5, 9),)),
    "given statistics": (lambda x: functional.batch_norm(x, torch.arange(9.0), torch.arange(1.0, 10.0)), (drawn(5, 9),)),
    "sum into zeros": (added_in_place, (drawn(5, 9),)),
    "slopes of integers": (by_slopes, (drawn(5, 9),)),
    "average": (lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (drawn(2, 3, 7, 8),)),
    "average in one dimension": (lambda x: functional.avg_pool1d(x, 3, 1, 1), (drawn(2, 3, 8),)),
    "maximum": (lambda x: functional.max_pool2d(x * 1.1, 3, 2, 1), (drawn(2, 3, 7, 8),)),
    "average, ends cut off": (lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (drawn(2, 3, 8, 6),)),
    "average by a divisor": (lambda x: functional.avg_pool3d(x, 2, 1, divisor_override=3), (drawn(1, 2, 4, 3, 5),)),
    "adaptive average": (lambda x: functional.adaptive_avg_pool2d(x, (None, 3)), (drawn(2, 3, 4, 7),)),
    "maximum, ends cut off": (lambda x: functional.max_pool2d(x * 1.1, 2, 2, ceil_mode=True), (drawn(2, 3, 7, 5),)),
    "maximum with gaps": (lambda x: functional.max_pool3d(x, 2, 1, 1, 2), (drawn(1, 2, 4, 3, 5),)),
    "adaptive maximum": (lambda x: functional.adaptive_max_pool1d(x, 4), (drawn(2, 3, 10),)),
    "maximum by index": (by_unpooling, (drawn(2, 3, 6, 4),)),
    "nearest": (lambda x: functional.interpolate(x, scale_factor=2), (drawn(2, 3, 4, 5),)),
    "nearest centre": (lambda x: functional.interpolate(x, (3, 7), mode="nearest-exact"), (drawn(2, 3, 4, 5),)),
    "linear": (lambda x: functional.interpolate(x, scale_factor=1.7, mode="linear"), (drawn(2, 3, 9),)),
    "bilinear": (lambda x: functional.interpolate(x, (3, 11), mode="bilinear"), (drawn(2, 3, 5, 4),)),
    "bilinear corners": (
        lambda x: functional.interpolate(x, (3, 11), mode="bilinear", align_corners=True),
        (drawn(2, 3, 5, 4),),
    ),
    "bicubic": (lambda x: functional.interpolate(x, (3, 11), mode="bicubic"), (drawn(2, 3, 5, 4),)),
    "trilinear": (lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"), (drawn(1, 2, 3, 4, 2),)),
    "area": (lambda x: functional.interpolate(x, (3, 2), mode="area"), (drawn(2, 3, 5, 4),)),
    "sampled": (lambda x, g: functional.grid_sample(x, g, align_corners=False), (drawn(2, 3, 5, 4), PLACES)),
    "sampled, kept inside": (
        lambda x, g: functional.grid_sample(x, g, padding_mode="border", align_corners=True),
        (drawn(2, 3, 5, 4), PLACES),
    ),
    "bags": (lambda w: functional.embedding_bag(ROWS, w, torch.tensor([0, 2, 2])), (drawn(6, 3),)),
    "bags of weighted rows": (
        lambda w, s: functional.embedding_bag(ROWS.reshape(1, 4), w, mode="sum", padding_idx=1, per_sample_weights=s),
        (drawn(6, 3), drawn(1, 4)),
    ),
    "largest of bags": (lambda w: functional.embedding_bag(ROWS.reshape(2, 2), w, mode="max"), (drawn(6, 3),)),
    "counts": (lambda w: torch.bincount(ROWS, w.detach() * 1.1, minlength=7) * w.sum(), (drawn(4),)),
    "distances": (torch.cdist, (drawn(5, 3), drawn(4, 3, seed=3))),
    "distances one by one": (lambda a, b: torch.cdist(a, b, p=1.0), (drawn(5, 3), drawn(4, 3, seed=3))),
    "distances of pairs": (functional.pdist, (drawn(5, 3),)),
    "segments": (lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 3])), (drawn(5, 3),)),
    "reduced by index": (
        by_index,
        (drawn(5, 3), drawn(3, 3, seed=3)),
    ),
    "scaled by powers": (lambda x: torch.ldexp(x.detach() * 1.1, torch.arange(-3, 6)) * x, (drawn(5, 9),)),
    "inverse": (lambda a: torch.linalg.inv(a + 4 * torch.eye(5)), (drawn(5, 5),)),
    "triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        (drawn(2, 5, 5), drawn(2, 5, 3)),
    ),
    "solved": (lambda a, b: torch.linalg.solve(a + 4 * torch.eye(5), b), (drawn(5, 5), drawn(5))),
    "transformed": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=0, norm="ortho")), (drawn(130, 2),)),
    "transformed back": (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=12) * 2, n=9), (drawn(2, 9),)),
    "complex quotient": (by_complex_quotient, (drawn(4, 2), drawn(4, 2, seed=3))),
    "depthwise": (
        lambda x, w: functional.conv1d(x, w, padding=3, groups=5)[..., :7],
        (drawn(2, 5, 7), drawn(5, 1, 4)),
    ),
    "in three dimensions": (lambda x, w: functional.conv3d(x, w, padding=1), (drawn(1, 2, 4, 5, 3), drawn(3, 2, 3, 2, 2))),
}
for step, side, apart, groups in ((1, 1, 1, 1), (2, 1, 2, 2), (3, 2, 1, 1)):
    FUNCTIONS[f"convolution {step}"] = (
        lambda x, w, b, rest=(step, side, apart, groups): functional.conv2d(x, w, b, *rest),
        (drawn(2, 4, 9, 8), drawn(6, 4 // groups, 3, 2), drawn(6)),
    )
    FUNCTIONS[f"transposed {step}"] = (
        lambda x, w, b, rest=(step, side, step - 1, groups, apart): functional.conv_transpose2d(x, w, b, *rest),
        (drawn(2, 4, 5, 6), drawn(4, 6 // groups, 3, 3), drawn(6)),
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reading_has_the_value_of_the_function_and_bounds_its_error(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    leaves = [one.clone().requires_grad_() for one in arguments]
    output = function(*leaves)
    upstream = drawn(*output.shape, seed=2)
    held = [output, *torch.autograd.grad(output, leaves, upstream)]
    wide = [one.double().requires_grad_() for one in arguments]
    with InFloat64():
        exact = function(*wide)
    right = [exact, *torch.autograd.grad(exact, wide, upstream.double())]
    found = read(function, list(arguments), {}, [upstream])
    for got, wanted, number in zip(held, right, (found.outputs[0], *found.gradients), strict=True):
        assert isinstance(number, ErrorNumber)
        torch.testing.assert_close(number.value, wanted, rtol=1e-11, atol=1e-12)
        assert bool(((got.double() - wanted).detach().abs() <= number.error).all())
        assert float(number.error.max()) <= 1e-3 * float(wanted.detach().abs().max())


def test_of_equal_elements_no_index_is_promised_and_the_value_is() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        found = x.topk(1)
        return found.values, found.indices

    found = read(both, [torch.tensor([[1.0, 3.0, 3.0], [1.0, 2.0, 3.0]])], {}, [torch.ones(2, 1), None])
    value, index = found.outputs
    assert value.error.tolist() == [[0.0], [0.0]]
    assert (index.unsure.tolist(), index.dtype) == ([[True], [False]], torch.int64)
    assert found.gradients[0] is not None
    assert found.gradients[0].error.isinf().tolist() == [[True] * 3, [False] * 3]


def carried(value: Any, error: Any = 0.0, dtype: torch.dtype = torch.float32) -> Any:
    value = torch.as_tensor(value, dtype=torch.float64)
    return Carried(ErrorNumber(value, torch.as_tensor(error, dtype=torch.float64).expand(value.shape), dtype))


def unsure(index: Any) -> Any:
    """Return where an index is unsure."""
    found = index.number.unsure if isinstance(index, Carried) else torch.zeros_like(index, dtype=torch.bool)
    return found.int().tolist()


@pytest.mark.parametrize(
    ("row", "errors", "plain", "stable"),
    [
        ([1.0, 2.0, 3.0], [0.25, 0.25, 0.25], [0, 0, 0], [0, 0, 0]),
        ([1.0, 1.5, 3.0], [0.25, 0.125, 0.25], [0, 0, 0], [0, 0, 0]),
        ([1.0, 1.5, 3.0], [0.25, 0.25, 0.25], [1, 1, 0], [1, 1, 0]),  # they may be equal
        ([1.0, 1.5, 3.0], [0.5, 0.0, 0.0], [1, 1, 0], [1, 1, 0]),
        ([1.0, 1.5, 3.0], [0.0, 0.5, 0.0], [1, 1, 0], [1, 1, 0]),
        ([1.0, 1.5, 3.0], [0.0, 0.0, 1.75], [0, 1, 1], [0, 1, 1]),
        ([1.0, 1.0, 3.0], [0.0, 0.0, 0.0], [1, 1, 0], [0, 0, 0]),
        ([1.0, 1.0, 3.0], [0.0, 0.0, 0.5], [1, 1, 0], [0, 0, 0]),
        ([1.0, 1.0, 3.0], [0.0, 0.5, 0.0], [1, 1, 0], [1, 1, 0]),
        ([1.0, 2.0, 3.0, 4.0], [2.5, 0.0, 0.0, 0.0], [1, 1, 1, 0], [1, 1, 1, 0]),
        ([1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 2.5], [0, 1, 1, 1], [0, 1, 1, 1]),
        ([1.0, 2.0, 3.0, 4.0], [0.0, 0.0, math.inf, 0.0], [1, 1, 1, 1], [1, 1, 1, 1]),
        ([1.0, math.inf], [0.0, math.inf], [1, 1], [1, 1]),
        ([1.0, 2.0, math.nan], [math.inf, 0.0, 0.0], [1, 1, 1], [1, 1, 1]),
        ([1.0], [math.inf], [0], [0]),
    ],
)
def test_a_place_in_an_order_is_unsure_where_errors_meet(
    row: list[float], errors: list[float], plain: list[int], stable: list[int]
) -> None:
    for keeps, wanted in ((None, plain), (False, plain), (True, stable)):
        for sign in (1.0, -1.0):
            number = carried([[sign * one] for one in row], [[one] for one in errors])
            values, index = number.sort(dim=0, descending=sign < 0, stable=keeps)
            assert unsure(index) == [[one] for one in wanted]
            assert index.shape == values.shape
    many = carried(row, errors)
    for k in range(1, len(row) + 1):
        assert unsure(many.topk(k, largest=False)[1]) == plain[:k]
        assert unsure((-many).topk(k)[1]) == plain[:k]
        assert unsure(many.kthvalue(k)[1]) == plain[k - 1]
        assert unsure(many.kthvalue(k, keepdim=True)[1]) == plain[k - 1 : k]


def test_the_index_of_a_number_without_dimensions_is_a_sure_0() -> None:
    functions: list[Any] = [torch.sort, lambda x: x.topk(1), lambda x: x.kthvalue(1), lambda x: x.median(0)]
    for function in functions:
        for error in (0.0, 0.5, math.inf):
            value, index = function(carried(3.0, error))
            assert (float(value.number.value), float(value.number.error)) == (3.0, error)
            assert (index.dtype, int(index), index.dim()) == (torch.int64, 0, 0)


@pytest.mark.parametrize(
    ("row", "errors", "wanted"),
    [
        ([1.0, 1.5, 0.0], [0.25, 0.125, 0.0], False),
        ([1.0, 1.5, 0.0], [0.25, 0.25, 0.0], True),
        ([1.0, 1.5, 0.0], [0.0, 0.5, 0.0], True),
        ([1.0, 1.5, 0.0], [0.5, 0.0, 0.0], True),
        ([2.0, 2.0, 0.0], [0.0, 0.0, 0.5], False),  # the first of equal ones
        ([2.0, 2.0, 0.0], [0.0, 0.0, 0.0], False),
        ([2.0, 1.0, 0.0], [0.5, 0.25, 0.25], False),
        ([2.0, 1.0, 0.0], [0.0, 0.0, math.inf], True),
        ([2.0, 1.0, 0.0], [math.inf, 0.0, 0.0], True),
    ],
)
def test_the_place_of_an_extreme_is_unsure_where_another_may_be_it(
    row: list[float], errors: list[float], wanted: bool
) -> None:
    both, sure = carried([row, [9.0, 0.0, 0.0]], [errors, [0.0] * 3]), [int(wanted), 0]
    place = 1 if row[1] > row[0] else 0
    for number, find in ((both, torch.argmax), (-both, torch.argmin)):
        assert unsure(find(number, 1)) == sure
        assert unsure(find(number, -1, keepdim=True)) == [[one] for one in sure]
        index: Any = find(number[0])
        assert (unsure(index), index.dtype, index.shape) == (int(wanted), torch.int64, ())
        plain = index.number.value if isinstance(index, Carried) else index
        assert int(plain) == place
        assert unsure(find(number.mT, 0)) == sure
    assert unsure(carried(1.0, 0.5).argmax()) == unsure(carried(1.0, 0.5).argmax(0)) == 0
    assert unsure(both.max(-1).indices) == unsure((-both).min(-1).indices) == sure


def test_an_order_of_what_was_given_has_no_error_in_another_dtype() -> None:
    """Of 17,000 in float16 nothing would be promised, as a result: its steps may have overflowed."""
    given: Any = Carried(ErrorNumber.exact(torch.tensor([1.0, 17000.0]).double(), torch.float16))
    found: Any
    for found in (given.sort().values, given.median()):
        assert not found.float().number.error.any()
    assert carried([1.0, 17000.0], 0.5, torch.float16).sort().values.float().number.error.tolist() == [0.5, math.inf]


def test_an_index_that_rounding_decides_leaves_what_it_chooses_in_doubt() -> None:
    number = ErrorNumber(torch.tensor([[1.0, 1.5, 0.0]]).double(), torch.tensor([[0.3, 0.3, 0.0]]).double(), torch.float32)
    index = Carried(number).argmax(-1)
    assert isinstance(index, Carried)
    assert isinstance(index.number, Mask)
    table: Any = Carried(ErrorNumber.exact(torch.eye(3).double(), torch.float32))
    for chosen in (table[index], table.index_select(0, index), torch.ops.aten.embedding(table, index)):
        assert chosen.number.error.isinf().all()
    for put in (table.index_add(0, index, table[:1]), table.index_put([index], table[:1], accumulate=True)):
        assert put.number.error.isinf().all()


def test_what_an_index_chooses_is_in_doubt_where_the_index_is() -> None:
    index: Any = carried([[1.0, 1.5, 0.0], [0.0, 1.0, 2.0]], [[0.3, 0.3, 0.0], [0.0] * 3]).argmax(-1)
    assert unsure(index) == [1, 0]
    table = torch.arange(18.0).reshape(2, 3, 3)
    rows, columns = [[[1] * 3, [0] * 3]] * 2, [[[1, 0]] * 3] * 2
    for whole in (table, Carried(ErrorNumber.exact(table.double(), torch.float32))):
        any_: Any = whole
        for chosen, wanted in (
            (any_[:, index], rows),
            (any_[:, :, index], columns),
            (any_.index_select(1, index), rows),
            (any_.index_select(-1, index), columns),
            (any_.index_select(-2, index), rows),
            (any_[0].index_select(0, index[1:]), [[0] * 3]),
            (torch.ops.aten.embedding(any_[0], index), rows[0]),
            (any_[0, index[:, None]], [[one] for one in rows[0]]),
            (any_[0].gather(0, index[:, None]), [[1], [0]]),
        ):
            assert chosen.number.error.isinf().int().tolist() == wanted
        plain = index.number.value
        assert torch.equal(any_[:, index].number.value, table.double()[:, plain])
    whole_numbers: Any = torch.arange(6).reshape(2, 3)
    for found, there in ((whole_numbers[:, index], [[1, 0]] * 2), (whole_numbers.gather(1, index[:, None]), [[1], [0]])):
        assert (found.number.unsure.int().tolist(), found.number.dtype) == (there, torch.int64)
    assert unsure(index.gather(0, torch.tensor([1, 0, 0]))) == [0, 1, 1]
    assert unsure(index.gather(0, carried([1.0, 1.0, 0.0]).topk(2).indices)) == [1, 1]
    zeros: Any = Carried(ErrorNumber.exact(torch.zeros(3, 2).double(), torch.float32))
    given: Any = Carried(ErrorNumber.exact(torch.ones(2, 2).double(), torch.float32))
    for sums in (zeros.index_add(0, index, given), zeros.index_put([index], given, accumulate=True)):
        assert sums.number.error.isinf().all(), "another row may get it"


def test_a_part_of_a_number_may_lie_in_memory_otherwise() -> None:
    """An error or an addend may be expanded where the value is not: places in memory are those of the value."""
    value = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)
    error = torch.tensor([0.5, 0.25], dtype=torch.float64).expand(3, 2)
    carried: Any = Carried(ErrorNumber(value, error, torch.float32))
    found = carried.as_strided([2, 2], [2, 1], 2).number
    assert found.value.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert found.error.tolist() == [[0.5, 0.25], [0.5, 0.25]]


def test_what_follows_from_an_index_in_doubt_is_in_doubt() -> None:
    """Only some cases have such an index: no operation on it may be refused in those."""
    number = ErrorNumber(torch.tensor([1.0, 1.5]).double(), torch.tensor([0.3, 0.3]).double(), torch.float32)
    index: Any = Carried(number).argmax(-1, keepdim=True)
    found: Any
    for found in (torch.stack([index, index]), index + 1, index * 2 < 3, index // 2):
        assert found.number.unsure.all()
        assert found.number.dtype == found.dtype
    for found in (*torch.aminmax(index), *index.sort(), index.amax(), index.flip(0), -index):
        assert found.number.unsure.all()
        assert found.dtype == torch.int64
    for found in (index * torch.ones(3), torch.ones(3)[index], torch.eye(3)[index, index], index.float()):
        assert found.number.error.isinf().all()


@operator(x="[T, D] storage constant", T=(1, 9), D=(1, 9))
def places(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.float() / 3
    return y >= y.mean(-1, keepdim=True), y.argmax(-1)


def test_an_output_that_rounding_decides_is_not_judged() -> None:
    """Where a row is constant, rounding decides both outputs."""
    implementation = Implementation(name="same", operator=places, forward=places.forward)
    case = default_case(operator=implementation.table.name, dtype="float32", T=1, D=3)
    inputs = materialise(with_tensor(case, "x", literals=tuple(((0, at), 1.0) for at in range(3))))
    allowed = tolerances(inputs, reference(inputs)).outputs
    assert [one.error.isinf().all().item() for one in allowed.values()] == [True, True]


@operator(x="[T, D] storage", T=(1, 9), D=(1, 9))
def gated_by_itself(x: Tensor) -> Tensor:
    return functional.silu(x)


def test_of_an_infinite_upstream_gradient_no_class_is_promised_and_finite_elements_are() -> None:
    implementation = Implementation(name="by hand", operator=gated_by_itself, function=lambda x: x * torch.sigmoid(x))
    case = default_case(operator=implementation.table.name, dtype="float32", T=1, D=3)
    case = with_tensor(case, "x", literals=tuple(((0, at), 30.0) for at in range(3)))
    for upstream, promised in ((math.inf, False), (2.0, True)):
        inputs = materialise(with_tensor(case, "dy", literals=(((0, 0), upstream),)))
        wanted = reference(inputs)
        allowed = tolerances(inputs, wanted).gradients["dx"]
        assert allowed.error.isfinite().tolist() == [[promised, True, True]]
        seen = observe(implementation, inputs, wanted.saved)
        assert not [one for one in judge(seen, tolerances(inputs, wanted)) if one.status is Status.FAIL]


def test_an_integer_of_a_number_is_in_doubt_where_its_error_reaches_another_one() -> None:
    def integers(x: Tensor) -> Tensor:
        return (x * 0.1).int()

    found = read(integers, [torch.tensor([25.0, 30.0, -30.0])], {}).outputs[0]
    assert found.value.tolist() == [2, 3, -3]
    assert found.unsure.tolist() == [False, True, True]
    assert read(lambda x: (x * 0.1 > 0).int(), [torch.tensor([25.0, -5.0])], {}).outputs[0].tolist() == [1, 0]


def test_a_choice_of_integers_is_in_doubt_where_it_matters_which_is_chosen() -> None:
    """As in the tokens of speculative decoding that are kept, and -1 for the others."""
    x, draft = torch.tensor([25.0, 30.0, 30.0, 40.0]), torch.tensor([7, 5, -1, 6])
    found = read(lambda x: torch.where(x * 0.1 < 3.0, draft, torch.full_like(draft, -1)), [x], {}).outputs[0]
    assert found.value.tolist() == [7, -1, -1, -1]
    assert found.unsure.tolist() == [False, True, False, False], "30 * 0.1 beside 3, and of one element both are -1"
    found = read(lambda x: draft.masked_fill(x * 0.1 >= 3.0, -1), [x], {}).outputs[0]
    assert (found.value.tolist(), found.unsure.tolist()) == ([7, -1, -1, -1], [False, True, False, False])
    found = read(lambda x: torch.where(draft > 0, (x * 0.1).int(), 9), [x], {}).outputs[0]
    assert (found.value.tolist(), found.unsure.tolist()) == ([2, 3, 9, 4], [False, True, False, True])
    found = read(lambda x: torch.where(x * 0.1 < 3.0, x * 0.1 < 2.0, x * 0.1 > 3.5), [x], {}).outputs[0]
    assert found.value.tolist() == [False, False, False, True]


def test_nothing_is_promised_of_an_entry_of_a_constant_that_an_index_in_doubt_chooses() -> None:
    table = torch.tensor([[3.0, 5.0], [3.0, 5.0]])

    def chosen(x: Tensor) -> Tensor:
        return table.gather(-1, (x * 0.1).max(-1, keepdim=True).indices)

    found = read(chosen, [torch.tensor([[1.0, 2.0], [2.0, 2.0]])], {}).outputs[0]
    assert found.value.tolist() == [[5.0], [3.0]]
    assert found.error.tolist() == [[0.0], [math.inf]]


def test_a_median_is_nan_where_any_element_is() -> None:
    x = torch.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]])
    value = read(lambda x: x.median(-1).values, [x], {}).outputs[0].value
    assert value.isnan().tolist() == [True, False]
    assert value[1] == 2.0


def test_how_many_rows_a_comparison_in_doubt_chooses_is_not_known() -> None:
    x = torch.tensor([1.0, 10.0, 30.0])
    with pytest.raises(UnreadableReference, match="elements that rounding may choose otherwise"):
        read(lambda x: x[(x * 0.1) >= 1.0], [x], {})
    assert read(lambda x: x[(x * 0.1) >= 0.5], [x], {}).outputs[0].value.tolist() == [10.0 * 1.0, 30.0]


def test_the_gradient_of_a_largest_is_open_in_images_with_a_window_in_doubt() -> None:
    images = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]], [[[5.0, 1.0], [1.0, 5.0]]]])
    (gradient,) = read(lambda x: functional.max_pool2d(x * 0.1, 2), [images], {}, [torch.ones(2, 1, 1, 1)]).gradients
    assert gradient is not None
    assert gradient.error.isinf().flatten(1).any(1).tolist() == [False, True]
    assert float(gradient.error[0].max()) < 1e-6


@pytest.mark.parametrize(
    "largest",
    [
        lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True),
        lambda x: functional.max_pool2d(x, (2, 3), 2, 1, (1, 2), ceil_mode=True, return_indices=True),
        lambda x: functional.adaptive_max_pool2d(x, 3, return_indices=True),
    ],
)
def test_the_largest_of_a_window_is_never_its_padding_nor_any_nan_but_the_last(largest: Function) -> None:
    """As PyTorch has it, where all elements of a window are -infinity, or several are NaN."""
    images = torch.full((1, 3, 5, 6), -math.inf)
    images[:, 1:] = torch.tensor([-math.inf, math.nan, 1.0])[torch.arange(60) ** 3 % 7 % 3].reshape(2, 5, 6)
    x = images.clone().requires_grad_()
    values, places = largest(x)
    upstream = torch.arange(1.0, values.numel() + 1).reshape(values.shape)
    values.backward(upstream)
    found = read(largest, [images], {}, [upstream])
    assert torch.equal(found.outputs[0].value.float().nan_to_num(nan=2.0), values.detach().nan_to_num(nan=2.0))
    assert torch.equal(found.outputs[1], places)
    (gradient,) = found.gradients
    assert gradient is not None
    assert x.grad is not None
    assert torch.equal(gradient.value.float(), x.grad)


def test_what_is_computed_of_integers_has_the_error_of_its_function() -> None:
    whole = torch.zeros(3)
    quotient = read(lambda x: x + torch.arange(1, 4) / 3, [whole], {}).outputs[0]
    root = read(lambda x: x + torch.arange(1, 4).sqrt(), [whole], {}).outputs[0]
    u = 2.0**-24
    assert quotient.error.tolist() == pytest.approx([u / 3, 2 * u / 3, u], rel=1e-3), "adding 0 rounds nothing"
    assert root.error[2] == pytest.approx(9 * u * 3**0.5, rel=1e-3)


def test_an_order_beside_a_nan_is_as_unsure_as_without_it() -> None:
    def best(x: Tensor) -> Tensor:
        return torch.sigmoid(x).topk(2).indices

    for row in ([0.0, math.nan, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]):
        (found,) = read(best, [torch.tensor([row])], {}).outputs
        assert isinstance(found, Mask)
        assert found.unsure.tolist() == [[False, True]]
    (found,) = read(best, [torch.tensor([[0.0, math.nan, 1.0, 0.0]])], {}).outputs
    assert found.tolist() == [[1, 2]]


def test_an_infinity_that_is_filled_in_is_certain() -> None:
    hidden = torch.tensor([[True, False], [True, True]])

    def filled(x: Tensor) -> tuple[Tensor, Tensor]:
        scores = (x * 1.1).masked_fill(hidden, -math.inf)
        return scores, scores.logsumexp(-1)

    scores, total = read(filled, [torch.ones(2, 2)], {}).outputs
    assert scores.value.tolist() == [[-math.inf, 1.1], [-math.inf, -math.inf]]
    assert (scores.error > 0).tolist() == [[False, True], [False, False]]
    assert total.value[1].isinf()
    assert (0 < total.error[0] < 1e-5, float(total.error[1])) == (True, 0.0)


def test_a_mask_takes_an_outcome_that_rounding_does_not_decide() -> None:
    def kept(x: Tensor, least: Tensor) -> Tensor:
        mask = torch.tensor([True, True, False])
        mask &= x * 1.1 >= least
        return torch.where(mask, x, 0.0)

    (found,) = read(kept, [torch.ones(3), torch.tensor([2.0, 0.5, 0.5])], {}).outputs
    assert (found.value.tolist(), found.error.tolist()) == ([0.0, 1.0, 0.0], [0.0] * 3)
    with pytest.raises(UnreadableReference, match="a comparison that rounding may decide"):
        read(kept, [torch.ones(3), torch.tensor([2.0, 0.5, 1.1])], {})


def test_the_gradient_of_a_clamp_is_in_doubt_where_one_end_is() -> None:
    """Autograd writes the outcome at the upper end into that at the lower one, which is certain."""
    (gradient,) = read(lambda x: (x * 1.1).clamp(-9.0, 1.1), [torch.tensor([1.0, 2.0])], {}, [torch.ones(2)]).gradients
    assert gradient is not None
    assert (float(gradient.error[0]) >= 1.1, float(gradient.error[1])) == (True, 0.0)


def test_what_is_held_in_8_bits_has_a_bound_up_to_the_largest_element() -> None:
    def scaled(x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 448.0
        return (x / scale).to(torch.float8_e4m3fn).float() * scale

    numbers = torch.tensor([[1.0, 0.9, 0.5, 0.26, 0.24, 0.1]])
    (found,) = read(scaled, [numbers], {}).outputs
    assert bool((found.error <= 0.07 * numbers).all())
    (beyond,) = read(lambda x: x.to(torch.float8_e4m3fn).float(), [torch.tensor([460.0, 470.0])], {}).outputs
    assert beyond.error.isinf().tolist() == [False, True]


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_the_gradient_of_a_sampled_place_at_a_kink_is_pytorchs(padding: str) -> None:
    """Of exact places, from -1 to past the last pixel: at an integer that towards larger ones, at the border none."""
    image = torch.tensor([1.0, 10.0, 100.0, 1000.0, 7.0]).reshape(1, 1, 1, 5)  # 5: (place + 1) / 2 * 4 has no rounding
    places = torch.tensor([-1.0, -0.5, 0.0, 1.0, 2.5, 3.0, 4.0, 5.0]) / 2 - 1
    grid = torch.stack([places, torch.zeros(8)], -1).reshape(1, 1, 8, 2).requires_grad_()

    def sampled(grid: Tensor) -> Tensor:
        return functional.grid_sample(image, grid, padding_mode=padding, align_corners=True)

    upstream = torch.ones(1, 1, 1, 8)
    (wanted,) = torch.autograd.grad(sampled(grid), grid, upstream)
    (found,) = read(sampled, [grid.detach()], {}, [upstream]).gradients
    assert found is not None
    assert found.value.tolist() == wanted.tolist()


def test_a_choice_of_two_numbers_that_rounding_decides_is_in_doubt() -> None:
    x = torch.tensor([600.0, 0.0])
    (found,) = read(lambda x: torch.where(torch.softmax(x, -1) == 0, 1.0, -2.0), [x], {}).outputs
    assert found.value.tolist() == [-2.0, -2.0], "the second is 1e-261, and 0 in float32"
    assert found.error.tolist() == [0.0, 3.0]
