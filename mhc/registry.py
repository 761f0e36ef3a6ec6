"""The built-in implementations, as an explicit tuple, and how a name on the command line becomes one."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.implementation import Implementation
from mhc.loading import load as load_from
from mhc.operators.mhc_pre.registry import IMPLEMENTATIONS as PRE_IMPLEMENTATIONS

BUILT_IN: tuple[Implementation, ...] = PRE_IMPLEMENTATIONS


def built_in() -> Mapping[str, Implementation]:
    """The built-in implementations by name."""
    return MappingProxyType({implementation.name: implementation for implementation in BUILT_IN})


def load(spec: str) -> Implementation:
    """The implementation that `spec` names: a built-in, an entry point, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        ImplementationError: there is none, or it cannot be used; the message says which file and what was expected.
    """
    return load_from(spec, BUILT_IN)
