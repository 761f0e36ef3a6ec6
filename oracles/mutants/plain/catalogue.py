"""The mutants of all operators beside mHC pre."""

from oracles.mutants.plain.elements import ELEMENTS
from oracles.mutants.plain.mixing import MIXING
from oracles.mutants.plain.rows import ROWS

PLAIN = ROWS + ELEMENTS + MIXING
