"""mHC Forward Pre on TileLang: tile-level on CUDA, scalar on the CPU (the `c` target), and the forward as TIR script."""

from functools import partial
from typing import Any, Literal

from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.pre.tilelang_build import Counts, missing

# Each stage's module is imported by its first call: importing `mhc` touches neither TileLang nor its kernels.


def _forward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.tilelang_forward import forward  # noqa: PLC0415

    return forward(*arguments, **keywords)


def _backward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.tilelang_backward import backward  # noqa: PLC0415

    return backward(*arguments, **keywords)


def _serial_forward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.tilelang_serial import forward  # noqa: PLC0415

    return forward(*arguments, **keywords)


def _serial_backward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.tilelang_serial import backward  # noqa: PLC0415

    return backward(*arguments, **keywords)


def _tir_forward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.tir_forward import forward  # noqa: PLC0415

    return forward(*arguments, **keywords)


def _supports(target: str, case: Case) -> Literal[True] | Refused:
    del case
    reason = missing(target)
    return True if reason is None else Refused(reason)


def _compiles() -> int:
    return Counts.compiled


TILELANG = Implementation(
    name="tilelang",
    forward=_forward,
    backward=_backward,
    devices=("cuda",),
    dtypes=("bfloat16", "float16", "float32"),
    supports=partial(_supports, "cuda"),
    compiles=_compiles,
)
TILELANG_C = Implementation(
    name="tilelang-c",
    forward=_serial_forward,
    backward=_serial_backward,
    devices=("cpu",),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=partial(_supports, "c"),
    compiles=_compiles,
)
TIR = Implementation(
    name="tir",
    forward=_tir_forward,
    devices=("cpu",),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=partial(_supports, "c"),
)
