"""Cases of tests/oracles/recorded.py on numbers themselves, of each class: sums that repeat, products near underflow,
factors of fewer digits, quanta, moves of sampled numbers.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary, repeated_terms
from mhc.oracles.bounds import sampled_number as sampling
from mhc.oracles.bounds.deviation_number import DeviationNumber, TruncatingDeviationNumber
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import Reading, read, with_factors
from mhc.oracles.bounds.sampled_number import Divisors, SampledDeviationNumber, SampledNumber
from mhc.oracles.bounds.underflow_number import UnderflowNumber
from tests.oracles.recorded import INF, OPERANDS, Cases, number
from tests.oracles.test_aten_rules import BF16, F16, F32, F64

Shape = tuple[int, ...]
ONE, TWO, THREE = ((3, 4),), ((3, 4),) * 2, ((3, 4),) * 3
FORMULAS: Mapping[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    # what a formula may do with numbers, and the shapes of its operands
    "a + b": (lambda a, b: a + b, TWO),
    "a + row": (lambda a, b: a + b, ((3, 4), (4,))),
    "a + b + c": (lambda a, b, c: a + b + c, THREE),
    "a - b - c": (lambda a, b, c: a - b - c, THREE),
    "(a - b) - (b - a)": (lambda a, b: (a - b) - (b - a), TWO),
    "a - (b - (a - c))": (lambda a, b, c: (a - (b - (a - c))).reshape(12), THREE),
    "(a + b) 3 + c": (lambda a, b, c: (a + b) * 3.0 + c, THREE),
    "a b": (lambda a, b: a * b, TWO),
    "a row": (lambda a, b: a * b, ((3, 4), (4,))),
    "a b c": (lambda a, b, c: a * b * c, THREE),
    "a b + b c": (lambda a, b, c: a * b + b * c, THREE),
    "(a b)(b c)": (lambda a, b, c: (a * b) * (b * c), THREE),
    "(a b + c) a": (lambda a, b, c: (a * b + c) * a, THREE),
    "(a b).sum * row": (lambda a, b: (a * b).sum(0) * b[0], TWO),
    "0.1 a": (lambda a: a * 0.1, ONE),
    "-2 a": (lambda a: a * -2.0, ONE),
    "a / 4": (lambda a: a / 4.0, ONE),
    "a / 3": (lambda a: a / 3.0, ONE),
    "a / -3": (lambda a: a / -3.0, ONE),
    "1 - a": (lambda a: 1.0 - a, ONE),
    "a + inf": (lambda a: a + INF, ONE),
    "-a": (lambda a: -a, ONE),
    "a**3": (lambda a: a**3, ONE),
    "a**1": (lambda a: a**1, ONE),
    "square": (lambda a: a.square(), ONE),
    "rsqrt": (lambda a: a.square().rsqrt(), ONE),
    "rsqrt of a": (lambda a: a.rsqrt(), ONE),
    "sigmoid": (lambda a: a.sigmoid(), ONE),
    "sum": (lambda a: a.sum(1), ONE),
    "mean": (lambda a: a.mean(0), ONE),
    "sum of sum": (lambda a, b: (a + b).sum(0), TWO),
    "a @ b": (lambda a, b: a @ b, ((3, 4), (4, 2))),
    "a @ b batched": (lambda a, b: a @ b.unsqueeze(1), ((2, 3, 4), (2, 4, 2))),
    "a @ b @ c": (lambda a, b, c: a @ b @ c, ((3, 4), (4, 2), (2, 3))),
    "(a b) @ c": (lambda a, b, c: (a * b) @ c, ((3, 4), (3, 4), (4, 2))),
    "a @ (b c)": (lambda a, b, c: a @ (b * c), ((3, 4), (4, 2), (4, 2))),
    "(a b) @ (c c)": (lambda a, b, c: (a * b) @ (c * c), ((3, 4), (3, 4), (4, 2))),
    "(a @ b) c summed": (lambda a, b, c: ((a @ b) * c).sum(0), ((3, 4), (4, 2), (3, 2))),
    "c (a @ b) summed": (lambda a, b, c: (c * (a @ b)).mT.sum(1), ((3, 4), (4, 2), (3, 2))),
    "(a - b) @ c": (lambda a, b, c: (a - b) @ c, ((3, 4), (3, 4), (4, 2))),
    "c @ (a - b)": (lambda a, b, c: c @ (a - b), ((4, 2), (4, 2), (3, 4))),
    "(a - b) c": (lambda a, b, c: (a - b) * c, THREE),
    "(a - b) / 3": (lambda a, b: (a - b) / 3.0, TWO),
    "0.9 a + 0.1 b": (lambda a, b: elementary.plus(a * 0.9, b * 0.1), TWO),
    "0.9 a + 0.2 b": (lambda a, b: elementary.plus(a * 0.9, b * 0.2), TWO),
    "bfloat16": (lambda a: a.to(BF16), ONE),
    "float16": (lambda a: a.to(F16), ONE),
    "bfloat16 and back": (lambda a, b: (a * b).to(BF16).to(F32) * b, TWO),
    "float64": (lambda a: (a.to(F64) * 3.0).to(F32), ONE),
    "joined": (lambda a, b: torch.cat([a * b, b, a @ b.mT], 1), TWO),
    "joined twice": (lambda a, b: torch.cat([a * b, a + b, b])[1:, None] * 3.0, TWO),
    "lost": (lambda a: a.lost(torch.tensor([0.0, 1e-30, 0.5, INF], dtype=F64)), ONE),
    "quotient": (elementary.quotient, TWO),
    "softmax": (lambda a: elementary.softmax(a, 1), ONE),
    "running sums": (lambda a: elementary.cumulative(a, 1), ONE),
    "joined sums": (lambda a, b, c: torch.cat([a + b, c]) + torch.cat([b, c]), THREE),
    "sums converted": (lambda a, b: ((a + b) * b[0]).to(BF16).to(F32) + b, TWO),
    "chosen": (lambda a, b: elementary.chosen(a, b, a.value > 0, b.value > 0), TWO),
}


def plain(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def alternating(length: int) -> Tensor:
    return torch.arange(length, dtype=F64).remainder(2) * 2 - 1


def distinct(length: int) -> Tensor:
    """Return numbers of which none is another's."""
    return (torch.arange(length, dtype=F64) * 0.6180339887).remainder(1.0) + 0.25


