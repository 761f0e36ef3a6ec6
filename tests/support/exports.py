"""Findings, repros and kernels from outside, for the tests of exports."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from mhc import default_case
from mhc.case import Case
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.registry import load
from mhc.upstream.program.program import Program
from mhc.upstream.program.script import Script

SELDOM = pytest.mark.skipif(
    hypothesis.settings.get_current_profile_name() != "nightly", reason="exported with --hypothesis-profile=nightly"
)
"""Tests that run compilers for ten seconds or more, and of which the suite has a cheaper one of the kind."""


def finding(spec: str, subject: str, oracle: str = "bound", symptom: str = "value", case: Case | None = None) -> Finding:
    implementation = load(spec)
    print_ = Fingerprint(
        operator="mhc_pre", implementation=implementation.name, oracle=oracle, subject=subject, symptom=symptom
    )
    return Finding(
        fingerprint=print_, spec=spec, variables=implementation.env, case=case or default_case(), message="seen before"
    )


@dataclass(frozen=True, kw_only=True)
class Fixed(Script):
    """A script whose text is given."""

    fixed: str

    def text(self) -> str:
        return self.fixed


def program(text: str) -> Program:
    script = Fixed(
        title="x", environment={}, imports=(), device="cpu", definitions={}, calls=(), given={}, made={}, result="", end=(),
        fixed=text,
    )  # fmt: skip
    return Program(script=script, to="tilelang", form="whole", at="x", where="a kernel", unreduced=text)


def repro(folder: Path, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


OUTSIDE = """
import tilelang
import tilelang.language as T
import torch

from mhc import Implementation

FACTOR = 2.0


def doubled(n):
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = x[i] * FACTOR

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def in_a_fragment(n):
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            values = T.alloc_fragment((n,), "float32")
            for i in T.serial(n):
                values[i] = x[i]
            for i in T.serial(n):
                y[i] = values[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def wrong(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    B, S, n, D = x.shape
    h_res, given = torch.empty(n * n), bias[2 * n :].contiguous()
    doubled(n * n)(given, h_res)
    return x[:, :, 0], phi.new_zeros(B, S, n), h_res.expand(B, S, n * n).reshape(B, S, n, n), None, None, None


def raises(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    in_a_fragment(alpha.numel())(alpha, torch.empty_like(alpha))


def nothing(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    raise ValueError(f"no room for {x.numel()} in /tmp/{id(x)}")


WRONG, RAISES, NOTHING = (
    Implementation(name=one.__name__, forward=one, backward=None, devices=("cpu",), dtypes=("float32",))
    for one in (wrong, raises, nothing)
)
"""


def outside(folder: Path, name: str) -> str:
    (folder / "outside.py").write_text(OUTSIDE)
    return f"{folder / 'outside.py'}:{name}"


FAULTY = """
import torch
import triton
import triton.language as tl

from mhc import Implementation
from mhc.operators.mhc_pre.torch.golden import mhc_forward_pre


@triton.jit
def leaks(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    v = tl.load(x + t, t < N, 0.0)
    tl.store(out + t, 1.0 / tl.sqrt(v * v + eps) + tl.sum(v * 0.0), t < N)


@triton.jit
def overruns(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    v = tl.load(x + t, t < N, 0.0)
    tl.store(out + t, 1.0 / tl.sqrt(v * v + eps), t < N + 1)


@triton.jit
def writes(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    v = tl.load(x + t, t < N, 0.0)
    tl.store(x + t, v + 1.0, t < N)
    tl.store(out + t, 1.0 / tl.sqrt(v * v + eps), t < N)


@triton.jit
def is_stale(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    v = tl.load(x + t, t < N, 0.0)
    old = tl.load(out + t, t < N, 0.0)
    tl.store(out + t, tl.where(old == old, 1.0, 2.0) / tl.sqrt(v * v + eps), t < N)


@triton.jit
def hangs(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    while tl.load(out) != 0.0:
        tl.store(out + t, tl.load(x + t, t < N, 0.0) + 1.0, t < N)


@triton.jit
def crashes(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    tl.store(out + (t.to(tl.int64) << 44), tl.load(x + t, t < N, 0.0), t < BLOCK)


@triton.jit
def asserts(x, out, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 3, "no block of 3")


def with_kernel(kernel):
    def forward(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
        results = mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)
        inv_rms = torch.empty(x.shape[:2])
        kernel[(1,)](x, inv_rms, norm_eps, x.numel(), 4)
        return (*results[:3], inv_rms, *results[4:])

    return Implementation(
        name=kernel.__name__, forward=forward, backward=None, dtypes=("float32",), env={"TRITON_INTERPRET": "1"}
    )


LEAKS, OVERRUNS, WRITES, STALE, HANGS, CRASHES, ASSERTS = (
    with_kernel(one) for one in (leaks, overruns, writes, is_stale, hangs, crashes, asserts)
)


def differs(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    B, S, n, D = x.shape
    return x[:, :, 0] + torch.rand(()), x.new_zeros(B, S, n), x.new_zeros(B, S, n, n), None, None, None


def dead(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    import os

    os._exit(7)


DIFFERS, DEAD = (
    Implementation(name=one.__name__, forward=one, backward=None, dtypes=("float32",)) for one in (differs, dead)
)
"""
"""For D = n = 1, kernels of Triton that compute inv_rms and have one fault each; and two functions without a kernel."""


def faulty(folder: Path, name: str) -> str:
    (folder / "faulty.py").write_text(FAULTY)
    return f"{folder / 'faulty.py'}:{name}"
