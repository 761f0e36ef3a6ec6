"""How much one check does."""

from enum import Enum


class Depth(Enum):
    """Which gates judge a case. Every further run costs what the first did, so a campaign draws them."""

    PLAIN = "plain"  # those that need one run
    DRAWN = "drawn"  # and of those with further runs the ones that the case draws, where nothing is wrong with the first
    CLEAN = "clean"  # and all of them, where nothing is wrong with the first
    FULL = "full"  # and all of them
