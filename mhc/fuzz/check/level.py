"""Levels of a check: how many gates judge a case."""

from enum import Enum


class Level(Enum):
    """Which gates judge a case. Every further run costs as much as the first, so a campaign draws them."""

    REFERENCE = "reference"  # no gate: the reference and its bounds are computed, without a call of the implementation
    PLAIN = "plain"  # the gates that need one run
    DRAWN = "drawn"  # and those with further runs that the case draws, if the first run passes
    CLEAN = "clean"  # and all with further runs, if the first run passes
    MEMORY = "memory"  # and the memory gate with its further runs
    FULL = "full"  # and all with further runs
