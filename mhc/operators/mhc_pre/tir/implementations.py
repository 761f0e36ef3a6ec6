"""The forward of mHC Forward Pre as a TIR script, for the registry."""

from typing import Literal

import torch

from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_pre.calls import deferred
from mhc.operators.mhc_pre.tilelang.compile.dependencies import unusable
from mhc.operators.mhc_pre.tilelang.implementations import compiles, supports


def _supports(case: Case) -> Literal[True] | Refused:
    """Answer for the device that this machine has: a case does not say which one it is for."""
    return supports("cuda" if torch.cuda.is_available() else "c", case)


TIR = Implementation(
    name="tir",
    forward=deferred("mhc.operators.mhc_pre.tir.forward:forward"),
    devices=("cpu", "cuda"),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=_supports,
    compiles=compiles,
    unavailable=unusable,
)
