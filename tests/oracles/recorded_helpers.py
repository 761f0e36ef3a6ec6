"""Cases of tests/oracles/recorded.py on the helpers of `mhc.oracles.bounds`, and at corners that no operands reach."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import addends, elementary, most, operation_error, quantum, reassociation, rounding
from mhc.oracles.bounds import sampled_number as sampling
from mhc.oracles.bounds.aten import sums
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import with_factors
from mhc.oracles.bounds.sampled_number import Divisors, UnmovedNumber
from mhc.oracles.bounds.underflow_number import UnderflowNumber
from tests.oracles.recorded import INF, NAN, OPERANDS, Cases, number
from tests.oracles.recorded_numbers import FINITE, FORMULAS, KINDS, as_tensor, plain, running
from tests.oracles.test_aten_rules import BF16, F16, F32, F64


def _mosts() -> Cases:
    """Yield what is held at most of sums of numbers that may overflow to -infinity, and what follows from it."""
    mask = ErrorNumber(plain(-1e38, -1e38, 3e38, -INF, -1e38, -999.0, NAN), plain(0, 1e31, 0, 0, INF, INF, 0), F32)
    other = ErrorNumber(plain(2.0, -3.0, 1.0, 5.0, 1.0, 0.0, 1.0), plain(0, 0.5, 0, 0, 0, 0, 0), F32)
    total = mask + other
    several = {"sum": total, "again": total + other, "negative": -total}
    several |= {"narrow": total.to(BF16), "lost": total.lost(total.size)}
    for name, one in several.items():
        yield f"most, {name}", partial(as_tensor, most.most, one)
    yield "most, exponential", partial(elementary.exp, total)
    yield "most, below", partial(as_tensor, most.below, total, other)
    for choose in (torch.maximum, torch.minimum):
        yield f"most, {choose.__name__}", partial(elementary.larger, total, other, choose)
    yield "most, largest", partial(elementary.largest, total[:2], 0)
    for unsure in (None, plain(1, 0, 1, 0, 1, 0, 1).bool()):
        condition = plain(1, 1, 0, 0, 1, 1, 0).bool()
        chosen = most.of_choice(total, other, condition, unsure)
        yield f"most, chosen, {unsure is None}", partial(as_tensor, chosen.clone)
    row = ErrorNumber.joined([total[:2], other[:2]], torch.cat)
    for function in (elementary.softmax, elementary.logsumexp, elementary.log_softmax):
        yield f"most, {function.__name__}", partial(function, row, 0)
        yield f"most, all, {function.__name__}", partial(function, total[:2], 0)


def helpers() -> Cases:
    """Yield what the helpers of the bounds return."""
    constants = (rounding.unit_roundoff, rounding.overflow_threshold, rounding.ceiling)
    for dtype in (F32, BF16, F16, F64):
        for function in (*constants, rounding.half_subnormal, rounding.underflow):
            yield f"{function.__name__} of {dtype}", partial(_error, function, dtype)
        for one in (0.0, 2.0**-24, 2.0**-133, 2.0**-149, 2.0**-150, 0.5, 1.0):
            largest = plain(
                0.0, one, 100 * one, one * 2.0**8, one * 2.0**11, one * 2.0**24, one * (2.0**24 + 1), one * 2.0**53
            )
            yield f"representable, {one}, {dtype}", partial(as_tensor, quantum.representable, largest, one, dtype)
    for values in ((0.5, 0.75), (3.0,), (0.0,), (0.0, 0.0, 2.0**-149), (1e300, 2.0**40), (INF, 1.0), (NAN,), (1 / 3,), ()):
        yield f"quantum of {values}", partial(as_tensor, quantum.quantum_of, plain(*values))
    for p, q in ((0.5, 0.25), (0.0, 0.25), (0.5, 0.0)):
        yield f"quantum of {p} {q}", partial(as_tensor, quantum.product_quantum, p, q)
    strange = plain(INF, -INF, NAN, 0.0, -2.0, 2.0**-1074)
    yield "magnitude", partial(as_tensor, rounding.magnitude, strange)
    yield "nan to inf", partial(as_tensor, rounding.nan_to_inf, strange)
    for values in ((1.0,), (1.0, INF), (-INF, 0.0), (NAN, 1.0), ()):
        yield f"all finite {values}", partial(as_tensor, rounding.all_finite, plain(*values))
    for sizes in ((1.0,), (2.0**-60,), (2.0**-61,), (0.0, 2.0**-61), (0.0, 2.0**-60), (0.0, 1.0), (0.0,)):
        yield f"near {sizes}", partial(as_tensor, reassociation.near, plain(*sizes), min(sizes))
    for inside in (((), (plain(1.0, -3.0), plain(2.0, 0.5))), ((plain(4.0),) * 3, ())):
        pair = [_sum_of(value, *terms) for value, terms in zip((plain(3.0, -1.0), plain(-2.0, INF)), inside, strict=True)]
        total, named = addends.of_sum(*pair), [bool(terms) for terms in inside]
        yield f"beyond {named}", partial(as_tensor, lambda total: total().beyond, total)
        yield f"magnitudes {named}", partial(as_tensor, addends.magnitudes, total)
    yield from _mosts()
    for variance in (plain(1.0, 4.0, 0.0, INF), plain(0.0, 0.0, 1e-3, 9.0), torch.tensor(4.0, dtype=F64)):
        for error in (plain(1.0, 2.0, 0.0, 0.5), plain(1.0, INF, 0.0, 2.0)):
            row = ErrorNumber(plain(1.0, -3.0, 0.0, 2.0), error, F32)
            judged = row if variance.dim() else row[1]
            yield f"variance {variance.tolist()}, {error.tolist()}", partial(as_tensor, sampling._variance, judged, variance)
            yield f"far {variance.tolist()}, {error.tolist()}", partial(as_tensor, sampling._far, judged, variance)
    for dtype in (F32, F64):
        few = ErrorNumber(plain(0.0, 2.0**-481, 2.0**-480, -(2.0**-479), 1.0), plain(0, 0, 1e-3, 0, 2e-6), dtype)
        yield f"too small {dtype}", partial(as_tensor, sampling._too_small, few)
        yield f"wide {dtype}", partial(as_tensor, sampling._wide, few)
        yield f"stored {dtype}", partial(as_tensor, sampling._stored, few)
    yield "vanishing divisors", _vanishing
    for at in (0, 1, 2, 5 << 32):
        yield f"mixed {at}", partial(as_tensor, sampling._mixed, at)
    yield from _conversions()
    yield from _corners()
    large = [number(kind, (4, 4), 3 * at, F32) for kind in ("large", "not finite") for at in range(2)]
    for at, (a, b) in enumerate(itertools.product(large, large)):
        value = a.value * b.value
        yield f"product {at}", partial(_error_of, operation_error.nonfinite_product_error, value, a, b)
        yield f"matrix product {at}", partial(_error_of, operation_error.nonfinite_matmul_error, a.value @ b.value, a, b)


def _conversions() -> Cases:
    """Yield numbers of each class in another dtype, also at the very ends of its range."""
    for first, second in itertools.product((F32, BF16, F16, F64), repeat=2):
        limit, normal = rounding.ceiling(second), torch.finfo(second).smallest_normal
        edge = plain(limit, -limit, limit * (1 + 2.0**-50), 0.5 * limit, normal, normal * (1 - 2.0**-50), 0.0, normal / 2)
        for kind in ("error", "deviation", "underflow"):
            word = f"{kind} from {first} to {second}"
            for operands in FINITE if kind == "deviation" else OPERANDS:
                yield f"{word}, {operands}", partial(number(operands, (12,), 0, first, KINDS[kind]).to, second)
            if F32 in {first, second}:
                for error in (0.0, 2.0**-149, normal / 2, limit / 2):
                    at_edge = KINDS[kind](edge, torch.full_like(edge, error), first)
                    yield f"{word}, edge {error}", partial(at_edge.to, second)
                    yield f"{word}, edge of products {error}", partial(at_edge.__mul__, 0.75)


def _flags(one: ErrorNumber) -> list[Any]:
    return [one, plain(one.quantum, one.finite, one.errorless)]


def _corners() -> Cases:
    """Yield what happens at corners that no list of operands reaches."""
    half = with_factors(ErrorNumber, "float16")
    edge = rounding.ceiling(F16) * plain(0.999, 1.0, 1.0001, 0.99951, 2.0)
    for error in (0.0, 1.0, 8.0):
        factor = half(edge[None], torch.full((1, 5), error, dtype=F64), F32)
        yield (
            f"factors near the end of float16, {error}",
            partial(factor.__matmul__, half.exact(torch.eye(5, dtype=F64), F32)),
        )
    for values in (plain(0.5, 0.75), plain(1 / 3, INF), plain()):
        for flag in (False, True):
            for make in (ErrorNumber.exact, ErrorNumber.stored):
                word = f"{make.__name__} {values.tolist()}, {flag}"
                yield (
                    word,
                    partial(lambda values, flag, make: _flags(make(values, F32, with_quantum=flag)), values, flag, make),
                )
    none = ErrorNumber.exact(torch.zeros(0, 4, dtype=F64), F32)
    for word, call in {
        **{"product": lambda: none * none, "sum": lambda: none.sum(1), "to": lambda: none.to(BF16).to(F32)},
        **{
            "power": lambda: elementary.power(none, 1.5),
            "matmul": lambda: none @ none.mT,
            "softmax": none.sigmoid,
        },
    }.items():
        yield f"nothing, {word}", call
    mixed = [number("exact", (3, 4), 0, F32), number("not finite", (3, 4), 0, F32)]
    yield "joined, not finite", lambda: ErrorNumber.joined(mixed, torch.cat) * 3.0
    yield "joined, not finite first", lambda: ErrorNumber.joined(mixed[::-1], torch.cat) @ mixed[0].mT
    yield "exact times not finite", lambda: mixed[0] @ mixed[1].mT
    near = ErrorNumber(plain(1e-3, -0.5, 0.0, 2.0, 1.0), plain(1e-3, 1.0, 1.0, 0.5, 1.0), F32)
    for exponent in (-3.5, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 4.0, 5.0):
        yield f"power {exponent}", partial(elementary.power, near, exponent)
    held = ErrorNumber.exact(plain(1.0), F32)._coerce(0.1)
    ends = plain(0.1 - float(held.error), 0.1 + float(held.error), 0.1, 0.11, 0.05)
    for error in (0.0, 0.5 * float(held.error)):
        yield (
            f"bounded at an end, {error}",
            partial(elementary.bounded, ErrorNumber(ends, torch.full_like(ends, error), F32), 0.1, 0.11),
        )
    small = ErrorNumber.exact(plain(0.0, -80.0, -86.0, -88.0, -95.0, -104.0, -750.0), F32)
    for function in (elementary.softmax, elementary.log_softmax, elementary.logsumexp):
        yield f"{function.__name__} of small shares", partial(function, small, 0)
    tied = ErrorNumber(plain(1.0, 0.5, 0.5, 2.0), plain(0.0, 0.5, 0.25, 1.0), F32)
    yield "largest at a tie", partial(elementary.largest, tied, 0)
    yield "larger at a tie", partial(elementary.larger, tied, ErrorNumber.exact(plain(1.0, 1.0, 1.0, 1.0), F32))
    for a, b in itertools.product((2.0**-127, 2.0**-126, 2.0**-103, 2.0**-102, 2.0**-101, 2.0**-51, 1.0), repeat=2):
        yield f"normal {a} {b}", partial(as_tensor, sums._normal, a, b, 2.0**-126)
    for name in ("a b", "a @ b", "sigmoid", "bfloat16", "lost", "a + b + c"):
        yield f"in the forward: {name}", partial(_in_forward, name)
    of_nan = _sum_of(plain(NAN, 1.0), *(plain(NAN, 7.0),) * 2)
    total = addends.of_sum(of_nan, ErrorNumber.exact(plain(2.0, 5.0), F32))
    yield "beyond NaN", partial(as_tensor, lambda total: total().beyond, total)


def _sum_of(value: torch.Tensor, *terms: torch.Tensor) -> ErrorNumber:
    """Return a number that is said to be a sum of terms."""
    found, *rest = (ErrorNumber.exact(one, F32) for one in (*terms, value)[: max(1, len(terms))])
    for one in rest:
        found.addends = addends.of_sum(found, one)
    found.value = value
    return found


def _in_forward(name: str) -> Any:
    formula, shapes = FORMULAS[name]
    with UnderflowNumber.forward():
        given = [number("small", shape, 5 * place, F32, UnderflowNumber) for place, shape in enumerate(shapes)]
        return formula(*given)


def _vanishing() -> Tensor:
    divisors = Divisors()
    for at in range(sampling.RUNS):
        divisors.start()
        divisors.add(
            divisors.divide(),
            plain(1.0, 1.0, 0.0, 0.1, INF, 0.1, 1.0, 1.0) + plain(1e-3, 0.12, 0.0, 0.2, 0.0, 1e-9, 0.2, 0.126) * (-1) ** at,
        )
    divisors.start()
    value = plain(1.0, 1.0, 0.0, 0.1, INF, 0.1, 1.0, 1.0)
    one = running(UnmovedNumber, alike=True, divisors=divisors).exact(value, F32).divisor()
    return torch.cat([one.error.isinf().double(), torch.as_tensor(one.value)])


def _error(function: Callable[[torch.dtype], float], dtype: torch.dtype) -> ErrorNumber:
    return ErrorNumber(plain(1.0), plain(function(dtype)), F32)


def _error_of(function: Callable[..., Tensor | None], *arguments: Any) -> ErrorNumber:
    error = function(*arguments)
    assert error is not None, "one of the operands has an error"
    return ErrorNumber(error, error, F32)


SECTIONS: Mapping[str, Callable[[], Cases]] = {"helpers": helpers}
