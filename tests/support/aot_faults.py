"""Programs that show what the check of tests/support/aot.py finds, and that it takes kernels of either language."""

# mypy: ignore-errors

import os
import sys

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mhc.operators.mhc_pre.triton.launcher import Launch, Program


@triton.jit
def small_float_kernel(x, dx):
    """A rounding to an 8-bit float that sm_80 does not know and sm_90 does."""
    i = tl.arange(0, 128)
    tl.store(dx + i, tl.load(x + i).to(tl.float8e4nv).to(tl.float32))


@triton.jit
def hoard_kernel(x, dx, SIZE: tl.constexpr):
    """A transposition through more shared memory than any target has."""
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tl.store(dx + at, tl.trans(tl.load(x + at)))


@gluon.jit
def shared_kernel(x, dx):
    """A copy through shared memory, in Gluon, for a warp of 32."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    i = gl.arange(0, 128, layout=layout)
    memory = gl.allocate_shared_memory(gl.float32, [128], flat, gl.load(x + i))
    gl.store(dx + i, memory.load(layout))


def small_float() -> Program:
    return Program((Launch(small_float_kernel, (1, 1, 1), 4, ("x", "dx"), ()),))


def hoard() -> Program:
    return Program((Launch(hoard_kernel, (1, 1, 1), 8, ("x", "dx"), (256,)),))


def shared() -> Program:
    return Program((Launch(shared_kernel, (1, 1, 1), 4, ("x", "dx"), ()),))


def unbuildable() -> Program:
    raise ValueError("no such schedule")


def ends() -> Program:
    sys.stderr.write("out of memory\n")
    sys.stderr.flush()
    os._exit(7)
