"""The records of all probes: docs/tilelang/notes-revisited.md is written from them, knowledge.json beside it names them."""

from .limits import LIMITS
from .notes import NOTES
from .outcomes import Probe

PROBES: tuple[Probe, ...] = (*NOTES, *LIMITS)
