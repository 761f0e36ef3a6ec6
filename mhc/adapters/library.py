"""A library whose kernels are under test: how it is imported, what installs it, and records of its kernels."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.operator import Operator

_INTERPRETER = {"TRITON_INTERPRET": "1"}
_ALL = ("bfloat16", "float16", "float32")

IGNORED = -100
TARGET = "[T] int64 in 0..V or -100"
"""The label that losses ignore, and a tensor of labels."""


def log_sigmoid(v: Tensor) -> Tensor:
    """Return log(sigmoid(v)), smooth at 0."""
    return -torch.stack([torch.zeros_like(v), -v]).logsumexp(0)


def silu(v: Tensor) -> Tensor:
    """Return v sigmoid(v)."""
    return v * torch.sigmoid(v)


def token_losses(logits: Tensor, target: Tensor, softcap: float) -> Tensor:
    """Return the cross-entropy of each token, of softcap tanh(logits / softcap) where it is not 0; 0 where ignored."""
    v = logits.masked_fill((target == IGNORED).unsqueeze(-1), 0.0)
    v = softcap * torch.tanh(v / softcap) if softcap else v
    loss = v.logsumexp(-1) - v.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(target != IGNORED, loss, 0.0)


def not_compiled() -> None:
    """Have `torch.compile` compile nothing in this process: the formulas are tested, not the compiler."""
    torch.compiler.set_stance("force_eager")


def everything(case: Case) -> Literal[True]:
    """Return True: the library names no limit."""
    del case
    return True


@dataclass(frozen=True)
class Library:
    """A package with Triton kernels.

    Attributes:
        name: the part of a kernel's name before the colon, and of the extra that installs it.
        package: what Python imports.
    """

    name: str
    package: str

    def unavailable(self) -> str | None:
        """Return what to install, or None where the package can be imported."""
        there = importlib.util.find_spec(self.package) is not None
        return None if there else f"needs pip install 'mhc-fuzz[{self.name}]'"

    def load(self, module: str) -> Any:
        """Return a module of the package, imported now."""
        return importlib.import_module(f"{self.package}.{module}")

    def kernel(
        self,
        name: str,
        operator: str | Operator,
        supports: Callable[[Case], Literal[True] | Refused] = everything,
        **record: Any,
    ) -> tuple[Implementation, Implementation]:
        """Return `LIBRARY:NAME` in Triton's interpreter on the CPU, and `LIBRARY:NAME-compiled` on a GPU.

        The interpreter truncates float32 to bfloat16 and misreads subnormals of bfloat16, which is left to the GPU.
        """
        record = {"operator": operator, "supports": supports, "unavailable": self.unavailable, **record}
        dtypes, env = record.pop("dtypes", _ALL), record.pop("env", {})
        interpreted = {**env, **_INTERPRETER}
        on_cpu = tuple(one for one in dtypes if one != "bfloat16")
        return (
            Implementation(name=f"{self.name}:{name}", devices=("cpu",), dtypes=on_cpu, env=interpreted, **record),
            Implementation(name=f"{self.name}:{name}-compiled", devices=("cuda",), dtypes=dtypes, env=env, **record),
        )
