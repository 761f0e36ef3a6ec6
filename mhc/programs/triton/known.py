"""Bugs of Triton that are reported, as `mhc.programs.known` has them for TileLang."""

from mhc.programs.known import Known

KNOWN: tuple[Known, ...] = ()
