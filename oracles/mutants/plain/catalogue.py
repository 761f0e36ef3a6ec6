"""The mutants of all operators beside mHC pre."""

from mhc.oracles.mutants.plain.choices import CHOICES
from mhc.oracles.mutants.plain.elements import ELEMENTS
from mhc.oracles.mutants.plain.family import FAMILY
from mhc.oracles.mutants.plain.mixing import MIXING
from mhc.oracles.mutants.plain.rows import ROWS

PLAIN = ROWS + ELEMENTS + MIXING + CHOICES + FAMILY
