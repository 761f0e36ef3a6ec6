"""Oracles: pure functions from a case and what was observed to verdicts. They know no implementation by name."""

from mhc.top_level import folders_of

__path__ = folders_of(__name__, __file__)
