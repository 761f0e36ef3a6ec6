"""The figures of tests/oracles/recorded_bounds.json: what each rule of `mhc.oracles.bounds` allows on fixed operands.

    python -m tests.oracles.recorded --write

writes the file anew, where a bound is meant to change; the change is then seen in review. A figure sums up one tensor of
errors: where they are 0, where they are infinite, and of the others the mean of their logarithms to base 2, in which later
elements count more, so that it changes with each of them. After it comes what is known of the number (it is finite, or
has no error), and last how many calls the bound takes, so that the quick ways stay quick. Operands are at the corners of a
rule: zeros and subnormals, equal elements, the ends of a range, and what is not finite.
"""

import argparse
import gc
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mhc.oracles import bounds
from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.deviation_number import DeviationNumber
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from tests.oracles.test_aten_rules import BF16, EXAMPLES, F16, F32, parts

FILE = Path(__file__).with_name("recorded_bounds.json")
COMMAND = "python -m tests.oracles.recorded --write"
Figures = Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]
"""By section, group and case, a figure for each result."""
Cases = Iterator[tuple[str, Callable[[], Any]]]
"""The name of a case, and a call that returns its results."""

INF, NAN = math.inf, math.nan
MAX = torch.finfo(F32).max
OPERANDS: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    # values and errors; both are repeated, and no two operands of a call begin at the same place
    "exact": ((0.75, -1.5, 0.0, 3.0, 0.3, -0.3, 2.5, 1.0, 0.3), (0.0,)),
    "plain": ((0.75, -1.5, 0.0, 3.1, 0.3, 1.0, -0.3, 2.5, -7.0), (1e-3, 0.0, 0.02, 1e-6, 0.0, 0.4, 1e-7)),
    "equal": ((1.0, 1.0, -1.0, 1.0, 2.0, 2.0, 1.0), (0.0, 0.0, 0.5, 0.0, 1.0, 0.5, 0.0, 0.25)),
    "small": (
        (0.0, 2.0**-149, 1e-40, -(2.0**-126), 2.0**-60, 0.99 * 2.0**-60, 1e-20, 1.0, -(2.0**-110), 1e-30, -1.0),
        (0.0, 0.0, 2.0**-149, 1e-40, 0.0, 2.0**-127, 1e-25, 2.0**-61),
    ),
    "large": (
        (MAX / 4, 1.0, -MAX / 4.001, 600.0, 1e19, -88.0, MAX, 1e38, -1e4, 104.0, -745.0, 1e30, 89.0, -3e4),
        (0.0, 1.0, 0.0, 1e-3, 1e31, 700.0, 0.0, 20.0, 0.5),
    ),
    "not finite": ((INF, 1.0, -INF, 0.0, NAN, -2.0, 0.5), (0.0, 0.0, 0.0, 1.0, INF, 0.0, 1.0, 0.5, 0.0, 3.0, INF)),
}
"""By name, the values and errors of operands."""


def operand(name: str, shape: Sequence[int], start: int, dtype: torch.dtype, kind: type[ErrorNumber] = ErrorNumber) -> Any:
    """Return a tensor that carries a number of `OPERANDS`."""
    return Carried(number(name, shape, start, dtype, kind))


def number(
    name: str, shape: Sequence[int], start: int, dtype: torch.dtype, kind: type[ErrorNumber] = ErrorNumber
) -> ErrorNumber:
    """Return a number with values and errors of `OPERANDS` from place `start`."""
    count, (values, errors) = math.prod(shape), OPERANDS[name]
    scale = torch.finfo(dtype).max / MAX if name == "large" and dtype == F16 else 1.0
    value, error = (
        torch.tensor([of[(start + at) % len(of)] * scale for at in range(count)], dtype=torch.float64).reshape(shape)
        for of in (values, errors)
    )
    if name == "exact":
        return kind.exact(value, dtype)
    return kind(value, error, dtype, finite=name != "not finite")


def figure(result: Any) -> str:
    """Return what is recorded of a result: of a number its errors, of a mask what is unsure, of a tensor its elements."""
    held = result.number if isinstance(result, Carried) else result
    if isinstance(held, str):
        return held
    shape = "x".join(map(str, held.value.shape if isinstance(held, (ErrorNumber, Mask)) else held.shape))
    if isinstance(held, Mask):
        return f"{shape} unsure {_places(held.unsure)}"
    if isinstance(held, DeviationNumber):
        return f"{shape} {errors_of(held.error)}; shared {errors_of(held.shared)}; {held.terms} terms{_known(held)}"
    if isinstance(held, ErrorNumber):
        return f"{shape} {errors_of(held.error.expand(held.shape))}{_known(held)}"
    assert isinstance(held, Tensor)
    return f"{shape} {' '.join(f'{one:.10g}' for one in held.double().flatten().tolist())}"


