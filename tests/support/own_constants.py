"""Draws that do not depend on what is imported: Hypothesis takes constants from the modules that are."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers


@contextmanager
def no_constants_of_modules() -> Iterator[None]:
    """Let Hypothesis take none in the block."""
    none = type(providers._local_constants)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", none)
        patch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))
        yield
