"""Hypothesis strategies that draw cases."""

from mhc.top_level import folders_of

__path__ = folders_of(__name__, __file__)
