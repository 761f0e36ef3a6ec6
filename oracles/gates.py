"""The gates that may need further runs, cheapest first."""

from mhc.oracles import (
    algebra,
    determinism,
    exact,
    gradient,
    isolation,
    memory,
    ordering,
    precision,
    presence,
    sequence,
    training,
)
from mhc.oracles.trial import Gate

GATES: tuple[Gate, ...] = (
    *gradient.GATES,
    determinism.GATE,
    *presence.GATES,
    memory.GATE,
    *ordering.GATES,
    isolation.GATE,
    exact.GATE,
    precision.GATE,
    *algebra.GATES,
    *training.GATES,
    *sequence.GATES,
)
