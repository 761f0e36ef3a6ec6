"""The operators that come with the package. An operator is a folder or a file here, and an entry below.

In: nothing. Out: records in `mhc.operator.OPERATORS`. Open `rms_norm.py` for a short one, `mhc_pre/table.py` for all that an
operator may have.
"""

from mhc.operator import register
from mhc.operators.mhc_pre.table import PRE

register(PRE)  # before the others: reports list outputs in the order of OPERATORS

from mhc.operators import (  # noqa: E402
    attention,
    cross_entropy,
    fp8_block_quant,
    geglu,
    layer_norm,
    linear_cross_entropy,
    mhc_layer,
    mhc_post,
    mhc_sinkhorn,
    rms_norm,
    rope,
    softmax,
    swiglu,
    topk_softmax,
)

MODULES = (
    mhc_post, mhc_sinkhorn, rms_norm, layer_norm, softmax, swiglu, geglu, rope, attention, cross_entropy,
    linear_cross_entropy, fp8_block_quant, topk_softmax, mhc_layer,
)  # fmt: skip
"""The operators that are plain functions, each a module with its `IMPLEMENTATIONS`."""
for _module in MODULES:
    for _one in _module.IMPLEMENTATIONS:
        register(_one.table)
