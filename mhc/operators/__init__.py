"""The operators there are, as an explicit table. An operator is a folder here, and a line below."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.operator import Operator
from mhc.operators.mhc_pre.table import PRE

OPERATORS: Mapping[str, Operator] = MappingProxyType({PRE.name: PRE})
