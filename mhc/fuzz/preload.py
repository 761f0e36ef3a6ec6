"""What every worker process is forked from: all that is imported before an implementation is, and nothing of a DSL.

What a first case would import and set up is here too, once for all processes: half a second each.
"""

import gc

import hypothesis
from hypothesis import strategies
from torch.fx.experimental import symbolic_shapes  # noqa: F401  SymPy's half a second is the first `autograd.grad`'s otherwise

import mhc.fuzz.partner
import mhc.fuzz.rounds
import mhc.registry  # noqa: F401
from strategies.rounds import quiet


@quiet(1)
@hypothesis.given(strategies.none())
def _drawn(nothing: None) -> None:
    """The first test of a process has Hypothesis collect all garbage."""


_drawn()
gc.freeze()  # no process looks at it again: its pages stay shared
