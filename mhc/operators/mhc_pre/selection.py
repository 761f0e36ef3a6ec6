"""How a backend chooses a kernel: the record of a problem, a row of its table of kernels, and what reads the rows.

A backend has one table for each stage, in its own `selection.py`. The first row that supports a problem and is preferred
for it runs by default. A pinned mode whose row does not support a problem is refused with that row's reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch

from mhc.case import Case, ScheduleValue
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.device import Chip

TWO_TERMS_FROM = 1821
"""Two bfloat16 terms of a float32 leave 2**-16 sum|a||b|, under 6 sqrt(L) 2**-24 sum|a||b| for sums this long."""


@dataclass(frozen=True)
class Problem:
    """What decides which kernel runs: N tokens of n streams of width D, the dtype of x, the device."""

    N: int
    n: int
    D: int
    dtype: torch.dtype
    chip: Chip

    @property
    def M(self) -> int:
        """Return the number of rows of phi."""
        return self.n * self.n + 2 * self.n

    @property
    def K(self) -> int:
        """Return the number of columns of phi."""
        return self.n * self.D

    @property
    def type(self) -> str:
        """Return the dtype of x by name."""
        return str(self.dtype).removeprefix("torch.")


def problem_of(case: Case, chip: Chip) -> Problem:
    """Return the problem of a case; one without tokens is scheduled as one token."""
    return Problem(max(case.sizes["N"], 1), case.sizes["n"], case.sizes["D"], STORAGE_DTYPES[case.dtype], chip)


Support = Literal[True] | str
"""True, or why a kernel does not serve a problem, as the rest of a sentence that begins with the kernel's name."""


@dataclass(frozen=True)
class Kernel:
    """A row of a backend's table: one way to run a stage.

    Attributes:
        name: the mode that a schedule pins; TileLang's `whole`, `general` and `fixed` are pinned otherwise (see its table).
        supports: from a problem, True or why not. preferred: whether it is the default where it is supported.
        serves, reason: in words, for the documentation: what it supports, and where and why it is the default.
    """

    name: str
    supports: Callable[[Problem], Support]
    preferred: Callable[[Problem], bool]
    serves: str
    reason: str


def always(problem: Problem) -> Literal[True]:
    """Return True: a kernel without a limit, or one that is preferred wherever it is supported."""
    del problem
    return True


def never(problem: Problem) -> Literal[False]:
    """Return False: a kernel that runs only where it is pinned."""
    del problem
    return False


def default_kernel(kernels: Sequence[Kernel], problem: Problem) -> str:
    """Return the name of the first row that supports a problem and is preferred for it; the last rows take the rest."""
    return next(one.name for one in kernels if one.supports(problem) is True and one.preferred(problem))


def unsupported(kernels: Sequence[Kernel], name: str, problem: Problem) -> str | None:
    """Return why the kernel of a name does not serve a problem; None where it does."""
    answer = next(one for one in kernels if one.name == name).supports(problem)
    return None if answer is True else f"{name} {answer}"


def markdown(kernels: Sequence[Kernel]) -> str:
    """Return the table of the documentation, in the order in which the default is looked for."""
    rows = [f"| `{one.name}` | {one.serves} | {one.reason} |" for one in kernels]
    return "\n".join(["| mode | serves | is the default, where no row above is |", "|---|---|---|", *rows]) + "\n"


_S = TypeVar("_S", bound=Any)


def pinned(default: _S, stage: str, schedule: Mapping[str, ScheduleValue]) -> _S:
    """Return `default` with what `schedule` pins for the stage, "forward" or "backward"."""
    names = {f"{stage}_{field.name}": field.name for field in fields(default)}
    changes: dict[str, Any] = {names[key]: value for key, value in schedule.items() if key in names}
    return replace(default, **changes) if changes else default


def power_of_2(value: int, low: int, high: int) -> int:
    """Return the smallest power of two >= value, kept within low..high."""
    return min(max(1 << (max(value, 1) - 1).bit_length(), low), high)


def balanced_splits(columns: int, tiles: int, cores: int) -> int:
    """Return the programs for each block of columns that keep `cores` evenly busy.

    A program costs its tiles, two by two, and a start.
    """

    def cost(splits: int) -> float:
        return -(-columns * splits // cores) * (-(-tiles // (2 * splits)) * 2 + 4) + 0.01 * splits

    return min(range(1, max(2, min(16, tiles // 2 + 1))), key=cost)
