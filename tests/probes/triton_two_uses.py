"""A pipelined load with two uses: an operand of tl.dot, and arithmetic in registers. It needs an sm_90 GPU."""
# mypy: ignore-errors

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, w, y, s, K, BM: tl.constexpr, BK: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr, USES: tl.constexpr):
    rows, k, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK), tl.arange(0, N)
    product, squares = tl.zeros((BM, N), tl.float32), tl.zeros((BM,), tl.float32)
    for at in tl.range(0, K, BK, num_stages=STAGES):
        a = tl.load(x + rows[:, None] * K + at + k[None, :])
        product = tl.dot(a, tl.load(w + (at + k)[:, None] * N + n[None, :]), product)
        if USES == 2:
            f = a.to(tl.float32)
            squares += tl.sum(f * f, 1)
    tl.store(y + rows[:, None] * N + n[None, :], product)
    tl.store(s + rows, squares)


def wrong_elements(uses, stages):
    """Return how many elements of x w are wrong; the factors are small integers, so that each sum is exact."""
    torch.manual_seed(0)
    M, K, N = 33792, 1024, 256
    x = torch.randint(-4, 5, (M, K), device="cuda").bfloat16()
    w = torch.randint(-4, 5, (K, N), device="cuda").bfloat16()
    y, s = torch.empty(M, N, device="cuda"), torch.empty(M, device="cuda")
    kernel[(M // 64,)](x, w, y, s, K, BM=64, BK=64, N=N, STAGES=stages, USES=uses, num_warps=4)
    return int((y != x.float() @ w.float()).sum())


def two_uses():
    return wrong_elements(uses=2, stages=3)


def one_use():
    return wrong_elements(uses=1, stages=3)


def no_pipeline():
    return wrong_elements(uses=2, stages=1)
