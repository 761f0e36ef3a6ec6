"""What compiles and runs programs: the counterpart of an `Implementation`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from mhc.programs import tilelang_c
from mhc.programs.grammar import Program

DSLS = ("tilelang",)


@dataclass(frozen=True, kw_only=True)
class ProgramTarget:
    """A compiler and where what it makes runs.

    Attributes:
        name: on the command line and in reports. dsl: the language of the text. run: compiles a program, runs it, and
            returns its outputs by name; it raises `CompileError`. text: returns the source.
        env: environment variables of the process that runs it.
    """

    name: str
    dsl: str
    run: Callable[[Program], Mapping[str, np.ndarray[Any, Any]]]
    text: Callable[[Program], str]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    devices: tuple[str, ...] = ("cpu",)
    schedule: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    compiles: None = None

    @property
    def operator(self) -> str:
        """Return what findings name in the place of an operator."""
        return f"{self.dsl} program"


TARGETS: Mapping[str, ProgramTarget] = MappingProxyType(
    {
        one.name: one
        for one in (ProgramTarget(name="tilelang-c", dsl="tilelang", run=tilelang_c.run, text=tilelang_c.source_of),)
    }
)
"""By name."""
