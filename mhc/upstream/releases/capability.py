"""Whether an interpreter can say anything of a repro: it has the release, and runs something trivial of the same kind."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from mhc.upstream.releases.releases import port
from mhc.upstream.verify import SECONDS, Outcome, run

NEEDS = {
    "tilelang": ("c", "lower", "cuda"),
    "triton": ("interpreter", "compile", "cuda"),
    "torch": ("cpu", "cuda"),
}
"""What a repro of a DSL can need of a machine, the usual first.

c: the `c` target; lower: for CUDA, without a GPU; interpreter: TRITON_INTERPRET=1; compile: ahead of time, for sm_90.
"""

_COMPANIONS = {"tilelang": ("apache-tvm-ffi", "torch"), "triton": ("torch",), "torch": ()}
_HAS, _READY = "HAS", "READY"
_FIRST = """\
from importlib.metadata import PackageNotFoundError, version

def have(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

"""
_TILELANG_C = """\
import tilelang
import tilelang.language as T
import torch

@T.prim_func
def trial(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
    with T.Kernel(1, is_cpu=True) as _:
        for i in T.serial(4):
            y[i] = x[i] + x[i]

x, y = torch.ones(4), torch.zeros(4)
tilelang.compile(trial, target="c", execution_backend="cython")(x, y)
assert y.tolist() == [2.0] * 4, y
"""
_TILELANG_GPU = """\
import tilelang
import tilelang.language as T
import torch
from tvm.target import Target

@T.prim_func
def trial(y: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(32):
            y[i] = 2.0

"""
_LOWERED = """\
target = Target("cuda -arch=sm_90")
with target:
    assert "__global__" in tilelang.lower(trial, target=target).kernel_source
"""
_ON_CUDA = """\
y = torch.zeros(32, device="cuda")
tilelang.compile(trial)(y)
assert y.tolist() == [2.0] * 32, y
"""
_INTERPRETED = """\
import os
os.environ["TRITON_INTERPRET"] = "1"
"""
_TRITON = """\
import torch
import triton
import triton.language as tl

@triton.jit
def trial(x, y, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + tl.load(x + i))

"""
_LAUNCHED = """\
x, y = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
trial[(1,)](x, y, n=4)
assert y.tolist() == [2.0] * 4, y
"""
_COMPILED = """\
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

source = ASTSource(trial, {"x": "*fp32", "y": "*fp32", "n": "constexpr"}, {"n": 4})
assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
"""
_SUM = """\
import torch

assert torch.ones(4, device=DEVICE).sum().item() == 4
"""
_TRIALS = {
    ("tilelang", "c"): _TILELANG_C,
    ("tilelang", "lower"): _TILELANG_GPU + _LOWERED,
    ("tilelang", "cuda"): _TILELANG_GPU + _ON_CUDA,
    ("triton", "interpreter"): _INTERPRETED + _TRITON + _LAUNCHED.replace("DEVICE", "'cpu'"),
    ("triton", "compile"): _TRITON + _COMPILED,
    ("triton", "cuda"): _TRITON + _LAUNCHED.replace("DEVICE", "'cuda'"),
    ("torch", "cpu"): _SUM.replace("DEVICE", "'cpu'"),
    ("torch", "cuda"): _SUM.replace("DEVICE", "'cuda'"),
}


@dataclass(frozen=True)
class Trial:
    """What an interpreter said.

    Attributes:
        lacks: why it says nothing of a repro; empty where it is ready. packages: versions that it has.
    """

    lacks: str
    packages: dict[str, str]


def installed(python: Path, to: str) -> str | None:
    """The release of a DSL that an interpreter has; None if it has none."""
    return _tell(python, to, "", SECONDS)[0].get(to)


def trial(python: Path, to: str, version: str, need: str, *, seconds: float = SECONDS) -> Trial:
    """Run the trivial program of a need, by itself.

    Args:
        version: the release that the interpreter must have.
    """
    text, _ = port(to, version, _TRIALS[to, need])
    packages, outcome = _tell(python, to, text, seconds)
    has = packages.get(to)
    if packages and has != version:
        return Trial(f"has {to} {has}" if has else f"has no {to}", packages)
    if outcome.status == 0 and outcome.said == _READY:
        return Trial("", packages)
    last = (outcome.output.strip().splitlines() or [str(outcome)])[-1]
    return Trial(f"no trivial program runs ({need}): {last[:200]}", packages)


def _tell(python: Path, to: str, text: str, seconds: float) -> tuple[dict[str, str], Outcome]:
    """The versions that an interpreter has of what matters for a DSL, and how a program did there."""
    says = f"print({_HAS!r}, *(f'{{name}}={{have(name)}}' for name in {(to, *_COMPANIONS[to])!r}), flush=True)\n"
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "trial.py"
        program.write_text(f"{_FIRST}{says}{text}print({_READY!r})\n", encoding="utf-8")
        outcome = run(program, python=(str(python),), seconds=seconds)
    told = next((line.split()[1:] for line in outcome.output.splitlines() if line.startswith(f"{_HAS} ")), [])
    pairs = (one.split("=", 1) for one in told)
    return {one: version.partition("+")[0] for one, version in pairs if version}, outcome
