"""The rules of aten operations: each has an example, and holds against what its operation does to operands with errors.

An example is checked four ways. Its value is that of the operation in float64. Its dtype and shape are those of PyTorch.
Its error covers what operands that are off by their errors can do, and PyTorch's own rounding. And it is no more than that
by much: a bound that is too large finds nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds import elementary
from mhc.oracles.bounds.aten import DECOMPOSED, RULES, arithmetic, choices, moves, sums
from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.deviation_number import DeviationNumber
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.reading import read
from mhc.oracles.bounds.rounding import unit_roundoff
from mhc.oracles.bounds.underflow_number import UnderflowNumber

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
U = 2.0**-24
NORMAL = 2.0**-126
"""The smallest normal number of float32."""
aten: Any = torch.ops.aten


def t(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=F64)


def of(value: Any, error: Any = 0.0, dtype: torch.dtype = F32, kind: type[ErrorNumber] = ErrorNumber) -> Any:
    """Return a tensor that carries a number with an error."""
    value = torch.as_tensor(value, dtype=F64)
    return Carried(kind(value, torch.as_tensor(error, dtype=F64).expand(value.shape).clone(), dtype))


def error_of(carried: Any) -> Tensor:
    found: Tensor = carried.number.error
    return found


def close(got: Tensor, wanted: Any) -> bool:
    return torch.allclose(got, torch.as_tensor(wanted, dtype=F64), rtol=1e-9, atol=0.0)


def drawn(*shape: int, least: float = 0.6, most: float = 1.8, signs: bool = True) -> Callable[[torch.Generator], Tensor]:
    """Return what draws numbers that are exact in bfloat16, away from 0."""

    def draw(generator: torch.Generator) -> Tensor:
        value = torch.rand(shape, generator=generator, dtype=F64) * (most - least) + least
        if signs:
            value = value * (1 - 2 * torch.randint(0, 2, shape, generator=generator))
        return value.to(BF16).double()

    return draw


Draws = Sequence[Callable[[torch.Generator], Tensor]]
A, B, POSITIVE, VECTOR, SCALAR = drawn(3, 4), drawn(3, 4), drawn(3, 4, signs=False), drawn(4), drawn()


def dominant(generator: torch.Generator) -> Tensor:
    """Return matrices that are far from singular."""
    return drawn(2, 3, 3)(generator) + 8 * torch.eye(3, dtype=F64)


SMALL, PAIRS = drawn(3, 4, least=0.1, most=0.8), drawn(3, 2)
INDEX = torch.tensor([[2, 0, 1, 2], [0, 0, 2, 1]])
EVERY_SECOND = torch.tensor([True, False, True, False])
EXAMPLES: Mapping[str, Sequence[tuple[Callable[..., Any], Draws]]] = {
    # by the name of the operation: calls of it, and what draws the operands that carry a number
    "add": [(aten.add, (A, B)), (lambda a, b: aten.add(a, b, alpha=3), (A, VECTOR))],
    "sub": [(aten.sub, (A, B)), (lambda a, b: aten.sub(a, b, alpha=3), (A, SCALAR))],
    "rsub": [(lambda a, b: aten.rsub(a, b, alpha=3), (A, B)), (lambda a: aten.rsub(a, 2.5), (A,))],
    "mul": [(lambda a, b: a * b, (A, B)), (lambda a: a * 1.25, (A,)), (lambda a, b: a * b, (A, SCALAR))],
    "div": [(lambda a, b: a / b, (A, B)), (lambda a: a / 1.25, (A,)), (lambda a: 2.5 / a, (A,))],
    "pow": [
        *[(lambda a, to=to: aten.pow(a, to), (POSITIVE,)) for to in (0.0, 0.5, 1.5, -0.5, -1.0, -2.0, -3.0, 2, 4, 5, 6)],
        *[(lambda a, to=to: aten.pow(a, to), (A,)) for to in (3, 5, 6, -2.0)],
        (aten.pow, (POSITIVE, B)),
        (lambda b: aten.pow(2.5, b), (B,)),
    ],
    **{name: [(getattr(aten, name), (A,))] for name in ("neg", "abs", "reciprocal", "exp", "expm1", "exp2", "tanh", "erf")},
    "atan": [(aten.atan, (A,))],
    **{name: [(getattr(aten, name), (SMALL,))] for name in ("asin", "acos", "atanh", "erfinv")},
    **{name: [(getattr(aten, name), (A,))] for name in ("sinh", "cosh", "asinh", "erfc")},
    "acosh": [(aten.acosh, (drawn(3, 4, least=1.3, signs=False),))],
    "tan": [(aten.tan, (drawn(3, 4, least=0.1, most=1.2),))],
    "atan2": [(aten.atan2, (A, B))],
    "hypot": [(aten.hypot, (A, B))],
    "copysign": [(aten.copysign, (A, B)), (lambda a: aten.copysign(a, -2.0), (A,))],
    "fmax": [(aten.fmax, (A, B))],
    "fmin": [(aten.fmin, (A, B))],
    "fmod": [(aten.fmod, (drawn(3, 4, least=2.2, most=2.8), drawn(3, 4, least=0.95, most=1.05)))],
    "remainder": [
        (aten.remainder, (drawn(3, 4, least=2.2, most=2.8), drawn(3, 4, least=0.95, most=1.05, signs=False))),
        (lambda a: aten.remainder(a, -0.75), (drawn(3, 4, least=0.9, most=1.3),)),
    ],
    "log10": [(aten.log10, (POSITIVE,))],
    **{name: [(getattr(aten, name), (A,))] for name in ("round", "floor", "ceil", "trunc")},
    **{name: [(getattr(aten, name), (A,))] for name in ("sigmoid", "sin", "cos", "relu", "sign", "sgn")},
    **{name: [(getattr(aten, name), (POSITIVE,))] for name in ("rsqrt", "sqrt", "log", "log2", "log1p")},
    "maximum": [(aten.maximum, (A, B))],
    "minimum": [(aten.minimum, (A, B))],
    "clamp": [
        (lambda a: aten.clamp(a, -1.0, 1.25), (A,)),
        (lambda a: aten.clamp(a, max=0.0), (A,)),
        (aten.clamp, (A, B, A)),
    ],
    "clamp_min": [(lambda a: aten.clamp_min(a, 1.0), (A,)), (aten.clamp_min, (A, B))],
    "clamp_max": [(lambda a: aten.clamp_max(a, 1.0), (A,)), (aten.clamp_max, (A, B))],
    "_to_copy": [
        (aten._to_copy, (A,)),
        (lambda a: a.half(), (A,)),
        (lambda a: a.double(), (A,)),
        (lambda a: a.to(F32, copy=True), (A,)),
    ],
    "sum": [
        (lambda a: a.sum(), (A,)),
        (lambda a: a.sum(-2), (A,)),
        (lambda a: a.sum((0, 2), keepdim=True), (drawn(2, 3, 4),)),
        (lambda a: a.sum(0, dtype=F64), (A,)),
        (lambda a: a.sum(), (SCALAR,)),
    ],
    "mean": [(lambda a: a.mean(), (A,)), (lambda a: a.mean(0, keepdim=True), (A,)), (lambda a: a.mean(1, dtype=F64), (A,))],
    "var": [
        (lambda a: a.var(-1), (A,)),
        (lambda a: a.var(), (A,)),
        (lambda a: a.var((0, 2), correction=0, keepdim=True), (drawn(2, 3, 4),)),
        (lambda a: a.var(-1, False), (A,)),
        (lambda a: a.var(False), (A,)),
    ],
    "var_mean": [
        (lambda a: aten.var_mean(a, [0], correction=2, keepdim=True), (drawn(9, 2),)),
        *[(lambda a, rest=rest: aten.var_mean(a, *rest), (A,)) for rest in ((False,), (None, True, True), ([1], False))],
    ],
    "native_layer_norm": [
        (lambda a, w, b: aten.native_layer_norm(a, [4], w, b, 1e-3), (A, VECTOR, VECTOR)),
        (lambda a: aten.native_layer_norm(a, [3, 4], None, None, 0.5), (drawn(2, 3, 4),)),
    ],
    "mm": [(aten.mm, (A, drawn(4, 2)))],
    "bmm": [(aten.bmm, (drawn(2, 3, 4), drawn(2, 4, 5)))],
    "matmul": [
        (aten.matmul.default, shapes)
        for shapes in ((A, VECTOR), (VECTOR, drawn(4, 3)), (VECTOR, VECTOR), (drawn(2, 3, 4), drawn(4, 5)))
    ],
    "mv": [(aten.mv, (A, VECTOR))],
    "addmv": [
        (aten.addmv, (drawn(3), A, VECTOR)),
        (lambda c, a, b: aten.addmv(c, a, b, beta=0, alpha=3), (drawn(3), A, VECTOR)),
    ],
    "dot": [(aten.dot, (VECTOR, VECTOR))],
    "addmm": [
        (aten.addmm, (drawn(2), A, drawn(4, 2))),
        (lambda c, a, b: aten.addmm(c, a, b, beta=3, alpha=5), (drawn(3, 2), A, drawn(4, 2))),
        (lambda c, a, b: aten.addmm(c, a, b, beta=0, alpha=0.5), (drawn(3, 2), A, drawn(4, 2))),
    ],
    "baddbmm": [(lambda c, a, b: aten.baddbmm(c, a, b, beta=2), (drawn(2, 3, 5), drawn(2, 3, 4), drawn(2, 4, 5)))],
    "cumsum": [(lambda a: a.cumsum(0), (A,)), (lambda a: a.cumsum(-1, dtype=F64), (A,)), (lambda a: a.cumsum(0), (SCALAR,))],
    "prod": [(lambda a: a.prod(), (A,)), (lambda a: a.prod(-1, keepdim=True), (A,)), (lambda a: a.prod(0, dtype=F64), (A,))],
    "cumprod": [(lambda a: a.cumprod(0), (A,)), (lambda a: a.cumprod(-1, dtype=F64), (A,))],
    "logcumsumexp": [(lambda a: a.logcumsumexp(0), (A,)), (lambda a: a.logcumsumexp(-1), (A,))],
    "scatter_reduce": [
        (lambda a, b, by=by, own=own: aten.scatter_reduce(a, 0, INDEX, b, by, include_self=own), (A, drawn(2, 4)))
        for by in ("sum", "mean", "amax", "amin")
        for own in (True, False)
    ],
    "put": [
        (lambda a, b: aten.put(a, torch.tensor([7, 0, 3]), b), (A, drawn(3))),
        (lambda a, b: aten.put(a, torch.tensor([7, 7, 3]), b, True), (A, drawn(3))),
    ],
    **{
        f"replication_pad{rank}d_backward": [
            (
                lambda g, a, rank=rank: getattr(aten, f"replication_pad{rank}d_backward")(g, a, [1, 0] * rank),
                (drawn(2, *(3,) * rank), drawn(2, *(2,) * rank)),
            )
        ]
        for rank in (1, 2, 3)
    },
    "index_add": [
        (lambda a, b: aten.index_add(a, 0, torch.tensor([2, 0, 2, 2]), b), (A, drawn(4, 4))),
        (lambda a, b: aten.index_add(a, 1, torch.tensor([3, 1]), b, alpha=3), (A, drawn(3, 2))),
    ],
    "scatter_add": [(lambda a, b: aten.scatter_add(a, 0, INDEX, b), (A, drawn(2, 4)))],
    "index_put": [
        (lambda a, b: aten.index_put(a, [torch.tensor([2, 0])], b), (A, drawn(2, 4))),
        (lambda a, b: aten.index_put(a, [None, torch.tensor([1, 1, 3])], b, True), (A, drawn(3))),
    ],
    "_unsafe_index_put": [(lambda a, b: aten._unsafe_index_put(a, [torch.tensor([2, 2])], b, True), (A, drawn(2, 4)))],
    "embedding_dense_backward": [(lambda a: aten.embedding_dense_backward(a, torch.tensor([5, 1, 5]), 7, 1, False), (A,))],
    "_softmax": [
        (lambda a: aten._softmax(a, 0, False), (SCALAR,)),
        (lambda a: aten._softmax(a, -1, False), (A,)),
        (lambda a: aten._softmax(a, 0, False), (A,)),
    ],
    "_softmax_backward_data": [(lambda a, b: aten._softmax_backward_data(a, b, -1, a.dtype), (A, B))],
    "_log_softmax_backward_data": [(lambda a, b: aten._log_softmax_backward_data(a, b, -1, a.dtype), (A, B))],
    "_log_softmax": [
        (lambda a: aten._log_softmax(a, 0, False), (SCALAR,)),
        (lambda a: aten._log_softmax(a, 1, False), (A,)),
        (lambda a: aten._log_softmax(a, -2, False), (A,)),
    ],
    "logsumexp": [(lambda a: a.logsumexp(-1), (A,)), (lambda a: a.logsumexp((0, 1), keepdim=True), (A,))],
    "where": [
        (lambda a, b: torch.where(EVERY_SECOND, a, b), (A, B)),
        (lambda a: torch.where(EVERY_SECOND, 0.25, a), (A,)),
        (lambda a: torch.where(EVERY_SECOND, a, -3.0), (A,)),
    ],
    "masked_fill": [(lambda a: a.masked_fill(EVERY_SECOND, -3.0), (A,))],
    "elu_backward": [
        (lambda g, a: aten.elu_backward(g, 1.0, 1.0, 1.0, False, a), (A, B)),
        (lambda g, a: aten.elu_backward(g, 1.5, 1.25, 2.0, False, a), (A, B)),
    ],
    "sigmoid_backward": [(aten.sigmoid_backward, (A, drawn(3, 4, least=0.1, most=0.9, signs=False)))],
    "hardswish_backward": [(aten.hardswish_backward, (A, drawn(3, 4, most=4.0)))],
    "softshrink_backward": [(lambda g, a: aten.softshrink_backward(g, a, 1.0), (A, B))],
    "hardshrink_backward": [(lambda g, a: aten.hardshrink_backward(g, a, 1.0), (A, B))],
    "threshold_backward": [(lambda a, b: aten.threshold_backward(a, b, 0.25), (A, B))],
    "amax": [(lambda a: a.amax(-1), (A,)), (lambda a: a.amax((0, 1), keepdim=True), (A,)), (aten.amax, (A,))],
    "amin": [(lambda a: a.amin(0, keepdim=True), (A,)), (lambda a: a.amin(1), (A,)), (aten.amin, (A,))],
    "max": [(lambda a: a.max(), (A,)), (torch.max, (A, B)), (lambda a: a.max(0, True), (A,))],
    "min": [(lambda a: a.min(), (A,)), (torch.min, (A, B)), (lambda a: a.min(0, True), (A,))],
    "sort": [(lambda a: a.sort(), (drawn(3, 4),)), (lambda a: a.sort(stable=True, dim=0, descending=True), (A,))],
    "topk": [(lambda a: a.topk(2), (A,)), (lambda a: a.topk(2, 0, largest=False), (A,))],
    "kthvalue": [(lambda a: a.kthvalue(2), (A,)), (lambda a: a.kthvalue(1, 0, True), (A,))],
    "median": [(lambda a: a.median(-1), (A,)), (lambda a: a.median(0, keepdim=True), (A,)), (aten.median, (A,))],
    "argmax": [(lambda a: a.argmax(), (A,)), (lambda a: a.argmax(0, True), (A,))],
    "cummax": [(lambda a: a.cummax(-1), (A,)), (lambda a: a.cummax(0), (A,))],
    "cummin": [(lambda a: a.cummin(-1), (A,))],
    "argmin": [(lambda a: a.argmin(-1), (A,))],
    "frexp": [(lambda a: torch.frexp(a)[0], (drawn(3, 4, least=0.6, most=0.9),))],
    "linalg_inv_ex": [(lambda a: torch.linalg.inv_ex(a)[0], (dominant,))],
    **{
        f"{kind}{rank}d_backward": [
            (
                lambda g, name=f"{kind}{rank}d_backward", rank=rank: getattr(aten, name)(g, [6] * rank, [1, 2, *[3] * rank]),
                (drawn(1, 2, *[6] * rank),),
            )
        ]
        for kind in ("upsample_nearest", "_upsample_nearest_exact")
        for rank in (1, 2, 3)
    },
    # moves
    "expand": [(lambda a: a.expand(2, 3, 4), (A,))],
    "permute": [(lambda a: aten.permute(a, [1, 0]), (A,))],
    "transpose": [(lambda a: aten.transpose(a, 0, 1), (A,))],
    "t": [(aten.t, (A,))],
    "unsqueeze": [(lambda a: a.unsqueeze(1), (A,))],
    "squeeze": [(lambda a: a.squeeze(), (drawn(1, 3),)), (lambda a: a.squeeze(0), (drawn(1, 3),))],
    "slice": [(lambda a: a[1:, ::2], (A,))],
    "select": [(lambda a: a[1], (A,))],
    "clone": [(lambda a: a.clone(memory_format=torch.contiguous_format), (A,))],
    "detach": [(aten.detach, (A,))],
    "alias": [(aten.alias, (A,))],
    "split": [(lambda a: aten.split(a, 3, 1), (A,))],
    "split_with_sizes": [(lambda a: aten.split_with_sizes(a, [1, 3], 1), (A,))],
    "unbind": [(lambda a: aten.unbind(a, 1), (A,))],
    "chunk": [(lambda a: aten.chunk(a, 2, 1), (A,))],
    "lift_fresh": [(aten.lift_fresh, (A,))],
    "flip": [(lambda a: a.flip(0), (A,))],
    "gather": [(lambda a: a.gather(0, INDEX), (A,))],
    "index_select": [(lambda a: a.index_select(1, INDEX[0]), (A,))],
    "index": [(lambda a: a[INDEX[0]], (A,)), (lambda a: a[:, EVERY_SECOND], (A,))],
    "_unsafe_index": [(lambda a: aten._unsafe_index(a, [INDEX[0]]), (A,))],
    "tril": [(lambda a: a.tril(), (A,))],
    "triu": [(lambda a: a.triu(1), (A,))],
    "roll": [(lambda a: a.roll(1, 0), (A,))],
    "repeat": [(lambda a: a.repeat(2, 1), (A,))],
    "diagonal": [(lambda a: a.diagonal(1), (A,))],
    "diag_embed": [(aten.diag_embed, (A,))],
    "slice_backward": [(lambda a: aten.slice_backward(a, [7, 4], 0, 1, 7, 2), (A,))],
    "select_backward": [(lambda a: aten.select_backward(a, [3, 2, 4], 1, 1), (A,))],
    "unfold": [(lambda a: a.unfold(1, 2, 1), (A,))],
    "embedding": [(lambda a: aten.embedding(a, INDEX), (A,))],
    "as_strided": [(lambda a: aten.as_strided(a, [2, 2], [4, 1], 1), (A,))],
    "constant_pad_nd": [(lambda a: aten.constant_pad_nd(a, [1, 2]), (A,))],
    "view": [(lambda a: a.view(4, 3), (A,))],
    "_unsafe_view": [(lambda a: aten._unsafe_view(a, [12]), (A,))],
    "reshape": [(lambda a: aten.reshape(a, [2, 6]), (A,))],
    "cat": [(lambda a, b: torch.cat([a, b], 1), (A, B))],
    "stack": [(lambda a, b: aten.stack([a, b], 1), (A, B))],
    "scatter": [
        (lambda a, b: aten.scatter(a, 1, INDEX[:, :1], b), (A, drawn(2, 1))),
        (lambda a: aten.scatter(a, 0, INDEX[:1], 0.5), (A,)),
    ],
    "slice_scatter": [(lambda a, b: aten.slice_scatter(a, b, 1, 1, 3), (A, drawn(3, 2)))],
    "select_scatter": [(lambda a, b: aten.select_scatter(a, b, 0, 1), (A, VECTOR))],
    "diagonal_scatter": [(aten.diagonal_scatter, (A, drawn(3)))],
    "masked_select": [(lambda a: a.masked_select(EVERY_SECOND), (A,))],
    "masked_scatter": [(lambda a, b: a.masked_scatter(EVERY_SECOND.expand(3, 4), b), (A, drawn(6)))],
    # complex numbers
    "view_as_complex": [(lambda a: torch.view_as_real(torch.view_as_complex(a) * (0.5 + 0.25j)), (PAIRS,))],
    "view_as_real": [(lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)), (PAIRS, PAIRS))],
    "complex": [
        (lambda a, b, c: torch.view_as_real(torch.complex(a, b) + c), (A, B, A)),
        (lambda a, b, c: torch.view_as_real(c - torch.complex(a, b)), (A, B, A)),
        (lambda a, b, c: torch.view_as_real((torch.complex(a, b) * c).sum(-1)), (A, B, A)),
        (lambda a, b: torch.view_as_real(-torch.complex(a, b) / 3.0), (A, B)),
        (lambda a, b, c: torch.view_as_real(torch.complex(a, b) / c), (A, B, A)),
        (lambda a, b: torch.complex(a, b).abs(), (A, B)),
        (lambda a, b: torch.view_as_real(torch.complex(a, b).exp()), (A, B)),
        (lambda a, b: torch.view_as_real(torch.complex(a, b) @ torch.complex(b, a).mT), (A, B)),
        (lambda a, b: torch.view_as_real(torch.einsum("tc,sc->ts", torch.complex(a, b), a + 0j)), (A, B)),
    ],
    "polar": [(lambda a, b: torch.view_as_real(torch.polar(a, b)), (POSITIVE, B))],
    **{
        name: [
            (lambda a, name=name: torch.view_as_real(getattr(aten, name)(torch.view_as_complex(a)).resolve_conj()), (PAIRS,))
        ]
        for name in ("_conj", "_conj_physical", "conj_physical")
    },
    "angle": [(lambda a: torch.view_as_complex(a).angle(), (PAIRS,))],
    "copy": [(aten.copy, (A, VECTOR)), (lambda a: aten.copy(a, torch.tensor(0.5, dtype=F64)), (A,))],
    # new tensors
    "full_like": [(lambda a: torch.full_like(a, 2.5), (A,))],
    "ones_like": [(torch.ones_like, (A,)), (lambda a: torch.ones_like(a, dtype=F64), (A,))],
    "zeros_like": [(torch.zeros_like, (A,)), (lambda a: torch.zeros_like(a, dtype=torch.int64), (A,))],
    "new_zeros": [(lambda a: a.new_zeros(2, 3), (A,))],
    "new_ones": [(lambda a: a.new_ones(2, 3), (A,)), (lambda a: a.new_ones(2, dtype=torch.bool), (A,))],
    "new_full": [(lambda a: a.new_full((2,), 2.5), (A,))],
    "fill": [(lambda a: aten.fill(a, 2.5), (A,))],
    "zero": [(aten.zero, (A,))],
}
NOT_NUMBERS = {"eq", "ne", "lt", "gt", "le", "ge", "logical_not", "bitwise_not", "logical_and", "logical_or", "bitwise_and"}
NOT_NUMBERS |= {"bitwise_or", "isnan", "isinf", "isfinite", "any", "all", "signbit", "searchsorted", "bucketize"}
NOT_NUMBERS |= {"_local_scalar_dense"}
"""Comparisons and what follows from them: tested below."""
UNTOLD = {"empty_like", "new_empty", "new_empty_strided", "scalar_tensor"}
"""Operations whose values say nothing, or that take no tensor."""
CASES = [(name, at) for name, all_of in EXAMPLES.items() for at in range(len(all_of))]
STEPS = {"sign", "sgn"}
COMPLEX = {"view_as_complex", "view_as_real", "complex", "polar", "angle", "_conj", "_conj_physical", "conj_physical"}
NO_16_BITS = {*COMPLEX, "linalg_inv_ex"}
MIXED = {"add", "sub", "mul", "div", "maximum", "minimum", "where", "cat", "stack", "copy"}
LOOSE = {"sin": 3.0, "var": 2.4, "var_mean": 2.4, "native_layer_norm": 2.4}
"""How much more than the worst the bound of a function is that does not take all correlations into account."""
LIMITED = {"clamp", "clamp_min", "clamp_max"}
"""Functions whose bounds are those of their operands, also where they are constant."""


def parts(result: Any) -> list[Any]:
    return [*result] if isinstance(result, (list, tuple)) else [result]


def test_every_rule_has_an_example() -> None:
    """An operation that loses its rule, or gains one, shows here."""
    assert {operation.overloadpacket.__name__ for operation in RULES} == {*EXAMPLES, *NOT_NUMBERS, *UNTOLD}
    rule_of = {operation.overloadpacket.__name__: rule for operation, rule in RULES.items()}
    for module, names in (
        (arithmetic, ("add", "abs")),
        (choices, ("eq",)),
        (moves, ("split", "cat")),
        (sums, ("sum", "mv")),
    ):
        for name in names:
            assert (name, rule_of[name].__globals__["aten"]) == (name, module.aten)


def dtypes_of(name: str, count: int) -> list[tuple[torch.dtype, ...]]:
    """Return dtypes for the operands of an example: all the same, and mixed where PyTorch computes with mixed ones."""
    alike = [(dtype,) * count for dtype in (F32, F64, *(() if name in NO_16_BITS else (BF16, F16)))]
    return alike + [(F16, *(F32,) * (count - 1))] * (count > 1 and name in MIXED)


@pytest.mark.parametrize(("name", "at"), CASES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_rule_has_the_value_the_dtype_and_the_shape_of_its_operation(mode: Any, name: str, at: int) -> None:
    """In inference mode PyTorch does not rewrite operations into others first."""
    with mode():
        compared(name, at)


def compared(name: str, at: int) -> None:
    """Compare a rule with its operation on operands of each dtype."""
    function, draws = EXAMPLES[name][at]
    generator = torch.Generator().manual_seed(5)
    values = [draw(generator) for draw in draws]
    wanted = parts(function(*values))
    for dtypes in dtypes_of(name, len(draws)):
        tensors = [value.to(dtype) for value, dtype in zip(values, dtypes, strict=True)]
        got = parts(function(*tensors))
        in_wide = parts(function(*(one if one.dtype == F64 else one.float() for one in tensors)))
        found = parts(function(*(of(value, 0.0, dtype) for value, dtype in zip(values, dtypes, strict=True))))
        assert len(found) == len(got)
        of_device = 1 if name == "native_layer_norm" else len(got)  # mean and rstd are float32 on a GPU
        for one, tensor, rounded, exact in zip(found[:of_device], got, in_wide, wanted, strict=False):
            assert (one.dtype, one.shape) == (tensor.dtype, tensor.shape), dtypes
            if not isinstance(one, Carried):
                assert torch.equal(one, tensor)
                continue
            number = one.number
            assert number.dtype == tensor.dtype
            assert torch.allclose(number.value, exact.double(), rtol=1e-12, atol=1e-15)
            assert bool(((rounded.to(tensor.dtype).double() - number.value).abs() <= number.error).all()), dtypes
            roundings = 2 * unit_roundoff(tensor.dtype) + 200 * (unit_roundoff(F64) if F64 in dtypes else U)
            assert float(number.error.max()) <= 30 * roundings * float(exact.double().abs().amax() + 1)


@pytest.mark.parametrize(("name", "at"), [case for case in CASES if case[0] not in STEPS])
def test_a_rule_covers_what_the_errors_of_its_operands_do_and_little_more(name: str, at: int) -> None:
    function, draws = EXAMPLES[name][at]
    generator = torch.Generator().manual_seed(7)
    values = [draw(generator) for draw in draws]
    errors = [torch.rand(value.shape, generator=generator, dtype=F64) * 0.02 + 0.01 for value in values]
    found = parts(function(*(of(value, error) for value, error in zip(values, errors, strict=True))))
    wanted = parts(function(*values))
    worst = [torch.zeros_like(one, dtype=F64) for one in wanted]
    for _ in range(200):
        signs = [1 - 2.0 * torch.randint(0, 2, one.shape, generator=generator) for one in values]
        moved = parts(function(*(a + s * e for a, s, e in zip(values, signs, errors, strict=True))))
        for place, (there, here) in enumerate(zip(moved, wanted, strict=True)):
            worst[place] = torch.maximum(worst[place], (there.double() - here.double()).abs())
    for one, most, exact in zip(found, worst, wanted, strict=True):
        if not isinstance(one, Carried) or isinstance(one.number, Mask):
            continue
        rounded = 60 * U * float(exact.abs().amax() + 1)
        assert bool((most <= one.number.error + 2 * U * exact.abs().amax()).all())
        of_one = name.endswith("softmax") and not values[0].dim()  # is certain, and its bound does not know it
        if name not in LIMITED and not of_one:
            assert float(one.number.error.sum()) <= LOOSE.get(name, 1.9) * float(most.sum()) + rounded * exact.numel()


MOVES = [
    *("expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "slice", "select", "clone", "detach", "alias", "split"),
    *("split_with_sizes", "unbind", "chunk", "lift_fresh", "flip", "gather", "index_select", "index", "_unsafe_index"),
    *(
        "tril",
        "triu",
        "roll",
        "repeat",
        "diagonal",
        "diag_embed",
        "slice_backward",
        "select_backward",
        "unfold",
        "embedding",
    ),
    *("as_strided", "constant_pad_nd", "view", "_unsafe_view", "reshape", "cat", "stack", "scatter", "slice_scatter"),
    *("select_scatter",),
]


@pytest.mark.parametrize(("name", "at"), [case for case in CASES if case[0] in MOVES])
def test_a_move_moves_errors_as_it_moves_values(name: str, at: int) -> None:
    function, draws = EXAMPLES[name][at]
    generator = torch.Generator().manual_seed(9)
    values = [draw(generator) for draw in draws]
    found = parts(function(*(of(value, value.abs() / 8) for value in values)))
    for one, value, wanted in zip(
        found, parts(function(*values)), parts(function(*(one.abs() / 8 for one in values))), strict=True
    ):
        constant = 0.5 if name == "scatter" and len(draws) == 1 else math.nan  # has no error
        assert torch.equal(one.number.error, torch.where(value == constant, 0.0, wanted))


def monotone(function: Callable[[Tensor], Tensor], argument: float, absolute: float, flushed: float) -> Any:
    """Return the bound of docs/tolerances.md for a monotone function, of a value and its error."""

    def bound(a: Tensor, e: Tensor) -> Tensor:
        spread = e + argument * U * a.abs()
        value = function(a)
        moved = torch.maximum((function(a + spread) - value).abs(), (function(a - spread) - value).abs())
        moved = torch.where(spread == 0, 0.0, moved + 2.0**-51 * value.abs()) + absolute * U + flushed
        return moved + 9 * U * (value.abs() + moved)

    return bound


BOUNDS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "exp": (torch.exp, monotone(torch.exp, 2, 0, NORMAL)),
    "expm1": (torch.expm1, monotone(torch.expm1, 2, 0, 0)),
    "exp2": (torch.exp2, monotone(torch.exp2, 1, 0, NORMAL)),
    "log": (torch.log, monotone(torch.log, 0, 4, 0)),
    "log2": (torch.log2, monotone(torch.log2, 0, 4, 0)),
    "log1p": (torch.log1p, monotone(torch.log1p, 0, 0, 0)),
    "tanh": (torch.tanh, monotone(torch.tanh, 2, 18, 0)),
    "erf": (torch.erf, monotone(torch.erf, 2, 9, 0)),
    "a ** 1.5": (
        lambda a: a**1.5,
        lambda a, e: monotone(lambda x: x**1.5, (3 * float(a.log().abs().max()) + 2) / 1.5, 0, 0)(a, e),
    ),
    "a ** -2": (
        lambda a: a**-2,
        lambda a, e: monotone(lambda x: x**-2, (4 * float(a.log().abs().max()) + 2) / 2, 0, 0)(a, e),
    ),
    "sqrt": (
        torch.sqrt,
        lambda a, e: 9 * U * a.sqrt() + (1 + 9 * U) * torch.where(e == 0, 0.0, a.sqrt() - (a - e).sqrt()),
    ),
    "sin": (torch.sin, lambda a, e: (e + 2 * U * a) * (1 + 9 * U) + 9 * U * a.sin().abs()),
    "cos": (torch.cos, lambda a, e: (e + 2 * U * a) * (1 + 9 * U) + 9 * U * a.cos().abs()),
    "reciprocal": (torch.reciprocal, lambda a, e: (e / a / (a - e)) * (1 + 4 * U) + 4 * U / a),
}


@pytest.mark.parametrize("error", [0.0, 0.25])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_function_of_one_number_has_its_bound_exactly(name: str, error: float) -> None:
    function, bound = BOUNDS[name]
    a = t(0.5, 3.125, 40.5)
    assert torch.allclose(error_of(function(of(a, error))), bound(a, torch.full_like(a, error)), rtol=1e-6)


def test_bounded_functions_move_by_no_more_than_their_range() -> None:
    for function in (torch.sin, torch.cos):
        assert close(error_of(function(of(t(1.0), 50.0))), 2 + 9 * U * (2 + float(function(t(1.0)))))
    for value, error, wanted in ((1.0, 0.5, 0.0), (1.0, 1.0, 2.0), (-1.0, 1.5, 2.0), (0.0, 0.0, 0.0), (0.0, 0.1, 2.0)):
        assert error_of(torch.sign(of(t(value), error))).tolist() == [wanted]
    for limited in (torch.relu, lambda a: a.clamp(-1, 1)):
        assert error_of(limited(of(t(-3.0, 0.5), 0.25))).tolist() == [0.0, 0.25], "-3 is cut off in any case"


def test_what_is_no_integer_of_a_dtype_is_undefined_as_one() -> None:
    values = torch.tensor([torch.nan, torch.inf, 128.0, -129.0, 127.5, -128.9, 3.0])
    (number,) = read(lambda x: x.to(torch.int8), [values], {}).outputs
    assert number.unsure.tolist() == [True] * 4 + [False] * 3
    assert number.value[4:].tolist() == [127, -128, 3]
    (booleans,) = read(lambda x: x.bool(), [values], {}).outputs
    assert booleans.tolist() == [True] * 7


def test_infinity_that_may_be_nan_is_no_certain_maximum() -> None:
    """The product of what may underflow to 0 and infinity; a maximum passes NaN on."""
    x, infinite = torch.tensor([[-120.0, 1.0]]), torch.tensor([[torch.inf, 1.0]])
    for function in (torch.amax, lambda y, dim: torch.maximum(y, y).sum(dim), lambda y, dim: y.max(dim).values):
        (number,) = read(lambda x, y, function=function: function(x.exp() * y, -1), [x, infinite], {}).outputs
        assert number.error.isinf().all()
    (certain,) = read(lambda y: y.amax(-1), [infinite], {}).outputs
    assert certain.error.tolist() == [0.0]


def test_a_quotient_has_its_bound_exactly() -> None:
    a, b = of(t(3.0), 0.5), of(t(-5.0), 0.25)
    moved = (0.5 + 0.6 * 0.25) / 4.75
    assert close(error_of(a / b), moved + 4 * U * (0.6 + moved))
    assert close(error_of(of(t(3.0)) / of(t(-5.0))), 4 * U * 0.6)
    exact = [Carried(ErrorNumber.exact(t(one), F32)) for one in (3.0, -5.0)]
    assert close(error_of(exact[0] / exact[1]), 4 * U * 0.6)
    doubles = [Carried(ErrorNumber.exact(t(one), torch.float64)) for one in (3.0, -5.0)]
    assert close(error_of(doubles[0] / doubles[1]), 2 * 2.0**-53 * 0.6)
    assert error_of(a / of(t(5.0), 5.0)).isinf().all(), "it may be 0"
    assert error_of(a / of(t(5.0), 4.99)).isfinite().all()
    assert error_of(of(t(3.0)) / of(t(0.0))).tolist() == [0.0], "it is infinite for certain"
    assert error_of(of(t(3.0), 0.5) / of(t(0.0))).isinf().all()
    assert error_of(of(t(0.0)) / of(t(5.0), 0.25)).tolist() == [0.0]
    quotient: Any = torch.div(of(t(7.0, 6.1)), of(t(2.0, 2.0), 0.1), rounding_mode="floor")
    floor = quotient.number
    assert (floor.value.tolist(), floor.error.tolist()) == ([3.0, 3.0], [0.0, 1.0])


@pytest.mark.parametrize("function", [torch.log, torch.exp, torch.sqrt, torch.tanh, torch.rsqrt])
def test_a_value_that_is_not_finite_is_certain_where_its_operand_is(function: Callable[[Any], Any]) -> None:
    wild = t(math.inf, math.nan)
    assert error_of(function(of(wild))).tolist()[1] == 0.0
    in_doubt = error_of(function(of(wild, math.inf)))
    assert bool(in_doubt.isinf().all())
    assert error_of(torch.log(of(t(0.0)))).tolist() == [0.0]
    assert error_of(torch.log(of(t(0.0), 0.5))).isinf().all()
    assert error_of(torch.log(of(t(0.5), 0.5))).isinf().all()


def softmax_terms(a: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return y, e with the roundings of the arguments, D and U of the lines in `elementary`."""
    y = a.softmax(-1)
    spread = e + 3 * U * (a - a.amax(-1, keepdim=True)).abs()
    down = (y * (1 - torch.exp(-spread))).sum(-1, keepdim=True)
    up = (y * spread.expm1()).sum(-1, keepdim=True)
    return y, spread, down, up


