"""The implementations of mHC Forward Pre that come with the package, as an explicit tuple, fastest first."""

from mhc.implementation import Implementation
from mhc.pre.reference_impls import GOLDEN, MANUAL
from mhc.pre.tilelang_impls import TILELANG, TILELANG_C, TIR
from mhc.pre.triton_impls import TRITON, TRITON_INTERPRETED

IMPLEMENTATIONS: tuple[Implementation, ...] = (TRITON, TILELANG, MANUAL, GOLDEN, TILELANG_C, TIR, TRITON_INTERPRETED)
