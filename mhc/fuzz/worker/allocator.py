"""The C allocator of a worker: what a large case frees stays for its next tensors, and goes back with the end of a round.

By default glibc returns freed memory to the system, which clears each page of it when the next tensor needs it: a sixth of
the time of a case with a million elements.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of `mallopt`
_KEPT = 1 << 30
"""Bytes of free memory at the end of the heap that a process keeps."""
_MOST = 1 << 25
"""Bytes; larger tensors are mapped and unmapped by themselves, as glibc does at most."""


def keep_freed() -> None:
    """Keep what is freed, in this process and in those that are forked from it; nothing changes without glibc."""
    _call("mallopt", _TRIM_THRESHOLD, _KEPT)
    _call("mallopt", _MMAP_THRESHOLD, _MOST)


def give_back() -> None:
    """Return free memory to the system."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, where that has it."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, name):
        getattr(libc, name)(*arguments)
