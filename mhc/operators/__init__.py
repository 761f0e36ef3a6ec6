"""The operators that come with the package. An operator is a folder here, and an entry below.

In: nothing. Out: records in `mhc.operator.OPERATORS`. Open `mhc_pre/table.py` for what an operator is.
"""

from mhc.operator import register
from mhc.operators.mhc_pre.table import PRE

for _operator in (PRE,):
    register(_operator)
