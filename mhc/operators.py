"""The operators there are, as an explicit table. A second operator is a folder beside `pre/` and a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.operator import Operator
from mhc.pre.table import PRE

OPERATORS: Mapping[str, Operator] = MappingProxyType({PRE.name: PRE})
