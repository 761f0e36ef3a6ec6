"""mHC Forward Pre on Triton: the launches, and the schedule that each shape gets.

    v       = x.reshape(B, S, K)                               K = n * D, M = n * n + 2 * n, N = B * S tokens
    inv_rms = rsqrt(mean(v * v) + norm_eps)
    h_mix   = (v * gamma) @ phi.T
    z       = alpha * h_mix * inv_rms + bias                   alpha by columns: n | n | n * n
    h_pre   = sigmoid(z[:n]) + hc_eps,  h_post = 2 * sigmoid(z[n:2n]),  h_res = z[2n:]
    h_in    = sum_i h_pre[i] * x[i]

Source: arXiv 2512.24880 eqs. 14-19.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from mhc.pre.triton_finish_kernels import finish_kernel, fused_kernel
from mhc.pre.triton_project_kernels import partial_kernel, split_phi_kernel

# HIP kernels are also specialised on the size of the storage behind a pointer, which Launch does not know
REPLAY = torch.version.hip is None and not triton.knobs.runtime.interpret
RUNNERS: dict[tuple[int, int], tuple[Any, Any]] = {}


@dataclass(frozen=True)
class ForwardSchedule:
    """How the work is cut. Every field changes speed only; sums over K change their order with it.

    mode            fused: one kernel, all of K in a program; two_pass: sums over K in `splits` shares, then the rest
    block_*         tile of the projection: tokens, columns of phi, elements of K
    presplit        phi * gamma is split into bfloat16 terms by a kernel of its own, not again in every tile
    finish_*        tile of the second pass: tokens, elements of D
    overlap         on an NVIDIA GPU that can (sm_90 on), a kernel starts before the one it depends on has ended
    """

    mode: Literal["fused", "two_pass"] = "two_pass"
    block_tokens: int = 128
    block_m: int = 32
    block_k: int = 64
    splits: int = 4
    presplit: bool = True
    warps: int = 8
    stages: int = 3
    finish_tokens: int = 1
    finish_d: int = 4096
    finish_warps: int = 8
    overlap: bool = True


def power_of_2(value: int, low: int, high: int) -> int:
    """The smallest power of two >= value, kept within low..high."""
    return min(max(1 << (max(value, 1) - 1).bit_length(), low), high)


@lru_cache(maxsize=4096)
def default_schedule(N: int, n: int, D: int, dtype: torch.dtype) -> ForwardSchedule:
    """The schedule of N tokens of n streams of width D."""
    M, K = n * n + 2 * n, n * D
    columns = power_of_2(M + 1, 16, 64)
    if dtype == torch.float64:  # products in registers, without tensor cores: small tiles
        return ForwardSchedule(
            block_tokens=8,
            block_m=16,
            block_k=16,
            presplit=False,
            splits=1,
            warps=4,
            stages=1,
            finish_d=power_of_2(D, 16, 1024),
            finish_warps=4,
        )
    # 32 or 64 elements of x a thread in the second pass, in blocks of D that waste little
    finish_d = min(max(D & -D, power_of_2(D, 16, 256)), 4096, 16384 // power_of_2(n, 1, 16))
    finish_tokens = power_of_2(min(2048 // (n * finish_d), N), 1, 16)
    finish_warps = power_of_2(n * finish_d * finish_tokens // 1024, 1, 8)
    finish: Any = {"finish_tokens": finish_tokens, "finish_d": finish_d, "finish_warps": finish_warps}
    if N * K <= 2**19:  # launches cost more than the work
        return ForwardSchedule(
            block_tokens=16,
            block_m=columns,
            block_k=64,
            presplit=False,
            warps=4,
            stages=3,
            splits=power_of_2(K // 128, 1, 8),
            **finish,
        )
    if dtype == torch.bfloat16 and M + 1 > 64:
        columns = 128
    tokens = 64 if N <= 4096 and columns <= 64 else 128
    # enough programs to fill the device, and sums short enough for the truncating accumulators of tensor cores
    fill = triton.cdiv(256, triton.cdiv(N, tokens) * (M // columns + 1))
    splits = power_of_2(min(max(fill, K // 8192), triton.cdiv(K, 512)), 1, 16)
    return ForwardSchedule(
        block_tokens=tokens,
        block_m=columns,
        block_k=32 if dtype == torch.float16 else 64,
        splits=splits,
        warps=tokens // 16,
        stages=6 if tokens == 64 and columns <= 32 else 3,
        **finish,
    )


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `tensors` names the pointers that come first, `constants` is every argument after them."""

    kernel: triton.JITFunction
    grid: tuple[int, int, int]
    warps: int
    tensors: tuple[str, ...]
    constants: tuple[Any, ...]
    overlap: bool = False  # starts before the launch in front of it has ended


