"""The built-in implementations, and the lookup of implementations by name."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from mhc.adapters import kernel_named
from mhc.implementation import Implementation, ImplementationError
from mhc.loading import all_of_file, is_file
from mhc.loading import load as load_from
from mhc.operators import MODULES, by_hand
from mhc.operators.mhc_pre.registry import IMPLEMENTATIONS as PRE_IMPLEMENTATIONS
from mhc.programs.targets import ProgramTarget, target_named

BUILT_IN: tuple[Implementation, ...] = (
    *PRE_IMPLEMENTATIONS,
    *by_hand.IMPLEMENTATIONS,
    *(one for module in MODULES for one in module.IMPLEMENTATIONS),
)

_DECLARED = re.compile(r"(?P<spec>.+)\[(?P<operation>\w+)=(?P<precision>[^\[\]=]*)\]")


def built_in(operator: str | None = None) -> Mapping[str, Implementation]:
    """Return the built-in implementations by name: those of an operator, or all."""
    return MappingProxyType({one.name: one for one in BUILT_IN if operator in {None, one.operator}})


def load(spec: str) -> Implementation:
    """Return the implementation named by `spec`: a built-in, `LIBRARY:KERNEL` of `mhc.adapters`, or as `mhc.loading` does.

    `NAME[matmul=tf32]` declares its `precision`, in place of what its record declares.

    Raises:
        ImplementationError: no implementation has this name, or it is invalid; the message says what was expected.
    """
    found = _DECLARED.fullmatch(spec)
    if found is None:
        return kernel_named(spec) or load_from(spec, BUILT_IN)
    implementation = load(found["spec"])
    try:
        return replace(implementation, precision={found["operation"]: found["precision"]}, origin=spec)
    except ImplementationError as error:
        raise ImplementationError(f"{spec}: {error}") from error


def load_every(spec: str) -> list[tuple[str, Implementation]]:
    """Return the implementation named by `spec`, or all of a file where it is `FILE.py`; each with its name for `load`.

    Raises:
        ImplementationError: as `load` does, or the file has none.
    """
    return all_of_file(spec, BUILT_IN) if is_file(spec) else [(spec, load(spec))]


Tested = Implementation | ProgramTarget
"""What a worker serves: an implementation of an operator, or a compiler of programs."""


def load_tested(spec: str) -> Tested:
    """Return the target of programs that has this name, or else the implementation that `load` returns."""
    return target_named(spec) or load(spec)
