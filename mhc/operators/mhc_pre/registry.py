"""The implementations of mHC Forward Pre that come with the package, as an explicit tuple, fastest first."""

from mhc.implementation import Implementation
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG, TILELANG_C
from mhc.operators.mhc_pre.tir.implementations import TIR
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.operators.mhc_pre.triton.implementations import TRITON, TRITON_INTERPRETED

IMPLEMENTATIONS: tuple[Implementation, ...] = (TRITON, TILELANG, MANUAL, GOLDEN, TILELANG_C, TIR, TRITON_INTERPRETED)
