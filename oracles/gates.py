"""The gates that ask for further runs, cheapest first."""

from oracles import algebra, determinism, memory
from oracles.trial import Gate

GATES: tuple[Gate, ...] = (determinism.GATE, memory.GATE, algebra.GATE)
