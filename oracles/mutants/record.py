"""What a mutant is: one edit of a module of a real implementation, and the bug class that it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Base:
    """A real implementation whose modules are edited.

    Attributes:
        package: where its modules are. module, attribute: where its `Implementation` is.
        quick: a case judged by every gate, some twenty runs, takes a second or two.
    """

    package: str
    module: str
    attribute: str
    quick: bool = True


BASES: Mapping[str, Base] = MappingProxyType(
    {
        "manual": Base(package="mhc.operators.mhc_pre", module="torch.implementations", attribute="MANUAL"),
        "triton": Base(
            package="mhc.operators.mhc_pre", module="triton.implementations", attribute="TRITON_INTERPRETED", quick=False
        ),
        "tilelang": Base(package="mhc.operators.mhc_pre", module="tilelang.implementations", attribute="TILELANG_C"),
    }
)
"""By kind: plain PyTorch, Triton in its interpreter, TileLang's `c` target. All run on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One edit of one module of a base.

    Attributes:
        name: unique, a Python identifier.
        base: a key of `BASES`. file: the module edited, without `.py`.
        bug: the bug class; on a clean variant, what differs.
        source: where that bug was seen, if it was.
        old, new: the edit; `old` must occur exactly once in the module.
        clean: a correct variant, which must not be flagged.
        hidden: a bug that x ~ N(0, 1), alpha about 1 or a tolerance of 1e-2 hides.
        emulated: what stands for a defect that only a GPU shows; empty for the defect itself.
        gap: why it survived when that was last looked into; empty where it should not.
        equivalent: why it breaks no promise, so that no oracle may flag it; empty where one must.
        device: what a hunt runs it on, "cpu" or "cuda".
    """

    name: str
    base: str
    file: str
    bug: str
    old: str
    new: str
    source: str = ""
    clean: bool = False
    hidden: bool = False
    emulated: str = ""
    gap: str = ""
    equivalent: str = ""
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class GpuOnly:
    """A bug class that cannot exist on the CPU: it is listed with the reason, and not counted."""

    bug: str
    reason: str
    source: str = ""
