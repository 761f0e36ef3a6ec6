"""Backward of mHC Forward Pre in three Triton launches: gates, streams, parameters.

gates       reads x and dh_in once: dh_pre, the gates' gradients, dh_mix [N, M] and one coefficient a token
streams     reads x and dh_in again: writes dx, and accumulates psi = dh_mix^T x [M, K] over the tokens
parameters  adds the partial sums in a fixed order: dphi = psi * gamma, dgamma = sum_M psi * phi, dbias, dalpha

float32 products run on bfloat16 tensor cores: v = h + m + l in three terms, and a @ b is the six products
hh mh lh hm mm hl (the other three are together about 2**-23 |a| |b| at most), side by side along the contraction.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from mhc.pre.triton_backward_kernels import gates_kernel, parameters_kernel, streams_kernel

X_TERMS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3, torch.float64: 1}
GATES_PROGRAMS = 2048  # at most this many partial sums for dbias and dalpha
# Two terms of dh_mix in psi leave 2**-16 sum|a||b|, under 6 sqrt(N) 2**-24 sum|a||b| from here on.
TWO_TERMS_FROM = 1821


@dataclass(frozen=True)
class Schedule:
    """Block sizes of the three launches; every valid one computes the same function.

    gates_tokens, gates_columns, gates_warps, gates_stages: tile [tokens, n, columns] of the first pass.
    tokens, columns, streams: tile [tokens, streams * columns] of the second; powers of two, tokens >= 16.
    rows: width of the chunks in which the packed terms of dh_mix are taken, a power of two >= 16.
    splits: programs that share the tokens, each with its own partial psi; warps, stages: of the second pass.
    """

    gates_tokens: int
    gates_columns: int
    gates_warps: int
    gates_stages: int
    tokens: int
    columns: int
    streams: int
    rows: int
    warps: int
    stages: int
    splits: int


@functools.lru_cache(4096)
def choose(N: int, n: int, D: int, dtype: torch.dtype, cores: int = 132) -> Schedule:
    """The default schedule of a shape. A pure function; cores is the number of multiprocessors to fill."""
    M, width = n * n + 2 * n, triton.next_power_of_2(n)
    columns = max(16, min(triton.next_power_of_2(D), 2048 // width if width < 16 else 64))
    if dtype == torch.float64:
        return Schedule(1, min(columns, 128), 4, 1, 16, 16, 1, 16, 4, 1, min(8, -(-N // 16)))
    if width <= 4:
        gates = (8, min(columns, 128), 4, 3) if N >= 4096 else (1, min(columns, 128), 2, 4)
    else:
        gates = (2 if N >= 4096 else 1, min(columns, 64 if width == 16 else 128), 4, 3)
    side = 64 if n == 1 else 128 if M <= 24 else 64 if M <= 80 else 32
    if dtype != torch.bfloat16:
        side = min(side, 64)
    streams = 2 if n % 2 == 0 and side < D * 2 else 1
    side = side // streams
    programs = -(-D // side) * -(-n // streams)
    splits = max(1, min(cores // programs, -(-N // 64)))
    stages = 4 if M <= 24 else 3 if M <= 48 else 2 if M <= 80 else 1
    wide = (24 < M <= 35 or M > 80) and N >= 1024 and dtype == torch.bfloat16
    return Schedule(
        *gates,
        128 if wide else 64,
        side,
        streams,
        64,
        8 if wide else 4,
        min(stages, 2) if wide or dtype != torch.bfloat16 else stages,
        splits,
    )


class Plan:
    """Everything about a call that its shapes, strides and schedule decide; built once for each."""

    def __init__(
        self,
        shape: torch.Size,
        x_stride: tuple[int, ...],
        g_stride: tuple[int, ...],
        dtype: torch.dtype,
        has_gamma: bool,
        hc_eps: float,
        cores: int,
        schedule: Schedule | None,
    ) -> None:
        B, S, n, D = shape
        N, K, M = B * S, n * D, n * n + 2 * n
        sch = schedule or choose(N, n, D, dtype, cores)
        whole = dtype == torch.float64
        # packed dh_mix: six terms a row of phi (one in float64), in chunks of sch.rows and a smaller last one
        need = M if whole else 6 * M
        tail = need % sch.rows
        C = max(sch.rows, need - tail + (max(16, triton.next_power_of_2(tail)) if tail else 0))
        R = M if whole else 2 * M if N >= TWO_TERMS_FROM else 3 * M
        # token t is at (t // period) * b + (t % period) * s
        (x_b, x_s, x_n, x_d), (g_b, g_s, g_d), period = x_stride, g_stride, S
        if B == 1 or (x_b == S * x_s and g_b == S * g_s):
            period, x_b, x_s, g_b, g_s = 1, x_s, 0, g_s, 0
        strides = (x_b, x_s, x_n, x_d, g_b, g_s, g_d)
        chunk = sch.gates_tokens * triton.cdiv(N, GATES_PROGRAMS * sch.gates_tokens)
        programs = triton.cdiv(N, chunk)
        splits = min(sch.splits, triton.cdiv(N, sch.tokens))
        even = N % sch.tokens == 0 and D % sch.columns == 0 and n % sch.streams == 0
        reach = sch.tokens * max(x_b, g_b, K, C) + (n + sch.streams) * x_n + (D + sch.columns) * max(x_d, g_d, 2 * n)
        columns = 64 if K >= 4096 else 16

        self.workspace = ((N, C), torch.float64 if whole else torch.bfloat16), N, (programs, M + 3), (splits, R, K)
        self.gates = (
            gates_kernel,
            (programs, 1, 1),
            (N, D, period, *strides, chunk),
            {
                "n": n,
                "hc_eps": hc_eps,
                "NP": triton.next_power_of_2(n),
                "RP": triton.next_power_of_2(n * n),
                "C": C,
                "PP": triton.next_power_of_2(max(1, C - need)),
                "BT": sch.gates_tokens,
                "BD": sch.gates_columns,
                "STAGES": sch.gates_stages,
            },
            sch.gates_warps,
        )
        self.streams = (
            streams_kernel,
            (triton.cdiv(D, sch.columns), triton.cdiv(n, sch.streams), splits),
            (N, D, K, period, *strides),
            {
                "n": n,
                "HAS_GAMMA": has_gamma,
                "NS": sch.streams,
                "C": C,
                "W": sch.rows,
                "R": R,
                "X_TERMS": X_TERMS[dtype],
                "BT": sch.tokens,
                "BD": sch.columns,
                "STAGES": sch.stages,
                "EVEN": even,
                "NEAR": period == 1 and reach < 2**31,
            },
            sch.warps,
        )
        self.parameters = (
            parameters_kernel,
            (triton.cdiv(K, columns) + triton.cdiv(M + 3, 4), 1, 1),
            (K, splits, programs),
            {
                "M": M,
                "R": R,
                "HAS_GAMMA": has_gamma,
                "BM": min(32, triton.next_power_of_2(M)),
                "BK": columns,
                "BP": 2048,
                "BC": 4,
            },
            4,
        )
        self.compiled: dict[tuple[str, object], Any] = {}

    def launch(self, step: str, where: object, stream: int | None, *tensors: Tensor | None) -> None:
        """One kernel. What Triton compiled is kept by device and pointer alignment: its own lookup costs 20 us."""
        kernel, grid, integers, constants, warps = getattr(self, step)
        ready = self.compiled.get((step, where))
        if ready is None:
            self.compiled[step, where] = kernel[grid](*tensors, *integers, **constants, num_warps=warps)
        else:
            ready[grid](*tensors, *integers, *constants.values(), stream=stream)


plan_of = functools.lru_cache(4096)(Plan)


@functools.cache
def cores_of(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def backward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    inv_rms: Tensor,
    h_mix: Tensor,
    h_pre: Tensor,
    h_post: Tensor,
    dh_in: Tensor,
    dh_post: Tensor,
    dh_res: Tensor,
    gamma: Tensor | None = None,
    *,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    schedule: Schedule | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of mHC Forward Pre (docs/operator.md, Backward).

    x [B, S, n, D] and dh_in [B, S, D] in bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3],
    bias [M], inv_rms [B, S], h_mix [B, S, M], h_pre, h_post, dh_post [B, S, n], dh_res [B, S, n, n] and gamma
    [n, D] or None in float32 (float64 with float64 x). Accumulates in float32 (float64).
    Returns dx [B, S, n, D] in x's dtype, rounded once, dphi [M, K], dalpha [3], dbias [M] and dgamma [n, D] (None
    without gamma). Bitwise deterministic; inputs are not written. schedule pins the block sizes.
    Raises KeyError for another dtype; shapes are the caller's to check. bias and norm_eps do not enter.
    """
    B, S, n, D = x.shape
    if B * S == 0:
        return (
            torch.empty_like(x),
            torch.zeros_like(phi),
            torch.zeros_like(alpha),
            torch.zeros_like(bias),
            None if gamma is None else torch.zeros_like(gamma),
        )
    device, dtype = x.device, phi.dtype
    phi, alpha, inv_rms, h_mix, h_pre, h_post, dh_post, dh_res = (
        a.contiguous() for a in (phi, alpha, inv_rms, h_mix, h_pre, h_post, dh_post, dh_res)
    )
    gamma = None if gamma is None else gamma.contiguous()
    plan = plan_of(x.shape, x.stride(), dh_in.stride(), x.dtype, gamma is not None, hc_eps, cores_of(device), schedule)

    dx = torch.empty((B, S, n, D), dtype=x.dtype, device=device)
    dphi = torch.empty(phi.shape, dtype=dtype, device=device)
    dalpha = torch.empty(3, dtype=dtype, device=device)
    dbias = torch.empty(phi.shape[0], dtype=dtype, device=device)
    dgamma = None if gamma is None else torch.empty((n, D), dtype=dtype, device=device)
    (packed, packed_dtype), tokens, tiles, parts = plan.workspace
    dh_mix = torch.empty(packed, dtype=packed_dtype, device=device)
    coef = torch.empty(tokens, dtype=dtype, device=device)
    sums = torch.empty(tiles, dtype=dtype, device=device)
    psi = torch.empty(parts, dtype=dtype, device=device)

    inputs = (x, dh_in, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, alpha, phi, gamma)
    where = (device, *[a is not None and a.data_ptr() % 16 == 0 for a in inputs])
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    plan.launch("gates", where, stream, x, dh_in, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, alpha, dh_mix, coef, sums)
    plan.launch("streams", where, stream, x, dh_in, phi, gamma, h_pre, dh_mix, coef, dx, psi)
    plan.launch("parameters", where, stream, phi, gamma, psi, sums, dphi, dgamma, dalpha, dbias)
    return dx, dphi, dalpha, dbias, dgamma
