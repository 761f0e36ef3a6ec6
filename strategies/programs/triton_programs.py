"""Draws Triton programs: inputs, indices, a list of operations, loops and branches, and stores. The simplest come first.

Each statement is evaluated as soon as it is drawn, and left out where it has no one meaning. One program in a thousand has
none as a whole, and is drawn again.
"""

from functools import partial

from hypothesis import strategies as st

from mhc.programs.arithmetic import has_meaning
from mhc.programs.triton.edits import tidy
from mhc.programs.triton.evaluate import evaluate
from mhc.programs.triton.grammar import TritonProgram
from mhc.strategies.programs.indices import Draw
from mhc.strategies.programs.triton_descriptors import DescribedBlocks
from mhc.strategies.programs.triton_functions import Functions


def triton_programs(release: str, *, interpreted: bool = False) -> st.SearchStrategy[TritonProgram]:
    """Draw programs that Triton must give one meaning.

    Args:
        release: of Triton; some operations came later. interpreted: fewer of them compute in bfloat16, which is judged by
            compilers only.
    """
    return _programs(release, interpreted=interpreted).filter(partial(has_meaning, evaluate))


@st.composite
def _programs(draw: Draw, release: str, *, interpreted: bool) -> TritonProgram:
    blocks = DescribedBlocks(draw, release, interpreted=interpreted)
    blocks.inputs()
    statements = Functions(blocks)
    statements.define()
    for _ in range(blocks.pick(1, 3, 6, 9, 12, 14, 17, 21)):
        if not blocks.is_long():
            statements.statement(depth=0)
    blocks.outputs()
    return tidy(blocks.program())
