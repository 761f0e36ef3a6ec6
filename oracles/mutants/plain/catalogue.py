"""The mutants of all operators beside mHC pre."""

from oracles.mutants.plain.choices import CHOICES
from oracles.mutants.plain.elements import ELEMENTS
from oracles.mutants.plain.family import FAMILY
from oracles.mutants.plain.mixing import MIXING
from oracles.mutants.plain.rows import ROWS

PLAIN = ROWS + ELEMENTS + MIXING + CHOICES + FAMILY
