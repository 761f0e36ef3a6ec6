"""The implementations of mHC Forward Pre that come with the package, as an explicit tuple, fastest first."""

from mhc.implementation import Implementation
from mhc.pre.reference_impls import GOLDEN, MANUAL

IMPLEMENTATIONS: tuple[Implementation, ...] = (MANUAL, GOLDEN)