@pytest.mark.parametrize("e", [t(0.0, 0.0, 0.0), t(0.125, 0.25, 0.5), t(0.5, 0.5, 0.01)])
def test_shares_of_a_sum_have_their_bounds_exactly(e: Tensor) -> None:
    a = t(0.5, -1.0, 2.0)
    y, spread, down, up = softmax_terms(a, e)
    root = 6 * math.sqrt(3)
    lse = float(a.logsumexp(-1))
    over = (spread + U * lse).exp()
    moved = y * torch.maximum(over / (1 - down) - 1, 1 - 1 / (over * (1 + up)))
    moved = moved.clamp(max=1.0) + NORMAL
    assert torch.allclose(error_of(of(a, e).softmax(-1)), moved + (18 + root) * U * (y + moved), rtol=1e-6)
    log = torch.maximum(-torch.log(1 - down), torch.log(1 + up))
    total = float((a - 2).exp().sum().log())
    moved = spread + log + U * (9 + root + 4 + 9 * total + lse)
    value = a.log_softmax(-1).abs()
    assert torch.allclose(error_of(of(a, e).log_softmax(-1)), moved + 2 * U * (value + moved), rtol=1e-6)
    moved = log + U * (9 + root + 4 + 9 * total)
    assert torch.allclose(error_of(of(a, e).logsumexp(-1)), (moved + 2 * U * (lse + moved)).squeeze(-1), rtol=1e-6)