@cache
def can_overlap(device: int) -> bool:
    """Whether the device (-1: the CPU) has programmatic dependent launch."""
    return REPLAY and device >= 0 and torch.cuda.get_device_capability(device) >= (9, 0)


OUTPUTS = ("h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre")


@lru_cache(maxsize=4096)
def launches(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtype: torch.dtype,
    has_gamma: bool,
    norm_eps: float,
    hc_eps: float,
    overlap: bool,
    plan: ForwardSchedule,
) -> tuple[tuple[Launch, ...], int, int]:
    """The launches of a forward, and the elements of its workspaces: the partial sums and the terms of phi * gamma."""
    B, S, n, D = shape
    N, K, M = B * S, n * D, n * n + 2 * n
    fused = plan.mode == "fused"
    if dtype == torch.float64 and plan.presplit and not fused:
        raise ValueError(f"schedule {plan}: float64 has no bfloat16 terms, needs presplit=False")
    stride_b, stride_s, stride_i, stride_d = strides
    # one stream of length K where the streams lie end to end
    streams, flat_D, flat_stride = n, D, stride_d
    if D == 1:
        streams, flat_D, flat_stride = 1, K, stride_i
    elif n == 1 or stride_i == D * stride_d:
        streams, flat_D = 1, K
    sizes = N, S, D, K, *strides
    if fused:
        return (
            (
                Launch(
                    fused_kernel,
                    (triton.cdiv(N, plan.block_tokens), 1, 1),
                    plan.warps,
                    ("x", "phi", "gamma", "alpha", "bias", *OUTPUTS),
                    (
                        *sizes,
                        flat_D,
                        flat_stride,
                        norm_eps,
                        hc_eps,
                        n,
                        streams,
                        has_gamma,
                        flat_D % plan.block_k == 0,
                        plan.block_tokens,
                        power_of_2(M, 16, 512),
                        plan.block_k,
                        plan.finish_d,
                        plan.stages,
                    ),
                ),
            ),
            0,
            0,
        )
    steps = []
    pitch, w_size = triton.cdiv(K, 64) * 64, 0
    # bfloat16 x of one stream reaches the tensor cores in the order in which the threads loaded it
    mma_order = (
        plan.presplit
        and streams == 1
        and dtype == torch.bfloat16
        and plan.block_k == 64
        and plan.block_tokens >= 8 * plan.warps
    )
    if plan.presplit:
        w_size = 3 * M * pitch
        steps.append(
            Launch(
                split_phi_kernel,
                (triton.cdiv(pitch, 1024), M, 1),
                4,
                ("phi", "gamma", "w"),
                (K, pitch, M, has_gamma, mma_order, 1024, overlap),
            )
        )
    m_tiles = M // plan.block_m + 1  # one column more than M: sum(x * x)
    width = m_tiles * plan.block_m
    steps.append(
        Launch(
            partial_kernel,
            (triton.cdiv(N, plan.block_tokens) * plan.splits, m_tiles, 1),
            plan.warps,
            ("x", "phi", "gamma", "w", "partials"),
            (
                N,
                S,
                flat_D,
                K,
                pitch,
                stride_b,
                stride_s,
                stride_i,
                flat_stride,
                M,
                streams,
                has_gamma,
                plan.presplit,
                mma_order,
                flat_D % plan.block_k == 0,
                plan.splits,
                plan.block_tokens,
                plan.block_m,
                plan.block_k,
                plan.stages,
                plan.warps,
                overlap,
            ),
            overlap and plan.presplit,
        )
    )
    steps.append(
        Launch(
            finish_kernel,
            (triton.cdiv(N, plan.finish_tokens), triton.cdiv(D, plan.finish_d), 1),
            plan.finish_warps,
            ("x", "partials", "alpha", "bias", *OUTPUTS),
            (
                *sizes,
                norm_eps,
                hc_eps,
                n,
                plan.splits,
                width,
                power_of_2(width, 16, 512),
                plan.finish_tokens,
                plan.finish_d,
                overlap,
            ),
            overlap,
        )
    )
    return tuple(steps), N * plan.splits * width, w_size


