"""Where the tests run: `pytest --device`. Set by conftest before anything imports Triton or starts CUDA.

Nothing of the project is imported here: jaxtyping checks only what is imported after conftest.
"""

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from mhc import Implementation

CHOICES = ("auto", "cpu", "cuda")

_INTERPRET = "TRITON_INTERPRET"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass
class Asked:
    """The device of the command line, set once in each process."""

    device: str = "auto"


ASKED = Asked()


def settle(device: str) -> None:
    """Set the device, and the environment of this process and of those it starts."""
    prepare(device, os.environ)
    ASKED.device = device


def prepare(asked: str, variables: MutableMapping[str, str]) -> None:
    """Set the environment variables that `--device` needs.

    CUDA reads its variable when it starts, Triton its own when it is imported; without a GPU Triton's kernels run in the
    interpreter, so that `triton-interpreted` is tested in-process.

    Raises:
        pytest.UsageError: CUDA is asked for, and there is none.
    """
    if asked == "cpu":
        variables[_VISIBLE] = ""
    if asked == "cpu" or not torch.cuda.is_available():
        if asked == "cuda":
            raise pytest.UsageError("--device cuda: PyTorch sees no CUDA device here")
        variables[_INTERPRET] = "1"
    elif asked == "cuda":
        variables.pop(_INTERPRET, None)


@dataclass(frozen=True)
class Place:
    """The device that an implementation is tested on, or why it is tested on none."""

    device: str = ""
    reason: str = ""


def place(implementation: "Implementation", asked: str, *, gpu: bool, variables: Mapping[str, str]) -> Place:
    """Return where an implementation is tested; `auto` is the CPU for everything that runs there, a GPU for the rest.

    One that lacks a package is tested nowhere, but in continuous integration, where its tests then fail.
    """
    lacks = implementation.unavailable()
    if lacks is not None and "CI" not in variables:
        return Place(reason=lacks)
    if asked == "cuda":
        return Place("cuda") if "cuda" in implementation.devices else Place(reason="runs on the CPU only")
    if "cpu" not in implementation.devices:
        absent = "--device cpu" if asked == "cpu" else "PyTorch sees no GPU"
        return Place("cuda") if gpu else Place(reason=f"runs on a GPU only, {absent}")
    unset = [f"{name}={value}" for name, value in implementation.env.items() if variables.get(name) != value]
    return Place(reason=f"needs {' '.join(unset)}, tested through workers") if unset else Place("cpu")


def header(implementations: Iterable["Implementation"], asked: str, *, gpu: bool, variables: Mapping[str, str]) -> list[str]:
    """Return pytest's header: the device, which implementations are tested, which are not and why."""
    lines = [f"device: {asked} ({torch.cuda.get_device_name() if gpu else 'no GPU'})"]
    groups: dict[str, list[str]] = {}
    for one in implementations:
        where = place(one, asked, gpu=gpu, variables=variables)
        what = f"tested on {where.device}" if where.device else f"not tested ({where.reason})"
        groups.setdefault(what, []).append(one.name)
    return [*lines, *(f"{what}: {', '.join(names)}" for what, names in sorted(groups.items(), reverse=True))]