def test_a_share_is_at_most_off_by_one_and_of_what_may_be_infinite_by_anything() -> None:
    found = error_of(of(t(0.0, 5.0), 3.0).softmax(-1))
    assert bool((found <= 1 + 1e-5).all())
    assert bool((error_of(of(t(0.0, 5.0), 60.0).softmax(-1)) >= 1).all())
    for function in (torch.softmax, torch.log_softmax):
        assert error_of(function(of(t(0.0, 5.0), t(0.0, math.inf)), -1)).isinf().all()
        for error in (0.5, 0.0):
            found = error_of(function(of(t(0.0, math.inf), t(error, 0.0)), -1))
            assert found.isinf().all() == bool(error), "NaN for certain, or not"
    hidden = t(0.0, -math.inf)
    assert error_of(of(hidden, t(0.5, 0.0)).softmax(-1)).tolist()[1] == 0.0
    assert error_of(of(hidden - 2000, t(700.0, 0.0)).softmax(-1)).isfinite().all()
    assert float(error_of(of(t(0.0, -85.0)).softmax(-1))[1]) >= NORMAL, "it may be flushed"


def test_a_maximum_has_the_error_of_what_may_be_the_largest() -> None:
    row = t(1.0, 2.0, 2.5, -7.0)
    assert float(error_of(of(row, t(9.0, 0.0, 0.25, 1.0)).amax())) == 9.0
    assert float(error_of(of(row, t(0.75, 0.5, 0.25, 8.0)).amax())) == 0.5
    assert float(error_of(of(row, t(0.75, 0.24, 0.25, 8.0)).amax())) == 0.25
    assert float(error_of(of(row, t(0.5, 0.0, 0.0, 9.0)).amin())) == 9.0
    assert float(error_of(of(row, t(0.5, 0.75, 0.0, 1.0)).amin())) == 1.0
    a, b = of(t(1.0, 3.0, 3.0), t(0.5, 0.5, 0.5)), of(t(2.0, 2.0, 4.0), t(0.25, 0.25, 0.75))
    assert error_of(torch.maximum(a, b)).tolist() == [0.25, 0.5, 0.75]
    assert error_of(torch.minimum(a, b)).tolist() == [0.5, 0.25, 0.75]
    assert error_of(torch.max(a, b)).tolist() == [0.25, 0.5, 0.75]