def _known(number: ErrorNumber) -> str:
    """Return what the number knows of itself, which chooses the quick way through what follows."""
    return "; finite" * number.finite + "; errorless" * number.errorless


def errors_of(error: Tensor) -> str:
    """Return the figure of a tensor of errors."""
    flat = error.double().flatten()
    zero, infinite = flat == 0, ~flat.isfinite()
    weights = torch.where(zero | infinite, 0.0, 1 + torch.arange(len(flat)).double() / max(1, len(flat)))
    logarithms = torch.where(weights > 0, flat.abs(), 1.0).log2()
    whole = float(weights.sum())
    words = [f"zero {_places(zero)}", f"infinite {_places(infinite)}"]
    kept = [word for word, there in zip(words, (zero, infinite), strict=True) if bool(there.any())]
    return ", ".join([*kept, *([f"2^{float((weights * logarithms).sum()) / whole:.10g}"] if whole else [])]) or "empty"


def _places(where: Tensor) -> str:
    """Return the places of True, as ranges."""
    flat = where.flatten().tolist()
    if all(flat):
        return "everywhere" if flat else "nowhere"
    places = [at for at, there in enumerate(flat) if there]
    begins = [at for at in places if at - 1 not in places]
    ends = [at for at in places if at + 1 not in places]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True)) or "nowhere"


UNCOUNTED = ("sampled", "tolerances")
"""Sections that take seconds, of which calls are not counted."""


def recorded(section: str, call: Callable[[], Any]) -> list[str]:
    """Return the figures of the results of a call of a section, and last how many calls that took."""
    try:
        if section in UNCOUNTED:
            return [figure(one) for one in parts(call()) if one is not None]
        call()  # fills what is kept by dtype, so that the count is the same in every order
        with counted() as calls:
            results = call()
    except UnreadableReference:
        return ["no rule"]
    return [*(figure(one) for one in parts(results) if one is not None), f"{sum(calls)} calls"]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count, in the list that it yields, the functions of PyTorch and of this project that `mhc.oracles.bounds` calls."""
    here, calls = str(Path(bounds.__file__).resolve().parent), [0]

    def count(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            caller, counts = frame.f_back, not frame.f_code.co_name.startswith("<")
        elif event == "c_call":
            of = getattr(function, "__self__", None)
            caller, counts = frame, isinstance(of, Tensor) or "torch" in str(getattr(of, "__name__", ""))
        else:
            return
        if counts and caller is not None and caller.f_code.co_filename.startswith(here):
            calls[0] += 1

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # what it ends may call functions in the name of a line of ours
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()


MOVES = set([*EXAMPLES][[*EXAMPLES].index("expand") :])
"""Operations that move elements, or make new ones: what they allow is that of their operands."""


def examples(kind: str) -> Cases:
    """Yield each example of an aten operation on a kind of operands."""
    for name, calls in EXAMPLES.items():
        if name in MOVES and kind not in {"plain", "not finite"}:
            continue
        for at, (function, draws) in enumerate(calls):
            shapes = [draw(torch.Generator()).shape for draw in draws]
            for dtype in (F32, F16 if kind in {"large", "equal", "exact"} else BF16)[: 1 if name in MOVES else 2]:
                given = [operand(kind, shape, 5 * place, dtype) for place, shape in enumerate(shapes)]
                yield f"{name} {at}, {str(dtype).removeprefix('torch.')}", partial(function, *given)


def sections() -> Mapping[str, Callable[[], Cases]]:
    """Return what yields the cases of each section."""
    from tests.oracles import recorded_aten, recorded_helpers, recorded_numbers  # noqa: PLC0415  they import this module

    on_each = {f"examples, {kind}": partial(examples, kind) for kind in OPERANDS}
    return {**on_each, **recorded_aten.SECTIONS, **recorded_numbers.SECTIONS, **recorded_helpers.SECTIONS}


def mode(section: str) -> AbstractContextManager[Any]:
    """Return the context of a section: in inference mode PyTorch does not rewrite operations into others first."""
    return torch.inference_mode() if section.startswith(("examples", "composed")) else torch.no_grad()


def group(case: str) -> str:
    """Return what the file names the line of a case by: its name up to the first comma."""
    return case.partition(", ")[0]


def text() -> str:
    """Return the file as it is now: a line for each group of cases."""
    lines = []
    for section, cases in sections().items():
        groups: dict[str, dict[str, list[str]]] = {}
        with mode(section):
            for case, call in cases():
                groups.setdefault(group(case), {})[case] = recorded(section, call)
        inner = [f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in groups.items()]
        lines.append(f" {json.dumps(section)}: {{\n" + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
