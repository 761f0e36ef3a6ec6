"""What heals a repro: other settings of the compiler, one at a time. Where none does, the program is the first suspect."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mhc.upstream.verify import Outcome, run

_BOOT = """\
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
    made(*bound.args, **bound.kwargs)
JITKernel.__init__ = changed
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One change of how a repro's kernels are compiled.

    Attributes:
        configs: TileLang's pass configs beside the repro's own; keep: whether those stay.
        flags: of the C or CUDA compiler, in place of the repro's own. variables: of the environment.
    """

    name: str
    configs: Mapping[str, Any] = field(default_factory=dict)
    keep: bool = True
    flags: tuple[str, ...] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def _off(name: str, key: str) -> Setting:
    return Setting(name=f"{name} off", configs={key: True})


_C = (
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
class Attribution:
    """The outcome of a repro under each setting that was tried."""

    outcomes: Mapping[str, Outcome]

    @property
    def heals(self) -> tuple[str, ...]:
        """The settings under which it does not reproduce any more, and ends as it should."""
        return tuple(name for name, outcome in self.outcomes.items() if outcome.healed)

    @property
    def suspect(self) -> str:
        return "compiler" if self.heals else "program"

    def text(self) -> str:
        """The section of an issue."""
        if not self.outcomes:
            return "No other setting of the compiler can be tried here: the program is the first suspect."
        if self.heals:
            said = f"Healed by: {'; '.join(self.heals)}."
        else:
            said = "No setting of the compiler that was tried heals it: the program is the first suspect."
        rows = [f"| {name} | {_how(outcome)} |" for name, outcome in self.outcomes.items()]
        return "\n".join([said, "", "| setting | |", "|---|---|", *rows])


def attribute(repro: Path, tried: Iterable[Setting]) -> Attribution:
    """Run a repro under each setting, by itself."""
    return Attribution({setting.name: _run(repro, setting) for setting in tried})


def _run(repro: Path, setting: Setting) -> Outcome:
    if setting.variables:
        return run(repro, variables=dict(setting.variables))
    document = {"configs": dict(setting.configs), "keep": setting.keep, "flags": setting.flags}
    return run(repro, python=(sys.executable, "-c", _BOOT), variables={"REPRO_SETTING": json.dumps(document)})


def _how(outcome: Outcome) -> str:
    if outcome.healed:
        return "**healed**"
    return "still fails" if outcome.reproduced else f"fails otherwise: {outcome}"