COMPARISONS = [torch.eq, torch.ne, torch.lt, torch.gt, torch.le, torch.ge]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda one: str(one.__name__))
def test_a_comparison_is_unsure_where_its_operands_may_meet(compare: Callable[..., Any]) -> None:
    a, b = t(1.0, 1.0, 1.0, 2.0), t(1.5, 1.5, 3.0, 2.0)
    e, f = t(0.25, 0.25, 0.25, 0.0), t(0.25, 0.0, 0.25, 0.0)
    found = compare(of(a, e), of(b, f)).number
    assert torch.equal(found.value, compare(a, b))
    assert found.unsure.tolist() == [True, False, False, False]
    assert torch.equal(compare(of(a, e), 1.25).number.unsure, t(1, 1, 1, 0).bool())
    assert torch.equal(compare(of(a, e), torch.tensor(1.25)).number.value, compare(a, 1.25))
    certain = compare(of(a), of(b))
    assert not isinstance(certain, Carried)
    assert torch.equal(certain, compare(a, b))
    assert not isinstance(compare(of(a, e), 9.0), Carried)


def test_what_follows_from_a_comparison_is_unsure_where_it_is() -> None:
    unsure: Any = of(t(0.0, 1.0, -1.0), 0.5) > 0
    sure = torch.tensor([True, False, True])
    operations: list[Any] = [torch.logical_and, torch.logical_or, torch.bitwise_and, torch.bitwise_or]
    for operation in operations:
        for found in (operation(unsure, sure), operation(sure, unsure)):
            assert found.number.unsure.tolist() == [True, False, False]
            assert torch.equal(found.number.value, operation(torch.tensor([False, True, False]), sure))
        other = of(t(1.0, 0.0, 1.0), t(0.0, 0.5, 0.0)) > 0
        assert operation(unsure, other).number.unsure.tolist() == [True, True, False]
    negations: list[Any] = [torch.logical_not, torch.bitwise_not]
    for function in negations:
        assert function(unsure).number.unsure.tolist() == [True, False, False]
        assert function(unsure).number.value.tolist() == [True, False, True]
    assert torch.logical_not(of(t(0.0, 2.0))).tolist() == [True, False]
    reductions: list[tuple[Any, bool]] = [(torch.any, True), (torch.all, False)]
    for reduce, value in reductions:
        assert (bool(reduce(unsure).number.value), bool(reduce(unsure).number.unsure)) == (value, True)
        assert reduce(unsure[1:], 0, keepdim=True).number.unsure.tolist() == [False]
    assert error_of(unsure.float()).tolist() == [1.0, 0.0, 0.0]
    assert unsure.float().number.value.tolist() == [0.0, 1.0, 0.0]
    assert unsure.float().dtype == F32
    count = unsure.sum()
    assert (count.dtype, int(count.number.value), bool(count.number.unsure)) == (torch.int64, 1, True)
    assert close(error_of(count * of(t(1.0))), [1 + 2 * U]), "none, one or two of them"
    with pytest.raises(UnreadableReference, match="arithmetic of comparisons"):
        unsure + sure
    with pytest.raises(UnreadableReference, match="a comparison of comparisons"):
        assert unsure == sure
    with pytest.raises(UnreadableReference, match="a comparison of comparisons"):
        assert torch.ne(sure, unsure)
    gated = of(t(0.0, 1.0, -1.0), 0.5) * unsure
    assert gated.number.value.tolist() == [0.0, 1.0, 0.0]
    assert float(gated.number.error[0]) >= 0.5, "it may be let through"
    assert close(error_of(gated)[1:], [0.5 + 1.5 * U, 0.0])
    chosen: Any = torch.where(unsure, of(t(3.0, 3.0, 3.0), 0.25), of(t(1.0, 1.0, 1.0), 0.5))
    assert chosen.number.value.tolist() == [1.0, 3.0, 1.0]
    assert error_of(chosen).tolist() == [2.5, 0.25, 0.5]


