"""The forward of mHC Forward Pre as a TIR script, for the registry."""

from typing import Any, Literal

import torch

from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_pre.tilelang.implementations import compiles, supports


def _forward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.operators.mhc_pre.tir.forward import forward  # noqa: PLC0415  imported by its first call

    return forward(*arguments, **keywords)


def _supports(case: Case) -> Literal[True] | Refused:
    """Answer for the device that this machine has: a case does not say which one it is for."""
    return supports("cuda" if torch.cuda.is_available() else "c", case)


TIR = Implementation(
    name="tir",
    forward=_forward,
    devices=("cpu", "cuda"),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=_supports,
    compiles=compiles,
)
