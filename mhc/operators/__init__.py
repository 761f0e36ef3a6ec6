"""The operators that come with the package. An operator is a folder or a file here, and an entry below.

In: nothing. Out: records in `mhc.operator.OPERATORS`. Open `rms_norm.py` for a short one, `mhc_pre/table.py` for all that an
operator may have.
"""

from mhc.operator import register
from mhc.operators import attention, geglu, layer_norm, mhc_post, mhc_sinkhorn, rms_norm, rope, softmax, swiglu
from mhc.operators.mhc_pre.table import PRE

for _operator in (
    PRE,
    *(one.table for one in mhc_post.IMPLEMENTATIONS),
    *(one.table for one in mhc_sinkhorn.IMPLEMENTATIONS),
    *(module.IMPLEMENTATIONS[0].table for module in (rms_norm, layer_norm, softmax, swiglu, geglu, rope, attention)),
):
    register(_operator)
