"""How a compiler under test fails, and what runs a program that it compiled."""

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_QUOTED = re.compile("[\u2018'\"][^\u2018\u2019'\"]*[\u2019'\"]")  # a name, as g++ quotes it too
_LIMITS = re.compile(
    r"No valid warp partition|must be a multiple of micro_size_k|XOR-butterfly AllReduce"  # TileLang
    r"|OutOfResources"  # Triton
)
"""What a compiler says where a program asks for more than it has: no finding."""

Run = Callable[[Any], dict[str, np.ndarray[Any, Any]]]
"""Calls what was compiled of a program once, and returns its outputs by name.

It is given the program, or that with another seed: the inputs are those of this seed. It raises `CompileError` where an
element is written that may not be.
"""


def run_nothing(program: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return no outputs: what was compiled runs nowhere."""
    del program
    return {}


def synchronise() -> None:
    """Wait for the GPU. An error of the driver ends the process, since no kernel runs in it any more."""
    import torch  # noqa: PLC0415

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        end_process(str(error))


def end_process(why: str) -> None:
    """End this process as a crash does."""
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    os.abort()


class CompileError(Exception):
    """The compiler under test fails, or the C that it writes does not compile.

    Attributes:
        stage: build (the front end), lower, cc or run.
        is_limit: the compiler says that it has no such thing.
        kind: the first line of the message, without what differs from program to program.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage, self.kind = stage, _normalised(message)
        self.is_limit = _LIMITS.search(message) is not None


def _normalised(message: str) -> str:
    """Return a message without names, numbers and places."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    told = next((line for line in lines if "Check failed" in line or "error:" in line), lines[-1] if lines else "")
    told = re.sub(r"^.*?(Check failed|error:)", r"\1", told)
    told = _QUOTED.sub("_", told)
    return re.sub(r"\d+", "N", told)[:120].strip()