@pytest.mark.parametrize("function", [torch.isnan, torch.isinf, torch.isfinite])
def test_the_class_of_a_number_is_unsure_where_nothing_is_promised_of_it(function: Callable[..., Any]) -> None:
    value = t(1.0, math.inf, math.nan)
    assert torch.equal(function(of(value, 0.5)), function(value))
    for errors in ((math.inf, 0.5, 0.0), (0.0, math.inf, 0.0), (0.0, 0.0, math.inf)):
        found = function(of(value, t(*errors)))
        assert torch.equal(found.number.value, function(value))
        assert torch.equal(found.number.unsure, t(*errors).isinf())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_product_with_a_vector_has_the_shape_of_one(mode: Any) -> None:
    """PyTorch makes a matrix of a vector on the left, and takes the axis off in place; in inference mode it does not."""
    a, b = t(1.0, 2.0), torch.arange(24.0, dtype=F64).reshape(4, 2, 3)
    with mode():
        for left, right in ((a, b[0]), (a, b), (b.mT, a), (b[0].mT, a), (a, a)):
            product = of(left, 0.25) @ of(right)
            assert torch.equal(product.number.value, left @ right)
            assert product.shape == (left @ right).shape
            assert torch.equal(error_of(product) > 0.2, torch.ones_like(left @ right, dtype=torch.bool))


