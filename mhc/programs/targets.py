"""What compiles and runs programs: the counterpart of an `Implementation`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from mhc.programs import tilelang_c
from mhc.programs.grammar import Program

DSLS = ("tilelang",)


@dataclass(frozen=True, kw_only=True)
class ProgramTarget:
    """A compiler and where what it makes runs.

    Attributes:
        name: on the command line and in reports. dsl: the language of the text. text: returns the source.
        release: returns the compiler's version.
        lower: returns what the compiler generates; raises `CompileError`. prepare: makes it ready to run
            (`mhc.programs.tilelang_c.prepare`).
        env: environment variables of the process that runs it.
    """

    name: str
    dsl: str
    text: Callable[[Program], str]
    release: Callable[[], str]
    lower: Callable[[Program], str]
    prepare: Callable[..., list[tilelang_c.Run | tilelang_c.CompileError]]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    devices: tuple[str, ...] = ("cpu",)
    schedule: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    compiles: None = None

    @property
    def operator(self) -> str:
        """Return what findings name in the place of an operator."""
        return f"{self.dsl} program"


_C = ProgramTarget(
    name="tilelang-c",
    dsl="tilelang",
    text=tilelang_c.source_of,
    release=tilelang_c.release,
    lower=tilelang_c.lower,
    prepare=tilelang_c.prepare,
)
TARGETS: Mapping[str, ProgramTarget] = MappingProxyType({one.name: one for one in (_C,)})
"""By name."""
