"""Take the Sinkhorn iteration of each library for an implementation of the paper's, to compare any two of them.

    python -m mhc.fuzz --cases 20 --impl docs/examples/mhc_variants.py:LIGER --against docs/examples/mhc_variants.py:PAPER

Ends with status 1 and the case where two differ. docs/results/field/mhc-variants.md has the table.
"""

from functools import partial

from mhc import Implementation
from mhc.operators.mhc_sinkhorn import mhc_sinkhorn, mhc_sinkhorn_liger, mhc_sinkhorn_te, mhc_sinkhorn_tilekernels

EPS = 1e-6
"""That of Liger-Kernel, SGLang, TileKernels and TileLang's example."""


def _variant(name, function):
    return Implementation(name=name, operator="mhc_sinkhorn", function=function)


PAPER = _variant("paper", mhc_sinkhorn.function)  # and the backward of TileLang's example
LIGER = _variant("liger", partial(mhc_sinkhorn_liger.function, eps=EPS))  # and SGLang, CANN
TILEKERNELS = _variant("tilekernels", partial(mhc_sinkhorn_tilekernels.function, eps=EPS))
TE = _variant("te", mhc_sinkhorn_te.function)
