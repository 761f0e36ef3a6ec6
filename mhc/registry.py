"""The built-in implementations, as an explicit tuple, and how a name on the command line becomes one."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.implementation import Implementation, ImplementationError
from mhc.loading import load_outside, outside_names
from mhc.pre.implementations import IMPLEMENTATIONS as PRE_IMPLEMENTATIONS

BUILT_IN: tuple[Implementation, ...] = PRE_IMPLEMENTATIONS


def built_in() -> Mapping[str, Implementation]:
    """The built-in implementations by name."""
    return MappingProxyType({implementation.name: implementation for implementation in BUILT_IN})


def load(spec: str) -> Implementation:
    """The implementation that `spec` names: a built-in, an entry point, `FILE.py:NAME` or `package.module:NAME`.

    Raises:
        ImplementationError: there is none, or it cannot be used; the message says which file and what was expected.
    """
    known = built_in()
    if spec in known:
        return known[spec]
    if ":" not in spec and spec not in outside_names():
        names = ", ".join([*known, *outside_names()])
        raise ImplementationError(
            f"{spec}: no such implementation; known are {names}, or give FILE.py:NAME or package.module:NAME"
        )
    return load_outside(spec)
