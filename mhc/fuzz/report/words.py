"""Text for people, from numbers and from what kernels say."""

import math
import shlex
from itertools import groupby
from pathlib import Path

import torch

from mhc.case import Case
from mhc.drawn_case import DrawnCase
from mhc.element import element_name
from mhc.fuzz.campaign.store import TICK
from mhc.operator import STORAGE_DTYPES, TensorSpec
from mhc.recipe import CONTIGUOUS, Recipe
from mhc.registry import built_in
from mhc.terminal import one_line, safe
from mhc.values import values_of

LONGEST = 2000
"""Characters of one message that a report shows; the finding's own file has it whole."""

_DETAILS = 400  # characters of what a case has

_LITERALS = 3  # of a tensor, that are listed
_VALUES = 8  # elements of a tensor of integers or booleans, whose values are all listed; or runs of equal ones
_RUNS_OF = 1 << 12  # elements at most of a tensor whose runs are listed
_STEPS = (1, 2, 3, 6, 12, 30, 60, 90, 180, 360, 720, 1440, 2880)


def bounded(text: str, longest: int = LONGEST) -> str:
    """Return the `safe` text, cut where it is too long, with a note of how much is missing."""
    whole = safe(text)
    return whole if len(whole) <= longest else f"{whole[:longest]}\n... {len(whole) - longest} more characters"


def cut(text: str, longest: int) -> str:
    """Return the `safe` text on one line, or only its beginning where the whole would not fit."""
    text = " ".join(safe(text).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def count(n: float) -> str:
    """Return a count with commas: 1,234,567."""
    return f"{n:,.0f}"


def short(n: int) -> str:
    """Return a count in four characters: 999, 1.2k, 57k, 3.1M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= 0.9995 * size:
            scaled = n / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return str(n)


def ratio(value: float) -> str:
    return "0" if value == 0 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a duration in at most two units: 12 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 1 and seconds > 0:
        return f"{seconds:.2g} s"
    for size, unit, below, least in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {least}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def step(span: float, most: int = 60) -> float:
    """Return the width of a bin of campaign time: ticks, as few as give at most `most` bins."""
    return TICK * next((one for one in _STEPS if span <= one * TICK * most), max(_STEPS[-1], span / TICK / most))


def ceiling(n: float) -> float:
    """Return the top of an axis: 1, 2 or 5 times a power of ten."""
    power = 1.0
    while power < n:
        for factor in (1, 2, 5):
            if factor * power >= n:
                return factor * power
        power *= 10
    return power


def plural(n: int, noun: str, several: str | None = None) -> str:
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {several or f'{noun}s'}"


def details(case: DrawnCase) -> str:
    """Return on one line what of a case its id does not tell: each tensor that is not all zero, has a layout or need not be
    there, pinned schedules, and the scalars, in the words of docs/cases.md; "" where there is nothing.
    """
    if not isinstance(case, Case):
        return ""
    storage, drawn = STORAGE_DTYPES[case.dtype], [spec for spec in case.table.drawn if case.has(spec.name)]
    tensors = [(spec.name, _tensor(case, spec, spec.dtype(storage))) for spec in drawn]
    pinned = [(name, [f"{key} = {value}" for key, value in one.items()]) for name, one in case.schedules.items()]
    parts = [f"{name}: {', '.join(words)}" for name, words in (*tensors, *pinned) if words]
    scalars = [f"{name} = {value}" for name, value in case.scalars.items()]
    return cut("; ".join([*parts, *([", ".join(scalars)] if scalars else [])]), _DETAILS)


def has_special(case: DrawnCase, subject: str = "") -> bool:
    """Return whether inputs that a declaration could call finite have NaN or infinities.

    Args:
        subject: what is wrong; an output does not depend on upstream gradients.
    """
    if not isinstance(case, Case) or not case.table.is_declared or case.table.is_packaged:
        return False
    storage = STORAGE_DTYPES[case.dtype]

    def special(spec: TensorSpec) -> bool:
        recipe, dtype = case.tensors[spec.name], spec.dtype(storage)
        numbers = torch.tensor([recipe.scale, *(value for _, value in recipe.literals)], dtype=torch.float64)
        return recipe.kind == "masked" or not bool(numbers.to(dtype).isfinite().all())

    of_output = subject in {spec.name for spec in case.table.outputs}
    drawn = case.table.inputs if of_output else case.table.drawn
    return any(special(spec) for spec in drawn if spec.floating and not spec.finite and case.has(spec.name))


def _tensor(case: Case, spec: TensorSpec, dtype: torch.dtype) -> list[str]:
    """Return what of a tensor is not as in the simplest one; of a few integers or booleans, or runs, with their values."""
    recipe = case.tensors[spec.name]
    words = _recipe(recipe, dtype) or (["zero"] if spec.optional else [])
    elements = math.prod(spec.shape(case.sizes))
    if spec.floating or recipe.kind == "zero" or not 0 < elements <= _RUNS_OF:
        return words
    values = values_of(recipe, spec, case.sizes, dtype).long()
    if elements <= _VALUES:
        return [f"{words[0]} {values.tolist()}", *words[1:]]
    runs = [f"{len(list(equal))} of {value}" for value, equal in groupby(values.flatten().tolist())]
    return [f"{words[0]} [{', '.join(runs)}]", *words[1:]] if len(runs) <= _VALUES else words


_KINDS = {"masked": "masked (runs of -inf)"}
"""Kinds whose names say too little."""


def _recipe(recipe: Recipe, dtype: torch.dtype) -> list[str]:
    """Return what of a recipe is not as in the simplest one, which is all zero and contiguous."""
    words = [] if recipe.kind == "zero" else [_KINDS.get(recipe.kind, recipe.kind)]
    words += [f"scale {_number(recipe.scale)}"] if recipe.scale != 1 else []
    words += [f"{name} {getattr(recipe, name)}" for name in ("period", "rows") if getattr(recipe, name)]
    for index, value in recipe.literals[:_LITERALS]:
        inside = not dtype.is_floating_point or math.isinf(value) or not torch.tensor(value, dtype=dtype).isinf()
        words.append(f"{element_name('', index)} = {_number(value)}{'' if inside else ', rounded to infinity'}")
    if len(recipe.literals) > _LITERALS:
        words.append(plural(len(recipe.literals) - _LITERALS, "other literal"))
    layout = recipe.layout
    for name in ("order", "expand", "step", "pad", "gap", "offset"):
        value = getattr(layout, name)
        if value != getattr(CONTIGUOUS, name):
            words.append(f"{name} ({', '.join(map(str, value))})" if isinstance(value, tuple) else f"{name} {value}")
    return words


def _number(value: float) -> str:
    """Return six digits of a number; nine where six make a rounder one of it, as of 3.99999976."""
    text = f"{value:g}"
    digits = text.partition("e")[0].replace(".", "").lstrip("-0")
    return text if not math.isfinite(value) or float(text) == value or len(digits) == 6 else f"{value:.9g}"


def replay_command(path: Path, device: str = "cpu", spec: str | None = None, against: str | None = None) -> str:
    """Return the command that shows a finding again. Without options, replay runs built-in implementations on the CPU.

    Args:
        spec, against: how its implementation, and what that was compared with, are named.
    """
    words = [f"python -m mhc.fuzz replay {shlex.quote(one_line(str(path)))}"]
    words += [f"--device {device}"] if device != "cpu" else []
    for option, name in (("--impl", spec), ("--against", against)):
        if name is not None and name not in built_in():
            words.append(f"{option} {shlex.quote(one_line(name))}")
    return " ".join(words)
