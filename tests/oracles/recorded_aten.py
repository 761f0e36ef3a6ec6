"""Cases of tests/oracles/recorded.py on aten operations: comparisons and indices that rounding may decide, windows,
functions that PyTorch composes, and tensors that a function makes itself.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mhc.oracles.bounds.carried import Carried
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.reading import read
from tests.oracles.recorded import OPERANDS, Cases, operand
from tests.oracles.test_aten_rules import BF16, F16, F32, F64, aten, parts

CLOSE = torch.tensor([[0.5, 0.52, -1.0, 2.0], [1.0, 1.0, 1.0, -3.0], [0.0, 4.0, 4.1, 0.0]], dtype=F64)
OFF = torch.tensor([[0.01, 0.02, 0.0, 0.0], [0.0, 0.0, 0.0, 0.1], [0.0, 0.3, 0.0, 0.0]], dtype=F64)


def held(value: Tensor, error: Tensor | float = 0.0, dtype: torch.dtype = F32) -> Any:
    """Return a tensor that carries a number with an error."""
    return Carried(ErrorNumber(value, torch.as_tensor(error, dtype=F64).expand(value.shape).clone(), dtype))


def mask(*unsure: int, value: Any = (True, False, True, False)) -> Any:
    """Return a tensor of booleans, or of integers, that is unsure in some places."""
    given = torch.tensor(value)
    where = torch.zeros(given.shape, dtype=torch.bool)
    where.view(-1)[list(unsure)] = True
    return Carried(Mask(given, where, given.dtype))


Operations = Mapping[str, Callable[[], Any]]


def _comparisons() -> Operations:
    a, b = held(CLOSE, OFF), held(CLOSE.flip(1), OFF.flip(0))
    exact, endless = held(CLOSE), held(CLOSE, torch.where(OFF > 0.05, torch.inf, OFF))
    found: dict[str, Callable[[], Any]] = {}
    for name in ("eq", "ne", "lt", "gt", "le", "ge"):
        compare = getattr(aten, name)
        for word, pair in {
            **{"both": (a, b), "1": (a, 1.0), "0.51": (a, 0.51), "0.03": (a, 0.03), "exact": (exact, 1.0)},
            **{
                "exact second": (a, exact),
                "with itself": (a, a),
                "infinite": (endless, 0.5),
                "endless itself": (endless,) * 2,
            },
        }.items():
            found[f"{name}, {word}"] = partial(compare, *pair)
    some, other = mask(0, 3), mask(0, 1)
    for name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
        join = getattr(aten, name)
        for word, pair in {"masks": (some, other), "plain": (some, torch.tensor([True] * 4))}.items():
            found[f"{name}, {word}"] = partial(join, *pair)
        found[f"{name}, plain first"] = partial(join, torch.tensor([True, True, False, False]), other)
    for name in ("logical_not", "bitwise_not"):
        found[f"{name}, mask"] = partial(getattr(aten, name), some)
    found["logical_not, number"] = partial(aten.logical_not, exact)
    for name in ("isnan", "isinf", "isfinite"):
        for word, one in {"exact": exact, "infinite": endless, "errors": a}.items():
            found[f"{name}, {word}"] = partial(getattr(aten, name), one)
    rows = mask(1, 4, value=[[True, False], [False, False], [True, True]])
    for name in ("any", "all"):
        found |= {
            f"{name}, whole": partial(getattr(aten, name), rows),
            f"{name}, rows": partial(getattr(aten, name), rows, 1),
            f"{name}, kept": partial(getattr(aten, name), rows, 0, True),
        }
    found |= {
        "sum, rows": partial(aten.sum, rows, [1]),
        "sum, columns": partial(aten.sum, rows, [0], True),
        "sum, whole": partial(aten.sum, rows),
        "sum, sure": partial(aten.sum, mask(value=[[True, False]]), [1]),
        "mul, masks": partial(aten.mul, some, other),
        "mul, mask and number": partial(aten.mul, some, held(CLOSE[0], 0.25)),
        "mul, mask and bool": partial(aten.mul, some, torch.tensor([True, True, False, False])),
        "add, mask and number": partial(aten.add, held(CLOSE[0], OFF[0]), some),
        "cat, masks": lambda: aten.cat([some, other]),
        "cat, plain": lambda: aten.cat([torch.tensor([True]), some]),
        "cat, numbers": lambda: aten.cat([held(CLOSE, OFF), held(CLOSE, 0.0, BF16), CLOSE.float()]),
        "stack, one": lambda: aten.stack([some, torch.tensor([False] * 4)], 1),
        "move, mask": lambda: aten.flip(mask(1), [0]),
        "zeros like, mask": lambda: aten.zeros_like(some),
        "zeros like, float of mask": lambda: aten.zeros_like(some, dtype=F32),
        "new zeros, integers": lambda: a.new_zeros(2, dtype=torch.int32),
    }
    for dtype in (F32, torch.int64, torch.bool, BF16):
        word = str(dtype).removeprefix("torch.")
        found[f"to {word}, mask"] = partial(aten._to_copy, mask(1), dtype=dtype)
        for name, one in {"errors": a, "exact": exact, "infinite": endless, "sure": held(CLOSE + 0.3, 1e-9)}.items():
            found[f"to {word}, {name}"] = partial(aten._to_copy, one, dtype=dtype)
    for word, condition in {"unsure": mask(1, 2), "sure": mask(), "plain": torch.tensor([True, False, True, False])}.items():
        for name, pair in {
            **{"numbers": (a, b), "constant": (a, 0.1), "constant first": (-0.1, b), "mixed": (held(CLOSE, OFF, BF16), b)},
            **{
                "plain tensor": (CLOSE.float(), b),
                "plain tensors": (CLOSE.float(), torch.zeros(4)),
                "infinite": (endless, b),
            },
        }.items():
            found[f"where {word}, {name}"] = partial(_where, condition, *pair)
        found[f"masked fill, {word}"] = partial(aten.masked_fill, a, condition, 0.1)
        found[f"masked fill, {word}, tensor"] = partial(aten.masked_fill, a, condition, torch.tensor(7.0))
    return found


def _where(condition: Any, a: Any, b: Any) -> Any:
    a, b = (torch.tensor(one, dtype=F32) if isinstance(one, float) else one for one in (a, b))
    return aten.where(condition, a, b)


def _indices() -> Operations:
    a, tied = held(CLOSE, OFF), held(torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.05, 1.95]], dtype=F64), 0.03)
    nan = held(torch.tensor([[1.0, torch.nan, 3.0], [2.0, 1.0, 0.0]], dtype=F64), torch.tensor([0.0, 0.0, 0.5]))
    point, endless = held(torch.tensor(2.0, dtype=F64), 0.5), held(CLOSE, torch.where(OFF > 0.05, torch.inf, OFF))
    wide, row = torch.tensor([[0, 2, 1, 1]]), mask(1, value=[2, 0, 1])
    found: dict[str, Callable[[], Any]] = {}
    for word, one in {
        "close": a,
        "tied": tied,
        "nan": nan,
        "point": point,
        "infinite": endless,
        "exact": held(CLOSE),
    }.items():
        for name, call in {
            "sort": aten.sort,
            "sort stable": lambda one: aten.sort(one, stable=True, dim=-1, descending=False),
            "sort down": lambda one: aten.sort(one, 0, True),
            "sort down stable": lambda one: aten.sort(one, stable=True, dim=0, descending=True),
            "topk": lambda one: aten.topk(one, 1),
            "topk 2": lambda one: aten.topk(one, 2, 0, False) if one.dim() else aten.topk(one, 1, 0, False),
            "kthvalue": lambda one: aten.kthvalue(one, 1),
            "kthvalue kept": lambda one: aten.kthvalue(one, 1, 0, True),
            "median": aten.median,
            "median of rows": lambda one: aten.median(one, -1),
            "median kept": lambda one: aten.median(one, 0, True),
            "argmax": aten.argmax,
            "argmax of rows": lambda one: aten.argmax(one, -1),
            "argmin kept": lambda one: aten.argmin(one, 0, True),
            "max": aten.max,
            "max of rows": lambda one: aten.max(one, -1),
            "min kept": lambda one: aten.min(one, 0, True),
        }.items():
            found[f"{name}, {word}"] = partial(call, one)
    single = held(CLOSE[:, :1], OFF[:, :1])
    found |= {"sort, single": partial(aten.sort, single), "sort, none": partial(aten.sort, held(CLOSE[:, :0]))}
    index = mask(1, 4, value=[[0, 2, 1, 0], [1, 1, 0, 2]])
    numbers = torch.arange(12.0).reshape(3, 4)
    for word, one in {
        "number": a,
        "floats": numbers,
        "integers": numbers.long(),
        "mask": mask(3, value=[[True, False, True, True]] * 3),
    }.items():
        found |= {
            f"gather, {word}": partial(aten.gather, one, 0, index),
            f"gather sure, {word}": partial(aten.gather, one, 0, torch.tensor([[0, 2, 1, 1]])),
        }
        if word != "mask":
            found |= {
                f"index, {word}": partial(aten.index, one, [row]),
                f"index second, {word}": partial(aten.index, one, [None, mask(0, value=[3, 1])]),
                f"select, {word}": partial(aten.index_select, one, 1, mask(2, value=[3, 3, 1])),
                f"select last, {word}": partial(aten.index_select, one, -2, mask(0, value=[1, 0])),
                f"embedding, {word}": partial(aten.embedding, one, mask(2, value=[[0, 2], [1, 1]])),
                f"index plain, {word}": partial(aten.index, one, [torch.tensor([2, 0])]),
            }
    found |= {
        "index, two": partial(aten.index, a, [row, torch.tensor([0, 1, 2])]),
        "index, two unsure": partial(aten.index, a, [row, row]),
        "index, booleans": partial(aten.index, a, [mask(1, value=[True, False, True])]),
        "scatter, unsure": partial(aten.scatter, a, 0, mask(2, value=wide.tolist()), held(CLOSE[:1], 0.125)),
        "scatter, rows": partial(aten.scatter, a, 1, mask(2, value=[[0], [1], [3]]), held(CLOSE[:, :1], 0.125)),
        "scatter, few": partial(aten.scatter, a, 1, mask(1, value=[[0], [1]]), held(CLOSE[:2, :1], 0.125)),
        "scatter, sure": partial(aten.scatter, a, -1, torch.tensor([[0], [1], [3]]), held(CLOSE[:, :1], 0.125, BF16)),
        "scatter, constant": partial(aten.scatter, a, 0, wide, 7.5),
        "index add, unsure": partial(aten.index_add, a, 0, mask(1, value=[2, 0]), held(CLOSE[:2], 0.125), alpha=3),
        "index add, sure": partial(aten.index_add, a, 0, torch.tensor([2, 2]), held(CLOSE[:2], 0.125), alpha=3),
        "index add, mask": partial(aten.index_add, a, 0, mask(value=[2, 2]), held(CLOSE[:2], 0.125), alpha=3),
        "index add, plain": partial(aten.index_add, CLOSE.float(), 0, torch.tensor([2, 2]), held(CLOSE[:2], 0.125)),
        "index add, plain source": partial(aten.index_add, a, 0, torch.tensor([2, 2]), CLOSE[:2].float()),
        "scatter add, unsure": partial(aten.scatter_add, a, 0, mask(3, value=wide.tolist()), held(CLOSE[:1], 0.125)),
        "index put, unsure": partial(aten.index_put, a, [mask(1, value=[2, 0])], held(CLOSE[:2], 0.125)),
        "index put, sure mask": partial(aten.index_put, a, [mask(value=[2, 0])], held(CLOSE[:2], 0.125)),
        "index put, with a plain one": partial(
            aten.index_put, a, [mask(1, value=[2, 0]), torch.tensor([1, 1])], held(CLOSE[0, :2], 0.125), True
        ),
        "index put, twice": partial(aten.index_put, a, [torch.tensor([1, 1])], held(CLOSE[:2], 0.125), True),
        "embedding backward, unsure": partial(aten.embedding_dense_backward, a, mask(1, value=[5, 1, 5]), 7, 1, False),
        "embedding backward, skipped": partial(aten.embedding_dense_backward, a, torch.tensor([5, 1, 5]), 7, 1, True),
        "compared at a tie, number": partial(aten.lt, held(torch.tensor([0.5, 1.0, 2.0], dtype=F64), 0.5), 1.0),
        "unknown, unsure": partial(aten.bincount, mask(1, value=[5, 1, 5])),
    }
    return found


def decided() -> Cases:
    """Yield comparisons, and what follows from them, and indices."""
    yield from _comparisons().items()
    yield from _indices().items()


def _recurrence(a: Any, x: Any, w: Any) -> Any:
    """Return the states of a linear recurrence, each multiplied by a matrix and by a vector, and their sum over a row."""
    h, found = x[0], []
    for t in range(1, 5):
        h = a[t] * h + x[t].unsqueeze(0)
        found += [h, h @ w, (h * w[0]).sum(-1)]
    return found


WINDOWS: Mapping[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "conv1d": (torch.conv1d, ((2, 3, 7), (4, 3, 2), (4,))),
    "conv1d options": (lambda x, w: torch.conv1d(x, w, None, 2, 1, 2, 2), ((1, 4, 9), (6, 2, 3))),
    "conv2d": (lambda x, w, b: torch.conv2d(x, w, b, [2, 1], [1, 0], [1, 2]), ((1, 2, 5, 7), (3, 2, 3, 2), (3,))),
    "conv3d": (torch.conv3d, ((1, 1, 3, 3, 3), (2, 1, 2, 2, 1))),
    "transposed": (torch.conv_transpose1d, ((2, 3, 4), (3, 2, 3), (2,))),
    "transposed options": (
        lambda x, w, b: torch.conv_transpose2d(x, w, b, [2, 3], [1, 0], [1, 1], 2, [1, 2]),
        ((1, 4, 3, 2), (4, 1, 3, 2), (2,)),
    ),
    "gradients": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [3], [2, 1], [1, 0], [1, 2], False, [0, 0], 1, [True] * 3),
        ((1, 3, 3, 5), (1, 2, 5, 7), (3, 2, 3, 2)),
    ),
    "gradients in groups": (
        lambda g, x, w: aten.convolution_backward(g, x, w, None, [2], [1], [1], False, [0], 2, [True, True, False]),
        ((2, 4, 3), (2, 4, 6), (4, 2, 3)),
    ),
    "gradients transposed": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [2], [2], [1], [1], True, [1], 2, [True] * 3),
        ((1, 4, 8), (1, 2, 4), (2, 2, 3)),
    ),
    "gradients transposed, spread": (
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [2], [1, 1], [0, 0], [2, 2], True, [1, 1], 1, [True, True, False]
        ),
        ((1, 2, 6, 6), (1, 2, 3, 3), (2, 2, 2, 2)),
    ),
    "gradient of the weight, transposed": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [2], [2], [1], [1], True, [1], 2, [False, True, False]),
        ((1, 4, 8), (1, 2, 4), (2, 2, 3)),
    ),
    "gradient of the input, transposed": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [2], [2], [1], [1], True, [1], 2, [True, False, False]),
        ((1, 4, 8), (1, 2, 4), (2, 2, 3)),
    ),
    "no gradient": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [4], [1], [0], [1], False, [0], 1, [False, False, True]),
        ((1, 4, 3), (1, 2, 5), (4, 2, 3)),
    ),
    "copies": (lambda g: aten.upsample_nearest2d_backward(g, [4, 6], [1, 1, 2, 3]), ((1, 1, 4, 6),)),
    # functions that PyTorch composes
    "batch norm": (
        lambda x, w, b, m: aten._native_batch_norm_legit_no_training(x, w, b, m, m * m + 0.5, 0.1, 1e-3)[0],
        ((2, 3, 2), (3,), (3,), (3,)),
    ),
    "batch norm, plain": (
        lambda x, m: aten._native_batch_norm_legit_no_training(x, None, None, m, m * m + 0.5, 0.1, 1e-3)[0],
        ((2, 3), (3,)),
    ),
    **{
        f"nll backward {reduction} {weighted}": (
            lambda u, a, w, reduction=reduction, weighted=weighted: aten.nll_loss_backward(
                u if reduction else a.sum(1), a, torch.tensor([2, 0, 1]), w if weighted else None, reduction, 1, w.sum()
            ),
            ((), (3, 4), (4,)),
        )
        for reduction in (0, 1, 2)
        for weighted in (False, True)
    },
    "layer norm": (lambda a, w: aten.native_layer_norm(a, [2, 4], w, None, 1e-3), ((3, 2, 4), (2, 4))),
    "layer norm, whole": (lambda a, b: aten.native_layer_norm(a, [3, 4], None, b, 1e-3), ((3, 4), (3, 4))),
    "group norm": (lambda a: aten.native_group_norm(a, None, None, 1, 4, 2, 2, 1e-3), ((1, 4, 2),)),
    "gelu": (torch.nn.functional.gelu, ((3, 4),)),
    "norm": (lambda a: torch.linalg.vector_norm(a, 2, -1), ((3, 4),)),
    "floor division": (lambda a, b: aten.div(a, b, rounding_mode="floor"), ((3, 4), (3, 4))),
    "division to 0": (lambda a: aten.div(a, 0.3, rounding_mode="trunc"), ((3, 4),)),
    "clamp, named": (lambda a, b: aten.clamp(a, max=b), ((3, 4), (3, 4))),
    "clamp, narrow": (lambda a: aten.clamp(a, 0.1, max=0.7), ((3, 4),)),
    "clamp, mixed": (lambda a, b: aten.clamp(a, b, torch.tensor(0.7)), ((3, 4), (3, 4))),
    "pow, numbers": (lambda a, b: aten.pow(a, b * a), ((3, 4), (3, 4))),
    "pow, 0.3": (lambda a: aten.pow(a, torch.tensor(0.3)), ((3, 4),)),
    "pow, -3": (lambda a: aten.pow(a, -3.5), ((3, 4),)),
    "pow of 2": (lambda a: aten.pow(0.3, a), ((3, 4),)),
    "sum, nothing": (lambda a: aten.sum(a, [0]), ((0, 4),)),
    "sum, whole": (lambda a: aten.sum(a, None, True), ((2, 3, 4),)),
    "sum, two": (lambda a: aten.sum(a, [-1, 0]), ((2, 3, 4),)),
    "softmax, nothing": (lambda a: aten._softmax(a, -1, False), ((0, 4),)),
    "product with a vector": (aten.matmul.default, ((2, 3, 4), (4,))),
    "vector product": (aten.matmul.default, ((4,), (2, 4, 3))),
    "mixed product": (lambda a, b: aten.mm(a, b.to(F32)), ((3, 4), (4, 2))),
    "added product": (lambda c, a, b: aten.addmm(c, a, b, beta=1, alpha=1), ((2,), (3, 4), (4, 2))),
    "added half": (lambda c, a, b: aten.addmm(c, a, b, beta=0.5), ((2,), (3, 4), (4, 2))),
    "mixed dtypes": (lambda a, b: a + b.to(BF16) * torch.tensor(0.1), ((3, 4), (3, 4))),
    "narrow sum": (lambda a: a.to(BF16).to(F32) + a.to(F16), ((3, 4),)),
    "expanded strides": (lambda a: aten.as_strided(a.expand(3, 4), [2, 3], [0, 1], 1), ((1, 4),)),
    "strides": (lambda a: aten.as_strided(a.t(), [2, 2], [1, 4]), ((3, 4),)),
    "sum in a loop": (lambda a: a[0] + a[1] - a[2] + (a[3] + a[4]) - a[5], ((6, 4),)),
    "recurrence": (_recurrence, ((5, 2, 3), (5, 3), (3, 3))),
    "no recurrence": (lambda a, b: a * (b - a) + (b * (a + 1) + a), ((3, 4), (3, 4))),
    "tanh backward": (aten.tanh_backward, ((3, 4), (3, 4))),
    "softmax backward": (lambda g, y: aten._softmax_backward_data(g, y, 0, g.dtype), ((3, 4), (3, 4))),
    "softmax backward, point": (lambda g, y: aten._softmax_backward_data(g, y, 0, g.dtype), ((), ())),
    "log softmax backward": (lambda g, y: aten._log_softmax_backward_data(g, y, 0, g.dtype), ((3, 4), (3, 4))),
    "log softmax backward, point": (lambda g, y: aten._log_softmax_backward_data(g, y, 0, g.dtype), ((), ())),
    "softmax backward, row": (lambda g, y: aten._softmax_backward_data(g, y, -1, g.dtype), ((4,), (4,))),
    "log softmax backward, row": (lambda g, y: aten._log_softmax_backward_data(g, y, -1, g.dtype), ((4,), (4,))),
    "log softmax backward, zeros": (
        lambda g, y: aten._log_softmax_backward_data(g * torch.tensor([0.0, 1.0, 0.0])[:, None], y, 1, g.dtype),
        ((3, 4), (3, 4)),
    ),
}


def composed(kind: str) -> Cases:
    """Yield convolutions, pools and composed functions on a kind of operands."""
    for name, (function, shapes) in WINDOWS.items():
        for dtype in (F32, F16 if kind == "large" else BF16):
            given = [operand(kind, shape, 5 * place, dtype) for place, shape in enumerate(shapes)]
            yield f"{name}, {str(dtype).removeprefix('torch.')}", partial(function, *given)


def _written(x: Tensor) -> Tensor:
    result = torch.zeros(3, 4)
    result += x
    result[1:] *= 0.1
    return result


MADE: Mapping[str, Callable[[Tensor], Any]] = {
    "integers": lambda x: x / torch.arange(1, 5),
    "one over integers": lambda x: x * (1 / torch.arange(1, 5)),
    "powers of integers": lambda x: x * torch.pow(0.7, torch.arange(4)),
    "exponentials of integers": lambda x: x + torch.exp(torch.arange(4)),
    "integers to float": lambda x: x * torch.arange(16777217, 16777221).to(F32),
    "half integers": lambda x: x * (torch.arange(4) * 0.5),
    "a constant": lambda x: x + torch.full((4,), 0.1),
    "a constant of bfloat16": lambda x: x.to(BF16) + torch.full((4,), 0.1, dtype=BF16),
    "a scalar": lambda x: x * torch.tensor(0.1),
    "a range": lambda x: x * torch.linspace(0, 1, 4),
    "empty": lambda x: torch.empty(3, 4).copy_(x),
    "written": _written,
    "a mask": lambda x: x * (torch.arange(4) > 1),
    "a triangle": lambda x: x * torch.ones(3, 4).tril(),
    "integers only": lambda x: (torch.arange(4) // 2, x),
    "several": lambda x: (x * 2, x.sum(0), torch.sigmoid(torch.arange(4) / 3)),
}


DERIVED: Mapping[str, Callable[..., Any]] = {
    # of scalars b = 0.99 and e = 0.25
    "b": lambda x, b, e: x * b,
    "1 - b": lambda x, b, e: x * (1 - b) + x * b,
    "1 - e": lambda x, b, e: x * (1 - e),
    "1 - b, halves": lambda x, b, e: x.to(BF16) * (1 - b),
    "b**3 below": lambda x, b, e: x / (1 - b**3),
    "e**b, 2**b": lambda x, b, e: (x * e**b, x + 2**b),
    "quotients": lambda x, b, e: (x * (b / 3), x * (3 / b), x * (e / b), x / (2 * b)),
    "other": lambda x, b, e: (x * -b, x + abs(b - 1), x * (b + 0.1), x * (0.1 * b), x * (b * e)),
}


def made() -> Cases:
    """Yield functions that make tensors of constants and of integers, and those that compute with scalars."""
    value = torch.linspace(-1.3, 2.9, 12).reshape(3, 4)
    for name, function in MADE.items():
        yield name, partial(_outputs, function, value, {})
    for name, function in DERIVED.items():
        yield f"scalars: {name}", partial(_outputs, function, value, {"b": 0.99, "e": 0.25})


def _outputs(function: Callable[..., Any], value: Tensor, scalars: Mapping[str, float]) -> Any:
    return read(function, [value], scalars).outputs


COMPOSED: Mapping[str, Callable[[Tensor], Any]] = {
    # on images [2, 2, 3, 4]
    "average": lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
    "adaptive average": lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "largest": lambda x: functional.max_pool2d(x * 1.1, 2, return_indices=True),
    "bilinear": lambda x: functional.interpolate(x, (5, 3), mode="bilinear"),
    "bicubic": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True),
    "sampled": lambda x: functional.grid_sample(x, x[..., :2], align_corners=False),
    "sampled, kept inside": lambda x: functional.grid_sample(x, x[..., :2], padding_mode="border", align_corners=True),
    "bags": lambda x: functional.embedding_bag(torch.tensor([3, 0, 3]), x.reshape(12, 4), torch.tensor([0, 2])),
    "distances": lambda x: torch.cdist(x[0, 0], x[1, 1]),
    "distances of pairs": lambda x: functional.pdist(x[0, 0], 3.0),
    "segments": lambda x: torch.segment_reduce(x[0, 0], "max", lengths=torch.tensor([1, 2])),
    "triangular": lambda x: torch.linalg.solve_triangular(x[0, :, :, :3], x[1], upper=False, unitriangular=True),
    "solved": lambda x: torch.linalg.solve(x[0, :, :, :3] + 4 * torch.eye(3), x[1]),
    "quantised": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 1, -4, 3),
    "transformed": lambda x: torch.view_as_real(torch.fft.rfft(x.flatten(2), norm="ortho")),
}


def compositions() -> Cases:
    """Yield functions that are read as compositions, of values without errors and with them, and their gradients."""
    value = torch.linspace(-1.3, 2.9, 48).reshape(2, 2, 3, 4)
    for name, function in COMPOSED.items():
        yield name, partial(_read, function, value)
        yield f"{name}, with errors", partial(_read, lambda x, of=function: of(x * 0.3), value)


def _read(function: Callable[..., Any], value: Tensor) -> Any:
    plain = parts(function(value))
    found = read(function, [value], {}, [torch.ones_like(plain[0])])
    return (*found.outputs, *found.gradients)


def strange() -> Cases:
    """Yield operations on zeros, or on numbers near the normal range, beside what is not finite."""
    zeros = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=F64)
    infinite = torch.tensor([[torch.inf, 1.0, 2.0], [torch.nan, 3.0, -torch.inf], [1.0, 1.0, -1.0]], dtype=F64)
    for name, (first, second) in {"zeros first": (zeros, infinite), "zeros second": (infinite, zeros)}.items():
        a, b = held(first), held(second)
        yield f"{name}, product", partial(aten.mm, a, b)
        yield f"{name}, softmax backward", partial(aten._softmax_backward_data, a, b, -1, F32)
        yield f"{name}, softmax backward with errors", partial(aten._softmax_backward_data, held(first, 0.25), b, 0, F32)
        yield f"{name}, log softmax backward", partial(aten._log_softmax_backward_data, a, b, -1, F32)
        yield (
            f"{name}, log softmax backward with errors",
            partial(aten._log_softmax_backward_data, a, held(second, 0.25), 0, F32),
        )
    for exponent in (-50, -52, -63, -64, -127):
        small = zeros * 2.0**exponent
        for error in (0.0, 2.0 ** (exponent - 20)):
            a, b = held(small, error * (small != 0), BF16), held(small.T.contiguous() * 1.5, error * (small.T != 0), BF16)
            yield f"factors of 2^{exponent}, {error}", partial(aten.mm, a, b)
            yield f"factors of 2^{exponent} and 1, {error}", partial(aten.mm, a, held(zeros * 3, 0.0, BF16))


SECTIONS: Mapping[str, Callable[[], Cases]] = {
    **{f"composed, {kind}": partial(composed, kind) for kind in OPERANDS},
    **{"compositions": compositions, "decided": decided, "made": made, "strange": strange},
}