def run(steps: tuple[Launch, ...], tensors: dict[str, Tensor], device: int, aligned: bool) -> None:
    """Launches the steps. From the second time on, 16-byte aligned tensors skip Triton's look at each argument."""
    key = id(steps), device
    known = RUNNERS.get(key) if aligned else None
    if known is not None:
        stream = triton.runtime.driver.active.get_current_stream(device)
        for step, compiled in zip(steps, known[1], strict=True):
            compiled.run(
                *step.grid,
                stream,
                compiled.function,
                compiled.packed_metadata,
                None,
                None,
                None,
                *[tensors[name].data_ptr() for name in step.tensors],
                *step.constants,
            )
        return
    compiled = []
    for step in steps:
        options = {"launch_pdl": True} if step.overlap else {}
        compiled.append(
            step.kernel[step.grid](
                *[tensors[name] for name in step.tensors], *step.constants, num_warps=step.warps, **options
            )
        )
    if REPLAY and aligned:
        RUNNERS[key] = steps, compiled


def forward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    gamma: Tensor | None,
    *,
    norm_eps: float,
    hc_eps: float,
    schedule: ForwardSchedule | None = None,
) -> tuple[Tensor, ...]:
    """(h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre, formula in the module's docstring.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3], bias [M],
    gamma [n, D] or None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype; h_post [B, S, n],
    h_res [B, S, n, n], inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in phi's dtype.
    Takes arguments already checked. Raises ValueError where the schedule cannot serve the dtype.
    """
    device = x.get_device()
    if x.is_cuda and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(x, phi, alpha, bias, gamma, norm_eps=norm_eps, hc_eps=hc_eps, schedule=schedule)
    shape = B, S, n, D = x.shape
    empty = phi.new_empty
    outputs = (
        x.new_empty((B, S, D)),
        empty((B, S, n)),
        empty((B, S, n, n)),
        empty((B, S)),
        empty((B, S, n * n + 2 * n)),
        empty((B, S, n)),
    )
    if B * S == 0:
        return outputs
    plan = schedule or default_schedule(B * S, n, D, x.dtype)
    overlap = plan.overlap and can_overlap(device)
    steps, partials, w = launches(
        shape, x.stride(), x.dtype, gamma is not None, float(norm_eps), float(hc_eps), overlap, plan
    )
    phi, alpha, bias = phi.contiguous(), alpha.contiguous(), bias.contiguous()
    gamma = phi if gamma is None else gamma.contiguous()
    tensors = dict(zip(OUTPUTS, outputs, strict=True), x=x, phi=phi, alpha=alpha, bias=bias, gamma=gamma, w=phi)
    if partials:
        tensors["partials"] = empty((partials,))
    if w:
        tensors["w"] = x.new_empty((w,), dtype=torch.bfloat16)
    pointers = x.data_ptr() | phi.data_ptr() | alpha.data_ptr() | bias.data_ptr() | gamma.data_ptr()
    run(steps, tensors, device, pointers % 16 == 0)
    return outputs
