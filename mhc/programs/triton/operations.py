"""All operations of the grammar by name."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.programs.triton.elementwise import ELEMENTWISE
from mhc.programs.triton.operation import Operation
from mhc.programs.triton.philox import NUMBERS
from mhc.programs.triton.reductions import REDUCTIONS
from mhc.programs.triton.shapes import SHAPES

TABLE: Mapping[str, Operation] = MappingProxyType({**ELEMENTWISE, **SHAPES, **REDUCTIONS, **NUMBERS})
"""Without `program_id` and `num_programs`, which depend on the block that runs."""