def test_bits_are_read_where_they_are_certain() -> None:
    with pytest.raises(UnreadableReference, match=r"aten\.view\.dtype .*the bits of numbers that have an error"):
        of(t(1.0), 0.5).view(torch.int32)
    assert of(t(1.5)).view(torch.int32).tolist() == [0x3FC00000]
    assert of(t(1.5), 0.0, F16).view(torch.int16).tolist() == [0x3E00]


def test_decisions_are_counted() -> None:
    before = Mask.made
    assert (of(t(1.0), 0.5) > 1.25).number.unsure.all()
    assert Mask.made == before + 1
    assert not (of(t(1.0)) > 1.25).any()
    assert Mask.made == before + 1


def test_dtypes_are_promoted_as_pytorch_does() -> None:
    for first, second in product((BF16, F16, F32, F64), repeat=2):
        for shape in ((), (2,)):
            a, b = torch.ones(2, dtype=first), torch.ones(shape, dtype=second)
            for one, two in ((a, b), (b, a)):
                carried = [of(x, 0.0, x.dtype) for x in (one, two)]
                wanted = (one * two).dtype
                assert (carried[0] * carried[1]).dtype == (carried[0] * two).dtype == (one * carried[1]).dtype == wanted
    assert (of(t(1.0), 0.0, BF16) * torch.ones(1, dtype=torch.int64)).dtype == BF16