ROWS: Mapping[str, Callable[[int], Tensor]] = {
    "equal": lambda length: torch.full((length,), 0.3, dtype=F64),
    "alternating": alternating,
    "distinct": distinct,
    "half equal": lambda length: torch.cat([torch.full((length // 2,), 0.3, dtype=F64), distinct(length - length // 2)]),
    "zeros": lambda length: distinct(length) * (torch.arange(length) % 3 == 0),
    "period": lambda length: distinct(7).repeat(length // 7 + 1)[:length],
}
LENGTHS = (1, 2, 3, 36, 37, 40, 64, 65, 66, 128, 129, 132, 150, 400)
KINDS: Mapping[str, type[ErrorNumber]] = {
    **{"error": ErrorNumber, "deviation": DeviationNumber, "truncating": TruncatingDeviationNumber},
    **{"underflow": UnderflowNumber},
    **{f"{name} factors": with_factors(ErrorNumber, name) for name in ("tf32", "bfloat16", "float16")},
    **{f"{name} factors, underflow": with_factors(UnderflowNumber, name) for name in ("tf32", "bfloat16")},
}
FINITE = ("exact", "plain", "equal", "small")


def formulas() -> Cases:
    """Yield each formula on numbers of each class."""
    for kind, of in KINDS.items():
        for name, (formula, shapes) in FORMULAS.items():
            if "factors" in kind and "@" not in name:
                continue
            for operands in FINITE if "deviation" in kind or kind == "truncating" else OPERANDS:
                given = [number(operands, shape, 5 * place, F32, of) for place, shape in enumerate(shapes)]
                yield f"{kind}: {name}, {operands}", partial(_without_rule, formula, given)


def _without_rule(formula: Callable[..., Any], given: list[ErrorNumber]) -> Any:
    try:
        return formula(*given)
    except elementary.NoRule as missing:
        return str(missing)


def quanta() -> Cases:
    """Yield each formula on numbers with a quantum: exact where all terms are multiples of it below 2^24."""
    grids = {
        "halves": [0.5, -1.5, 2.0, 0.0, 3.5, -0.5, 1.0],
        "wide": [2.0**20, 0.5, -3.0, 2.0**12, 7.0, 0.0],
        "thirds": [1 / 3, 2.0, 0.0, -2.0],
    }
    for grid, values in grids.items():
        for factors in ("float32", "tf32", "bfloat16", "float16"):
            of = with_factors(ErrorNumber, factors)
            for name, (formula, shapes) in FORMULAS.items():
                if factors != "float32" and "@" not in name:
                    continue
                given = []
                for place, shape in enumerate(shapes):
                    cycle = [values[(at + 2 * place) % len(values)] for at in range(math.prod(shape))]
                    given.append(of.exact(plain(*cycle).reshape(shape), F32, with_quantum=True))
                yield f"{grid}, {factors}: {name}", partial(_with_quantum, formula, given)
    same = ErrorNumber.exact(plain(0.5, -1.5, 2.0, 0.0).reshape(2, 2), F32, with_quantum=True)
    less = ErrorNumber.exact(plain(0.5, -1.5, 2.0, 1.0).reshape(2, 2), F32, with_quantum=True)
    for at in range(4):  # the errors of a factor that a sum meets, which is 0 as its terms cancel
        factor = ErrorNumber(
            plain(1.0, -2.0, 0.25, 3.0).reshape(2, 2), (torch.arange(4) == at).double().reshape(2, 2) / 8, F32
        )
        for name, formula in {
            "(a - b) @ c": lambda a, b, c: (a - b) @ c,
            "c @ (a - b)": lambda a, b, c: c @ (a - b),
            "(a - b) c": lambda a, b, c: (a - b) * c,
            "c (a - b) / 3": lambda a, b, c: c * (a - b) / 3.0,
            "c / (a - b)": lambda a, b, c: elementary.quotient(c, a - b),
            "(a - b) / c": lambda a, b, c: elementary.quotient(a - b, c),
            "((a - b) a) c": lambda a, b, c: ((a - b) * a) * c,
            "joined": lambda a, b, c: (a - b).to(F64).to(F32)[0] * c,
        }.items():
            yield f"cancelled {at}: {name}, all", partial(_with_quantum, formula, [same, same, factor])
            yield f"cancelled {at}: {name}, some", partial(_with_quantum, formula, [same, less, factor])


def _with_quantum(formula: Callable[..., Any], given: list[ErrorNumber]) -> Any:
    found = formula(*given)
    cancelled = torch.zeros(()) if found.cancelled is None else found.cancelled
    return [found, plain(found.quantum), cancelled]


def repeats() -> Cases:
    """Yield sums and matrix products of rows of many lengths, with repeats and without."""
    for name, row in ROWS.items():
        for length in LENGTHS:
            value = row(length)
            for of in (ErrorNumber, TruncatingDeviationNumber):
                one = of.exact(torch.stack([value, value * distinct(length)]), F32)
                word = f"{of.__name__}: {name}, {length}"
                yield f"{word}, sum", partial(one.sum, 1)
                yield f"{word}, over rows", partial(_over_rows, one)
                yield f"{word}, product", partial(_product, one, value)
            rows = ErrorNumber.exact(torch.stack([value, 3 * value]), F32)
            yield f"{name}, {length}, softmax of rows", partial(elementary.softmax, rows, 1)
            yield f"{name}, {length}, log softmax of rows", partial(elementary.log_softmax, rows, 1)
            yield f"{name}, {length}, softmax", partial(elementary.softmax, ErrorNumber.exact(value, F32), 0)
            yield f"{name}, {length}, running", partial(elementary.cumulative, ErrorNumber.exact(value[None], F32), 1)
            yield f"{name}, {length}, longest", partial(as_tensor, repeated_terms.longest, value[None], 1)
            yield f"{name}, {length}, repeated", partial(as_tensor, repeated_terms.repeated, torch.stack([value, -value]), 1)


def _over_rows(one: ErrorNumber) -> ErrorNumber:
    return one.mT.sum(0)


def _product(one: ErrorNumber, value: Tensor) -> ErrorNumber:
    product: ErrorNumber = one @ type(one).exact(torch.stack([value.abs(), distinct(len(value))]).mT, F32)
    return product


def as_tensor(function: Callable[..., Tensor | float | None], *arguments: Any) -> Tensor:
    found = function(*arguments)
    return torch.tensor(-1.0) if found is None else torch.as_tensor(found, dtype=F64)


def running(kind: type[SampledNumber], *, alike: bool, **more: Any) -> type[SampledNumber]:
    """Return a class of numbers for one run."""
    own = {"__slots__": (), "operations": itertools.count(5 << 32), "alike": alike, "divisors": Divisors(), **more}
    return type("Run", (kind,), own)


def sampled() -> Cases:
    """Yield how far sampled numbers move in one run."""
    for operands in FINITE:
        for name, (formula, shapes) in FORMULAS.items():
            for kind in (SampledNumber, SampledDeviationNumber):
                yield f"{kind.__name__}: {name}, {operands}", partial(_moves, kind, operands, formula, shapes)


def _moves(kind: type[SampledNumber], operands: str, formula: Callable[..., Any], shapes: tuple[Shape, ...]) -> Any:
    found = []
    for alike in (True, False):
        of = running(kind, alike=alike)
        given, exact = (
            [cls.exact(number(operands, shape, 5 * place, F32).value, F32) for place, shape in enumerate(shapes)]
            for cls in (of, ErrorNumber)
        )
        moved, still = formula(*given), formula(*exact)
        found += [torch.nan_to_num(moved.value - still.value), moved.error]
    return [ErrorNumber(one, one, F32) for one in found]


def loop(a: Tensor) -> Tensor:
    """Divide by its own sums, again and again: most errors cancel, and a composed bound does not see it."""
    m = a.exp()
    for _ in range(3):
        m = m / m.sum(-1, keepdim=True)
        m = m / m.sum(-2, keepdim=True)
    return m


SAMPLED: Mapping[str, tuple[Callable[..., Any], Tensor]] = {
    "loop": (loop, plain(0.5, -1.0, 2.0, 0.25, 1.5, -0.75, 0.0, 3.0, 1.0).reshape(3, 3)),
    "differences": (lambda a: (a * a - (a - 1) * (a + 1)) * a.sum(), plain(3.0, 0.5, -7.0, 40.0).reshape(2, 2)),
    "may vanish": (lambda a: 1 / (a - (a * 3 + 1e-9) / 3), plain(0.1, 0.7, 12.0)),
    "one element": (lambda a: (a.exp().log() - a).exp(), plain(0.3).reshape(())),
    "bfloat16": (lambda a: loop(a).to(BF16), plain(0.5, -1.0, 2.0, 0.25).reshape(2, 2)),
    "equal": (loop, torch.full((3, 3), 0.3, dtype=F64)),
    "one of two": (lambda a: torch.cat([loop(a), a * 1.5]), plain(0.5, -1.0, 2.0, 0.25).reshape(2, 2)),
    "two results": (lambda a: (a * 1.5, loop(a)), plain(0.5, -1.0, 2.0, 0.25).reshape(2, 2)),
    "far from 0": (lambda a: (a - a.mean(-1, keepdim=True)).square().sum(-1), 1 + 2.0**-10 * plain(0.5, -1.0, 2.0, 0.25)),
    "decided": (lambda a: loop(a) * (loop(a) > loop(a.mT)), plain(0.5, -1.0, 2.0, 0.25).reshape(2, 2)),
    "infinite": (lambda a: loop(a * a * 1e19), plain(1.0, 0.1, 0.01, 7.0).reshape(2, 2)),
}


def tolerances() -> Cases:
    """Yield sampled tolerances, and sampled deviations, of functions."""
    for name, (function, value) in SAMPLED.items():
        yield name, partial(_sampled, function, value)
        for truncates in (False, True):
            yield f"{name}, truncates {truncates}", partial(_deviations, function, value, truncates)


def _reader(function: Callable[..., Any], value: Tensor) -> Callable[..., Reading]:
    return partial(_read, function, value)


def _read(function: Callable[..., Any], value: Tensor, kind: type[ErrorNumber]) -> Reading:
    found = function(value.float())
    results = found if isinstance(found, tuple) else (found,)
    differentiates = isinstance(found, tuple)
    upstream = [distinct(one.numel()).reshape(one.shape).to(one.dtype) for one in results] if differentiates else []
    with torch.enable_grad():
        return read(function, [value.float()], {}, upstream, number=kind)


def _sampled(function: Callable[..., Any], value: Tensor) -> Any:
    reader = _reader(function, value)
    found, changed = sampling.sampled(reader, reader(ErrorNumber))
    return [*found.outputs, *found.gradients, plain(*sorted(changed))]


def _deviations(function: Callable[..., Any], value: Tensor, truncates: bool) -> Any:
    reader = _reader(function, value)
    found = sampling.sampled_deviations(reader, reader(ErrorNumber), truncates=truncates)
    return [ErrorNumber(one, one, F32) for one in found if one is not None]


SECTIONS: Mapping[str, Callable[[], Cases]] = {
    "formulas": formulas,
    "quanta": quanta,
    "repeats": repeats,
    "sampled": sampled,
    "tolerances": tolerances,
}
