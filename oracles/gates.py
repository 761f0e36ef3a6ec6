"""The gates that ask for more than the first run, cheapest first."""

from oracles import algebra, determinism, exact, gradient, isolation, memory, precision
from oracles.trial import Gate

GATES: tuple[Gate, ...] = (
    *gradient.GATES,
    determinism.GATE,
    memory.GATE,
    isolation.GATE,
    exact.GATE,
    precision.GATE,
    *algebra.GATES,
)