def test_numbers_and_plain_tensors_have_the_error_of_what_they_are_held_as() -> None:
    """A constant may be rounded to the narrow dtype first, and a float64 tensor without dimensions is a constant."""
    third = 1 / 3
    narrow = abs(float(torch.tensor(third, dtype=BF16)) - third)
    found = error_of(of(t(1.0), 0.0, BF16) + third)
    step = 1 / 256
    whole = narrow + U * (1 + third + narrow)
    assert close(found, whole + step * (1 + third + whole) + 2.0**-134)
    plain = torch.tensor([third], dtype=F32)
    held = of(t(1.0)) * plain
    assert held.number.value.tolist() == [float(plain)]
    assert close(error_of(held), U * float(plain))
    off = abs(float(torch.tensor(third, dtype=F32)) - third)
    assert close(error_of(torch.where(EVERY_SECOND[:1], third, of(t(1.0)))), 0.0)  # a float32 tensor holds the constant
    filled = of(t(1.0)).masked_fill(EVERY_SECOND[:1], third).number
    assert abs(float(torch.tensor(third, dtype=F32)) - float(filled.value)) <= float(filled.error) <= U * third
    least, inside = error_of(of(t(0.0, 1.0)).clamp(min=third)).tolist()
    assert off <= least <= U * third
    assert inside == 0.0
    assert (of(t(2.0), 0.5) * torch.tensor([3])).number.value.tolist() == [6.0]


def test_what_is_computed_in_a_narrow_dtype_is_rounded_once() -> None:
    a, b = of(t(3.0), 0.0, BF16), of(t(5.0), 0.0, BF16)
    inner = 15 * U
    assert close(error_of(a * b), inner + (15 + inner) / 256 + 2.0**-134)
    for function, value in ((torch.exp, math.exp(3)), (torch.sqrt, 3**0.5), (lambda x: x.softmax(-1), 1.0)):
        assert float(error_of(function(a))) < 1.02 * value / 256
        assert float(error_of(function(a))) > value / 256


def test_a_gradient_of_a_loss_is_weighted_and_leaves_out_what_is_ignored() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, target = torch.randn(4, 3, generator=generator), torch.tensor([2, 0, 1, 2])
    weight = torch.tensor([1.0, 0.5, 2.0])
    backward = DECOMPOSED[aten.nll_loss_backward.default]
    for reduction, ignored, weights in product((0, 1, 2), (-100, 0, 1), (None, weight)):
        output, total = aten.nll_loss_forward(logits, target, weights, reduction, ignored)
        upstream = torch.randn(output.shape, generator=generator)
        arguments = upstream, logits, target, weights, reduction, ignored, total
        assert torch.equal(backward(*arguments), aten.nll_loss_backward(*arguments))


@pytest.mark.parametrize("kind", [DeviationNumber, UnderflowNumber])
def test_numbers_that_bound_something_else_refuse_functions(kind: type[ErrorNumber]) -> None:
    number = kind(t(4.0), t(0.0), F32)
    for function in (elementary.exp, elementary.sqrt, elementary.log, elementary.tanh):
        if kind.constant:
            assert function(number).error.tolist() == [0.0]
            assert function(kind(t(4.0), t(0.5), F32)).error.isinf().all()
        else:
            with pytest.raises(elementary.NoRule, match="of a DeviationNumber"):
                function(number)
    if not kind.constant:
        with pytest.raises(elementary.NoRule, match="quotient of a DeviationNumber"):
            elementary.quotient(number, number)
    else:
        assert close(elementary.absolute(kind(t(-4.0), t(0.5), F32)).error, 0.5)


@pytest.mark.parametrize("function", [aten._softmax, aten._log_softmax])
def test_a_softmax_of_a_narrow_dtype_may_be_left_in_float32(function: Any) -> None:
    whole, half = (function(of(t(1.0, 2.0), 0.0, BF16), 0, one) for one in (True, False))
    assert (whole.dtype, half.dtype) == (F32, BF16)
    assert float(error_of(whole).max()) < 100 * U < float(error_of(half).min())


