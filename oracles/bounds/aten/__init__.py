"""The rules by which numbers pass through aten operations.

In: an operation and its arguments, with numbers in place of the tensors that carry one. Out: numbers. Arithmetic in bfloat16
and float16 is done in float32 and rounded once, as PyTorch does it. Open `registry.py` first.
"""

from mhc.oracles.bounds.aten import arithmetic, choices, complexes, moves, order, solves, sums, windows
from mhc.oracles.bounds.aten.registry import DECOMPOSED, RULES, UNWRITTEN

__all__ = [
    "DECOMPOSED",
    "RULES",
    "UNWRITTEN",
    "arithmetic",
    "choices",
    "complexes",
    "moves",
    "order",
    "solves",
    "sums",
    "windows",
]
