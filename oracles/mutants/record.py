"""Records of mutants: one edit of a real implementation's module, and the bug class that it represents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Base:
    """A real implementation whose modules are edited.

    Attributes:
        package: the package of its modules. module, attribute: the location of its `Implementation`.
        quick: judging a case by every gate, about twenty runs, takes at most two seconds.
        operator: what it computes.
    """

    package: str
    module: str
    attribute: str
    quick: bool = True
    operator: str = "mhc_pre"


def _kernel(operator: str, module: str, attribute: str = "KERNEL") -> Base:
    return Base(package="mhc.oracles.mutants.kernels", module=module, attribute=attribute, operator=operator)


BASES: Mapping[str, Base] = MappingProxyType(
    {
        "manual": Base(package="mhc.operators.mhc_pre", module="torch.implementations", attribute="MANUAL"),
        "triton": Base(
            package="mhc.operators.mhc_pre", module="triton.implementations", attribute="TRITON_INTERPRETED", quick=False
        ),
        "tilelang": Base(package="mhc.operators.mhc_pre", module="tilelang.implementations", attribute="TILELANG_C"),
        "rms_norm": _kernel("rms_norm", "rms_norm"),
        "layer_norm": _kernel("layer_norm", "layer_norm"),
        "softmax": _kernel("softmax", "softmax"),
        "swiglu": _kernel("swiglu", "gated", "SWIGLU"),
        "geglu": _kernel("geglu", "gated", "GEGLU"),
        "rope": _kernel("rope", "rope"),
        "attention": _kernel("attention", "attention"),
        "cross_entropy": _kernel("cross_entropy", "cross_entropy"),
        "linear_cross_entropy": _kernel("linear_cross_entropy", "cross_entropy", "LINEAR"),
        "topk_softmax": _kernel("topk_softmax", "topk_softmax"),
        "fp8_block_quant": _kernel("fp8_block_quant", "fp8_block_quant"),
        "mhc_post_transposed": _kernel("mhc_post_transposed", "mhc_family", "TRANSPOSED"),
        "mhc_layer": replace(_kernel("mhc_layer", "mhc_family", "LAYER"), quick=False),
        "mhc_post": Base(package="mhc.operators", module="by_hand", attribute="MHC_POST", operator="mhc_post"),
        "mhc_sinkhorn": Base(
            package="mhc.operators", module="by_hand", attribute="MHC_SINKHORN", quick=False, operator="mhc_sinkhorn"
        ),
    }
)
"""By kind: mHC pre in plain PyTorch, in Triton's interpreter and by TileLang's `c` target; other operators in plain PyTorch,
under their own names. All run on the CPU.
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One edit of one module of a base.

    Attributes:
        name: unique, a Python identifier.
        base: a key of `BASES`. file: the module edited, without `.py`.
        bug: the bug class; on a clean variant, what differs.
        source: where that bug was seen, if known.
        old, new: the edit; `old` must occur exactly once in the module.
        clean: a correct variant, which no oracle may report.
        hidden: inputs x ~ N(0, 1), alpha about 1 or a tolerance of 1e-2 hide the bug.
        emulated: how the edit emulates a defect that only a GPU shows; empty for the defect itself.
        gap: why it survives at present; empty where it must not.
        equivalent: why it breaks no promise, so that no oracle may report it; empty where one must.
        device: the device of its hunt, "cpu" or "cuda".
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
    """A bug class that cannot exist on the CPU: listed with the reason, and not counted."""

    bug: str
    reason: str
    source: str = ""