def test_a_power_of_two_with_an_integer_exponent_is_exact_and_so_is_what_it_scales() -> None:
    v = of(t(0.3125, -3.0, 0.1, 2.0**-120))
    exponent = torch.tensor([2, -3, 0, -120])
    number = of(t(2.0, -3.0, 0.0, -120.0))
    scales: list[Any] = [torch.exp2(number), 2.0**number]
    for scaled in (*(v * scale for scale in scales), v / torch.exp2(-number), v / (1 / torch.exp2(number))):
        assert error_of(scaled)[:3].tolist() == [0.0, 0.0, 0.0]
        assert float(error_of(scaled)[3]) > 0, "the result is not normal"
        assert torch.equal(scaled.number.value, torch.ldexp(v.number.value, exponent))
    whole = torch.tensor([2, -3, 0, 5])
    for function in (torch.ldexp, lambda x, e: x * torch.exp2(e), lambda x, e: x / torch.pow(2.0, -e)):
        (found,) = read(function, [torch.tensor([0.3125, -3.0, 0.1, 1.5]), whole], {}).outputs
        assert found.error.tolist() == [0.0] * 4
    assert (error_of(torch.exp2(of(t(0.5, -127.0, 128.0)))) > 0).all(), "not an integer, not normal, no number of float32"
    assert float(error_of(torch.exp2(of(t(3.0), 0.25)))) > 1
    (many,) = read(torch.ldexp, [torch.tensor([0.75, 0.75]), torch.tensor([1, 130])], {}).outputs
    assert many.error.tolist() == [0.0, math.inf], "one overflow leaves the others exact"


def test_an_exponent_in_doubt_leaves_the_others_exact() -> None:
    x = torch.tensor([1.0, 0.3125, 3.0])

    def scaled(x: Tensor) -> Tensor:
        return torch.ldexp(x, (x / 3.0 > 0.3125 / 3.0).int() + 1)

    (found,) = read(scaled, [x], {}).outputs
    assert found.value.tolist() == [4.0, 0.625, 12.0]
    assert found.error.tolist() == [0.0, math.inf, 0.0]


def test_integers_are_unsure_where_a_comparison_is_and_carry_how_far_they_may_be_off() -> None:
    x = torch.tensor([1.0, 0.3125, 0.2, 0.9])

    def doubt(x: Tensor) -> Tensor:
        return (x / 3.0 > 0.3125 / 3.0).int()

    calls: Mapping[str, tuple[Callable[[Any], Any], float, list[int]]] = {
        # how far the second element may be off, and the values
        "+ 8": (lambda x: doubt(x) + 8, 1, [9, 8, 8, 9]),
        "8 -": (lambda x: 8 - doubt(x), 1, [7, 8, 8, 7]),
        "+ int": (lambda x: doubt(x) + (x > 0.25).int(), 1, [2, 1, 0, 2]),
        "+ self": (lambda x: doubt(x) + doubt(x), 2, [2, 0, 0, 2]),
        "alpha": (lambda x: torch.add(doubt(x), doubt(x), alpha=-3), 4, [-2, 0, 0, -2]),
        "* 5": (lambda x: doubt(x) * 5, 5, [5, 0, 0, 5]),
        "* 0": (lambda x: doubt(x) * doubt(x), 1, [1, 0, 0, 1]),
        "where": (lambda x: torch.where(x > 0.25, doubt(x) + 8, 3), 1, [9, 8, 3, 9]),
        "in doubt": (lambda x: torch.where(x / 3.0 > 0.3125 / 3.0, doubt(x), 9), 10, [1, 9, 9, 1]),
        "long": (lambda x: (doubt(x) + 8).long(), 1, [9, 8, 8, 9]),
        "uint8 - 1": (lambda x: doubt(x).to(torch.uint8) - 1, math.inf, [0, 255, 255, 0]),
        "bits": (lambda x: (doubt(x) + 8) & 12, math.inf, [8, 8, 8, 8]),
        "~": (lambda x: ~doubt(x), math.inf, [-2, -1, -1, -2]),
        "shift": (lambda x: (doubt(x) + 8) << 1, math.inf, [18, 16, 16, 18]),
        "clamp": (lambda x: (doubt(x) + 8).clamp(max=8), math.inf, [8, 8, 8, 8]),
        "clamp by": (lambda x: x.new_full((4,), 8, dtype=torch.int32).clamp(max=doubt(x)), math.inf, [1, 0, 0, 1]),
    }
    for name, (function, off, values) in calls.items():
        (found,) = read(function, [x], {}).outputs
        assert found.value.tolist() == values, name
        assert float(found.error[1]) == off, name
        assert found.unsure.tolist() == [False, True, False, False], name
    (found,) = read(lambda x: doubt(x).cumsum(0), [x], {}).outputs
    assert found.error.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_a_count_in_doubt_is_compared_by_its_range() -> None:
    x = torch.tensor([[1.0, 0.3125, 0.2, 0.9]])

    def count(x: Tensor) -> Tensor:
        return (x / 3.0 > 0.3125 / 3.0).sum(-1)

    assert read(lambda x: count(x) > 0, [x], {}).outputs[0].tolist() == [True]
    assert read(lambda x: count(x) > 4, [x], {}).outputs[0].tolist() == [False]
    assert read(lambda x: count(x) > 2, [x], {}).outputs[0].unsure.tolist() == [True]
    (half,) = read(lambda x: count(x) / 2, [x], {}).outputs
    assert half.error.isinf().all()
    (number,) = read(lambda x: count(x).float() + 1.0, [x], {}).outputs
    assert float(number.value) == 3.0
    assert float(number.error) == pytest.approx(1.0, rel=1e-5)
    assert read(lambda x: (x / 3.0 > 0.3125 / 3.0).sum(-1, dtype=torch.float32), [x], {}).outputs[0].dtype == F32


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_what_pytorch_takes_without_elements_has_a_bound(axis: int, *, differentiated: bool) -> None:
    """As of an empty batch: a rule must not ask for the largest of no elements, or for a size that nothing tells."""
    failed, taken, generator = [], 0, torch.Generator().manual_seed(3)
    for name in sorted({*EXAMPLES} - COMPLEX):
        for function, draws in EXAMPLES[name]:
            operands = [draw(generator) for draw in draws]
            empty = [one.narrow(axis, 0, 0).float() if one.dim() else one.float() for one in operands]

            def first(*given: Any, function: Callable[..., Any] = function) -> Any:
                found = function(*given)
                return found[0] if isinstance(found, (tuple, list)) else found

            try:
                leaves = [one.clone().requires_grad_() for one in empty]
                result = first(*leaves)
                upstream = [torch.ones_like(result)] if differentiated and result.requires_grad else []
                for one in upstream:
                    torch.autograd.grad(result, leaves, one, allow_unused=True)
            except (RuntimeError, IndexError, ValueError):
                continue
            taken += 1
            try:
                found = read(first, empty, {}, upstream).outputs[0]
            except Exception as error:  # of any kind: none is expected
                failed.append((name, str(error)[:80]))
                continue
            value = found.value if isinstance(found, (ErrorNumber, Mask)) else found
            if not torch.allclose(value.double(), result.double(), equal_nan=True) or value.shape != result.shape:
                failed.append((name, f"{value} for {result}"))
    assert failed == []
    assert taken > 150
