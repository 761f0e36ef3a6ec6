"""What heals a repro: other settings of the compiler, one at a time. Where none does, the program is the first suspect."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mhc.upstream.verify import Outcome, run

_COMPILED = """\
import inspect, json, os, runpy, sys
from tilelang.jit.kernel import JITKernel
setting = json.loads(os.environ["REPRO_SETTING"])
made = JITKernel.__init__
signature = inspect.signature(made)
def changed(*arguments, **keywords):
    bound = signature.bind(*arguments, **keywords)
    own = {getattr(key, "value", key): value for key, value in (bound.arguments.get("pass_configs") or {}).items()}
    bound.arguments["pass_configs"] = {**(own if setting["keep"] else {}), **setting["configs"]}
    if setting["flags"] is not None:
        bound.arguments["compile_flags"] = setting["flags"]
    bound.arguments["compile_flags"] = [*(bound.arguments.get("compile_flags") or []), *setting["more"]]
    made(*bound.args, **bound.kwargs)
JITKernel.__init__ = changed
runpy.run_path(sys.argv[1], run_name="__main__")
"""
_EVALUATED = """\
import os, runpy, sys
runpy.run_path(os.environ["REPRO_EVALUATOR"])["install"]()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One change of how a repro's kernels are compiled.

    Attributes:
        configs: TileLang's pass configs beside the repro's own; keep: whether those stay.
        flags: of the C or CUDA compiler, in place of the repro's own; more: after them. variables: of the environment.
        evaluated: without any compiler, by `mhc.upstream.diagnose.evaluator`.
    """

    name: str
    configs: Mapping[str, Any] = field(default_factory=dict)
    keep: bool = True
    flags: tuple[str, ...] | None = None
    more: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    evaluated: bool = False

    @property
    def boot(self) -> str:
        """A program that runs the one that its first argument names; nothing where variables are all there is to it."""
        return _EVALUATED if self.evaluated else "" if self.variables else _COMPILED

    @property
    def environment(self) -> dict[str, str]:
        """Variables, those that `boot` reads among them."""
        if self.evaluated:
            return {"REPRO_EVALUATOR": str(Path(__file__).with_name("evaluator.py"))}
        configured = {"configs": dict(self.configs), "keep": self.keep, "flags": self.flags, "more": self.more}
        return dict(self.variables) or {"REPRO_SETTING": json.dumps(configured)}


def _off(name: str, key: str) -> Setting:
    return Setting(name=f"{name} off", configs={key: True})


EVALUATED = Setting(name="evaluated, not compiled", evaluated=True)
_C = (
    EVALUATED,
    Setting(name="no pass configs of its own", keep=False),
    Setting(name="no flags of its own", flags=()),
    Setting(name="-O0", flags=("-O0",)),
    _off("common subexpressions", "tir.disable_cse_tir"),
    _off("storage rewrite", "tir.disable_storage_rewrite"),
    _off("vectorisation", "tir.disable_vectorize"),
    _off("loop unswitching", "tl.disable_loop_unswitching"),
)
_CUDA = (
    Setting(name="no pass configs of its own", keep=False),
    Setting(name="no flags of its own", flags=()),
    _off("warp specialisation", "tl.disable_warp_specialized"),
    _off("TMA lowering", "tl.disable_tma_lower"),
    # alone, the former leaves copies of one dimension to TMA, with the literal 0 for a barrier
    Setting(
        name="warp specialisation and TMA lowering off",
        configs={"tl.disable_warp_specialized": True, "tl.disable_tma_lower": True},
    ),
    _off("WGMMA", "tl.disable_wgmma"),
    _off("256-bit vectorisation", "tl.disable_vectorize_256"),
    _off("vectorisation", "tir.disable_vectorize"),
    Setting(name="aggressive shared-memory merge off", configs={"tl.enable_aggressive_shared_memory_merge": False}),
    Setting(name="aggressive shared-memory merge on", configs={"tl.enable_aggressive_shared_memory_merge": True}),
    Setting(name="fast math off", configs={"tl.enable_fast_math": False}),
    _off("loop unswitching", "tl.disable_loop_unswitching"),
    _off("storage rewrite", "tir.disable_storage_rewrite"),
)
_TRITON_CUDA = (
    Setting(name="interpreted", variables={"TRITON_INTERPRET": "1"}),
    Setting(name="LLVM's optimisations off", variables={"DISABLE_LLVM_OPT": "1"}),
    Setting(name="no fused multiply-add", variables={"TRITON_DEFAULT_FP_FUSION": "0"}),
    Setting(name="ptxas without optimisation", variables={"DISABLE_PTXAS_OPT": "1"}),
)


def settings(to: str, device: str) -> tuple[Setting, ...]:
    """What is tried for a repro of one DSL on one kind of device."""
    if to == "tilelang":
        return _CUDA if device == "cuda" else _C
    return _TRITON_CUDA if to == "triton" and device == "cuda" else ()


@dataclass(frozen=True)
class Elsewhere:
    """What becomes of the finding's case with another schedule or on another implementation.

    Attributes:
        what: `schedule forward_splits = 2`, `golden`, `triton-interpreted on cpu`.
        passes: whether it is right there. source: the same kernels, run without the compiler.
        formula: the operator's formula in plain PyTorch, of which the reference is made too.
        how: the symptom, where it is not.
    """

    what: str
    passes: bool
    source: bool = False
    formula: bool = False
    how: str = ""


@dataclass(frozen=True)
class Attribution:
    """The outcome of a repro under each setting that was tried, and of its case elsewhere."""

    outcomes: Mapping[str, Outcome]
    elsewhere: Sequence[Elsewhere] = ()

    @property
    def heals(self) -> tuple[str, ...]:
        """The settings under which it does not reproduce any more, and ends as it should."""
        healed = [name for name, outcome in self.outcomes.items() if outcome.healed]
        return (*healed, *(one.what for one in self.elsewhere if one.source and one.passes))

    def settings(self, to: str, device: str) -> list[Setting]:
        """Those of `settings` that heal it."""
        return [one for one in settings(to, device) if one.name in self.heals]

    @property
    def suspect(self) -> str:
        """`compiler`, `formula` (or the gate), or `program`."""
        if self.heals:
            return "compiler"
        plain = [one for one in self.elsewhere if one.formula]
        return "formula" if plain and not any(one.passes for one in plain) else "program"

    def text(self) -> str:
        """The section of an issue."""
        rows = [
            *((name, _how(outcome)) for name, outcome in self.outcomes.items()),
            *((one.what, "passes" if one.passes else f"fails too: {one.how}") for one in self.elsewhere),
        ]
        table = ["", "| with | |", "|---|---|", *(f"| {name} | {how} |" for name, how in rows)] if rows else []
        return "\n".join([*self._said(), *table])

    def _said(self) -> list[str]:
        if self.heals:
            return [f"Healed by: {'; '.join(self.heals)}. What the source says is right: the compiler is the suspect."]
        if self.suspect == "formula":
            return ["The formula in plain PyTorch fails as well: the reference, or the gate, is the first suspect."]
        tried = (
            "No setting of the compiler that was tried heals it"
            if self.outcomes
            else "No setting of a compiler can be tried"
        )
        said = [f"{tried}: the program is the first suspect."]
        other = [one.what for one in self.elsewhere if one.passes and one.what.startswith("schedule")]
        if other:
            said.append(f"It passes with {'; '.join(other)}: look first at what that changes in the kernel.")
        return said


def attribute(repro: Path, tried: Iterable[Setting], elsewhere: Sequence[Elsewhere] = ()) -> Attribution:
    """Run a repro under each setting, by itself."""
    return Attribution({setting.name: _run(repro, setting) for setting in tried}, elsewhere)


def _run(repro: Path, setting: Setting) -> Outcome:
    python = (sys.executable, *(["-c", setting.boot] if setting.boot else []))
    return run(repro, python=python, variables=setting.environment)


def _how(outcome: Outcome) -> str:
    if outcome.healed:
        return "**healed**"
    return "still fails" if outcome.reproduced else f"fails otherwise: {outcome}"
