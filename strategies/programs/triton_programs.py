"""Draws Triton programs: inputs, indices, a list of operations, loops and branches, and stores. The simplest come first.

Each statement is evaluated as soon as it is drawn, and left out where it has no one meaning: nearly all programs are valid.
"""

from hypothesis import strategies as st

from mhc.programs.triton.edits import tidy
from mhc.programs.triton.grammar import TritonProgram
from mhc.strategies.programs.expressions import Draw
from mhc.strategies.programs.triton_blocks import Blocks
from mhc.strategies.programs.triton_operations import Operations


def triton_programs(kind: str, release: str) -> st.SearchStrategy[TritonProgram]:
    """Draw programs that Triton must give one meaning.

    Args:
        kind: of the target (`mhc.programs.targets`). release: of Triton; some operations came later.
    """
    return _programs(kind, release)


@st.composite
def _programs(draw: Draw, kind: str, release: str) -> TritonProgram:
    blocks = Blocks(draw, kind, release)
    blocks.inputs()
    operations = Operations(blocks)
    for _ in range(blocks.pick(1, 2, 3, 4, 6, 8, 12)):
        operations.statement(depth=0)
    blocks.outputs()
    return tidy(blocks.program())
