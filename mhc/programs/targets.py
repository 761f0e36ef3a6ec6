"""What compiles and runs programs: the counterpart of an `Implementation`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from mhc.environment import tilelang_unmet, triton_unmet
from mhc.programs import plain_c, tilelang_c, tilelang_cuda, tvm_arithmetic, wrong_rewriting
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.tilelang_lower import release
from mhc.programs.triton import build, compiled, interpreted, launched
from mhc.programs.triton.text import render

DSLS = ("tilelang", "triton")
_INPUTS = 4


@dataclass(frozen=True, kw_only=True)
class ProgramTarget:
    """A compiler and where what it makes runs.

    Attributes:
        name: on the command line and in reports. dsl: the language of the text. text: returns the source.
        release: returns the compiler's version.
        lower: returns what the compiler generates; raises `CompileError`. prepare: makes it ready to run
            (`mhc.programs.tilelang_c.prepare`).
        build: does the part of `lower` that the front end does; raises `CompileError`. None: there is no such part.
        inputs: so many times a campaign runs what is compiled of a program, each time on other inputs: several where a run
            takes much less time than to compile.
        together: so many candidates the search for a smaller program compiles at once: several where a compiler takes
            seconds to begin.
        wrong_pass: returns which pass makes a program wrong, in words; empty where that is not known.
        kind: what may be drawn for it, and which known bugs it has.
        env: environment variables of the process that runs it.
        arch: the chip that it compiles for where no GPU is needed, as `sm_90`.
        needs: returns why the installed compiler cannot be used, and what to install; None where it can.
        site: the `site-packages` of another release, which takes the place of the installed one.
    """

    name: str
    dsl: str
    text: Callable[[Any], str]
    release: Callable[[], str]
    lower: Callable[[Any], str]
    prepare: Callable[..., Sequence[Run | CompileError]]
    build: Callable[[Any], Any] | None = None
    inputs: int = 1
    together: int = 1
    wrong_pass: Callable[[Any], str] = lambda program: ""
    kind: Literal["c", "cuda", "arithmetic", "plain", "interpreted", "compiled"] = "c"
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    devices: tuple[str, ...] = ("cpu",)
    schedule: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    compiles: None = None
    arch: str = ""
    needs: Callable[[], str | None] = lambda: None
    site: Path | None = None

    def enter(self) -> None:
        """Have this process import the compiler from `site`.

        Raises:
            RuntimeError: it is imported already.
        """
        if self.site is not None:
            loaded = sys.modules.get(self.dsl)
            if loaded is not None and Path(getattr(loaded, "__file__", None) or "").is_relative_to(self.site):
                return
            if loaded is not None:
                raise RuntimeError(f"{self.dsl} is imported already, and not from {self.site}")
            sys.path.insert(0, str(self.site))

    def unavailable(self) -> str | None:
        """Return why it cannot run in this environment, and what to install; None where it can."""
        return self.needs() if self.site is None else None

    @property
    def operator(self) -> str:
        """Return what findings name in the place of an operator."""
        return f"{self.dsl} program"


_C = ProgramTarget(
    name="tilelang-to-c",
    dsl="tilelang",
    text=tilelang_c.source_of,
    release=release,
    lower=tilelang_c.lower,
    prepare=tilelang_c.prepare,
    inputs=_INPUTS,
    build=tilelang_c.build,
    wrong_pass=first_wrong_pass,
    needs=partial(tilelang_unmet, pinned=False),
)
_ARITHMETIC = replace(
    _C,
    name="tilelang-arithmetic",
    lower=tvm_arithmetic.lower,
    prepare=tvm_arithmetic.prepare,
    build=None,
    inputs=1,
    wrong_pass=wrong_rewriting.wrong_part,
    kind="arithmetic",
    devices=("cpu", "cuda"),  # either will do, so it is taken only by name
)
_CUDA = ProgramTarget(
    name="tilelang-to-cuda",
    dsl="tilelang",
    text=tilelang_cuda.source_of,
    release=release,
    lower=tilelang_cuda.lower,
    prepare=tilelang_cuda.prepare,
    inputs=_INPUTS,
    together=8,
    needs=partial(tilelang_unmet, pinned=False),
    kind="cuda",
    devices=("cuda",),
)
_PLAIN = ProgramTarget(
    name="plain-c",
    dsl="plain C",
    text=plain_c.source_of,
    release=plain_c.release,
    lower=plain_c.source_of,
    prepare=plain_c.prepare,
    inputs=_INPUTS,
    kind="plain",
    devices=("cpu", "cuda"),  # either will do, so it is taken only by name
)


def _lowers(arch: str) -> ProgramTarget:
    """Return the target that lowers for a chip, and runs nothing."""
    lower = partial(tilelang_cuda.lower, arch=arch)
    prepare = tilelang_cuda.only_lowered
    return replace(
        _CUDA, name=f"tilelang-for-{arch}", lower=lower, prepare=prepare, arch=arch, inputs=1, devices=("cpu", "cuda")
    )


def _compiles(arch: str) -> ProgramTarget:
    """Return the target that lowers for a chip and has nvcc compile it, and runs nothing."""
    prepare = partial(tilelang_cuda.only_compiled, arch=arch)
    return replace(_lowers(arch), name=f"tilelang-to-{arch}", prepare=prepare)


_INTERPRETER = ProgramTarget(
    name="triton-interpreter",
    dsl="triton",
    text=render,
    release=build.release,
    lower=render,
    prepare=interpreted.prepare,
    needs=triton_unmet,
    kind="interpreted",
    env=MappingProxyType({"TRITON_INTERPRET": "1"}),
)
_TRITON_CUDA = replace(
    _INTERPRETER,
    name="triton-to-cuda",
    prepare=launched.prepare,
    inputs=_INPUTS,
    kind="cuda",
    env=MappingProxyType({"TRITON_INTERPRET": "0"}),
    devices=("cuda",),
)


def _triton_compiles(arch: str) -> ProgramTarget:
    """Return the target that has Triton compile for a chip, and runs nothing."""
    lower = partial(compiled.lower, capability=int(arch.removeprefix("sm_")))
    return replace(
        _TRITON_CUDA,
        name=f"triton-for-{arch}",
        lower=lower,
        prepare=compiled.prepare,
        kind="compiled",
        arch=arch,
        inputs=1,
        devices=("cpu", "cuda"),
    )


CHIPS = ("sm_80", "sm_90", "sm_100")
_TRITON = (_INTERPRETER, _TRITON_CUDA, *map(_triton_compiles, CHIPS))
TARGETS: Mapping[str, ProgramTarget] = MappingProxyType(
    {one.name: one for one in (_C, _ARITHMETIC, _CUDA, _PLAIN, *map(_lowers, CHIPS), *map(_compiles, CHIPS), *_TRITON)}
)
"""By name."""


def target_named(spec: str) -> ProgramTarget | None:
    """Return the target that is named, `NAME` or `NAME@SITE`; None where the name is none of a target.

    Raises:
        ValueError: there is no release of its DSL in the folder SITE.
    """
    name, at, site = spec.partition("@")
    target = TARGETS.get(name)
    if target is None or not at:
        return target
    found = [one.version for one in distributions(path=[site]) if one.metadata["Name"] == target.dsl]
    if not found:
        raise ValueError(f"{spec}: there is no {target.dsl} in {site}")
    return replace(target, name=f"{name}@{found[0]}", site=Path(site).resolve())
