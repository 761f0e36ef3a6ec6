"""Which Triton kernels run for a problem, and why: the table of the forward's modes, and that of the backward's.

`docs/triton.md` shows both, and a test compares. Tiles, splits and warps of the mode that runs are in `heuristics`.
"""

import functools
import math
from dataclasses import dataclass

import torch

from mhc.operators.mhc_pre.selection import TWO_TERMS_FROM, Kernel, Problem, Support, always, never, power_of_2

# Of x: products without tensor cores, whose three bfloat16 terms lose digits of a float32 that is subnormal.
WHOLE = frozenset({torch.float32, torch.float64})
SHORT = frozenset({torch.bfloat16, torch.float16})
# Tokens, and elements of x, from which the start of the resident kernel pays; for float16 it has one more launch.
RESIDENT_TOKENS, RESIDENT_ELEMENTS, RESIDENT_ELEMENTS_FP16 = 2048, 1 << 24, 3 << 24
# Tokens from which the hopper forward is faster.
HOPPER_TOKENS = 512
# For n = 1, 2, 3, 4: columns of each stream that a program owns, columns of a piece, and pieces.
RESIDENT_CUTS = {1: (1024, 256, 4), 2: (512, 256, 4), 3: (256, 128, 6), 4: (256, 256, 4)}
RESIDENT_GROUP = 28  # programs that share a token: every share of a sum is a register
# Programs that share a token, and tokens, from which the resident backward is faster; and the most tokens where the groups
# of a problem leave more than a third of the device idle.
ONE_PASS_GROUP, ONE_PASS_TOKENS, ONE_PASS_TOKENS_IDLE = 64, 512, 4096
# Streams from which matrix products pay for their launches: at any N, and from this many tokens on.
WIDE_STREAMS, WIDE_STREAMS_OF_MANY, WIDE_TOKENS = 9, 5, 2048


@dataclass(frozen=True)
class Resident:
    """How the resident kernel shares a token: `group` programs, each with `width` elements of every stream, taken in
    `chunks` pieces of `chunk` columns; `groups` of them at once."""

    group: int
    groups: int
    width: int
    chunk: int
    chunks: int


def resident(problem: Problem) -> Resident | None:
    """Return the resident kernel's cut; None where it does not serve the problem."""
    n, D, chip = problem.n, problem.D, problem.chip
    if chip.capability != 90 or problem.dtype not in SHORT or n > 4 or problem.K < TWO_TERMS_FROM:
        return None
    width, chunk, chunks = RESIDENT_CUTS[n]
    group = D // width
    if D % width or group > min(RESIDENT_GROUP, chip.cores):
        return None
    return Resident(group, max(1, min(chip.cores // group, -(-problem.N // 16))), width, chunk, chunks)


def resident_groups(problem: Problem) -> tuple[int, int] | None:
    """Return how many programs share a token in the resident backward, and how many such groups there are at once.

    None where it does not serve.
    """
    n, D, chip = problem.n, problem.D, problem.chip
    if chip.capability != 90 or problem.dtype not in SHORT or not 2 <= n <= 4:
        return None
    width = 128 // power_of_2(n, 2, 4)  # of every stream for a program
    group = D // width
    if D % (8 * width) or group > chip.cores:
        return None
    return group, max(1, min(chip.cores // group, -(-problem.N // 64)))


def packed_rows(K: int) -> int:
    """Return how many rows of x together are a multiple of 16 bytes: 1, 2, 4 or 8."""
    return 8 // math.gcd(K, 8)


def packed_columns(K: int) -> int:
    """Return the columns that a token's row takes where it begins up to 7 elements after a multiple of 16 bytes."""
    return K if packed_rows(K) == 1 else K + 7


@functools.cache
def pieces(M: int, tokens: int, least: int = 8, second: int = 4) -> tuple[int, int, int]:
    """Return how the hopper forward cuts the rows of phi: into blocks, each of two pieces that are powers of two.

    A block is as large as the accumulators of two warp groups leave room for: 3 columns of them for each row of a first
    piece, `second` for each row of a second one, which has `least` rows or more, or none.
    """
    pairs = [
        (a, b)
        for a in (16, 32, 64, 128)
        for b in (0, 8, 16, 32, 64)
        if (b == 0 or least <= b < a) and (3 * a + second * b) * tokens <= 320 * 128
    ]
    for blocks in range(1, M + 1):
        fits = [pair for pair in pairs if sum(pair) * blocks >= M]
        if fits:
            return blocks, *min(fits, key=lambda pair: 3 * pair[0] + 4 * pair[1])
    raise AssertionError


def forward_pieces(problem: Problem, tokens: int) -> tuple[int, int, int]:
    """Return `pieces` of the hopper forward. For float16 x a second piece has a second set of accumulators, for x1."""
    return pieces(problem.M, tokens, second=8 if problem.dtype == torch.float16 else 4)


def hopper_stages(problem: Problem, tokens: int) -> int:
    """Return the most steps of the hopper forward that shared memory holds: 64 of K, of x and of the terms of phi."""
    _, a, b = forward_pieces(problem, tokens)
    return (problem.chip.shared - 2048) // (2 * 64 * (tokens + 3 * a + 4 * b))


@dataclass(frozen=True)
class Held:
    """What a program of the loaded dx holds.

    `columns` of two streams of phi * gamma, `rows` of them, M or more; a `ring` of places for chunks of dh_mix, each as wide
    as two pieces that are powers of two; and `stages` tiles of x and dh_in.
    """

    rows: int
    chunk: tuple[int, int]
    columns: int
    ring: int
    stages: int


@functools.cache
def held_columns(n: int, D: int, shared: int) -> Held | None:
    """Return what fits; None where rows of x are no multiple of 16 bytes, streams come in no pairs, or nothing fits."""
    M = n * n + 2 * n
    if n % 2 or D % 8:
        return None
    chunks = ((32, 16), (32, 32), (64, 16), (64, 32), (64, 64))
    rows, _, chunk = min((-(-M // sum(chunk)) * sum(chunk), -sum(chunk), chunk) for chunk in chunks)
    for columns, stages in ((128, 2), (64, 2), (64, 1)):
        free = shared - 1024 - 8 * rows * columns - stages * 6 * 64 * columns  # bytes, beside phi * gamma and the tiles
        ring = min(4, free // (4 * 64 * sum(chunk)))
        if ring >= 2:
            return Held(rows, chunk, columns, ring, stages)
    return None


_RESIDENT = (
    f"bfloat16 and float16 on sm_90, n at most 4, n * D at least {TWO_TERMS_FROM}, D a multiple of"
    f" {', '.join(str(width) for width, _, _ in RESIDENT_CUTS.values())} for n = 1, 2, 3, 4 and at most {RESIDENT_GROUP}"
    " times that"
)
_WHOLE = "float32 on NVIDIA GPUs from sm_80 on"
_WIDE = "bfloat16 and float16"
_PACKED = "bfloat16 and float16 on sm_90, N a multiple of 8 / gcd(n * D, 8)"
_HOPPER = "bfloat16 and float16 on sm_90, n at most 4, D a multiple of 8"
_RESIDENT_BACKWARD = (
    "bfloat16 and float16 on sm_90, n from 2 to 4, D a multiple of 512 for n = 2, else 256, and at most 16 times that"
)


def _was(problem: Problem) -> str:
    return f"was {problem.type}, n = {problem.n}, D = {problem.D}"


def _resident(problem: Problem) -> Support:
    return resident(problem) is not None or f"is for {_RESIDENT}; {_was(problem)}"


def _whole(problem: Problem) -> Support:
    fits = problem.dtype == torch.float32 and problem.chip.capability >= 80
    return fits or f"is for {_WHOLE}, was {problem.type}"


def _wide(problem: Problem) -> Support:
    return problem.dtype in SHORT or f"is for {_WIDE}, was {problem.type}"


def _packed(problem: Problem) -> Support:
    fits = problem.chip.capability == 90 and problem.dtype in SHORT and problem.N % packed_rows(problem.K) == 0
    return fits or f"is for {_PACKED}; {_was(problem)}, N = {problem.N}"


def _hopper(problem: Problem) -> Support:
    fits = problem.chip.capability == 90 and problem.dtype in SHORT and problem.n <= 4 and problem.D % 8 == 0
    return fits or f"is for {_HOPPER}; {_was(problem)}"


def _resident_backward(problem: Problem) -> Support:
    return resident_groups(problem) is not None or f"is for {_RESIDENT_BACKWARD}; {_was(problem)}"


def _one_pass_pays(problem: Problem) -> bool:
    cut = resident_groups(problem)
    if cut is None:
        return False
    group, _ = cut
    if group < ONE_PASS_GROUP or problem.N < ONE_PASS_TOKENS:
        return False
    if problem.dtype == torch.float16 and problem.n > 2:  # psi, of two terms of x, is one warp group's work
        return False
    cores = problem.chip.cores
    return problem.N <= ONE_PASS_TOKENS_IDLE or 3 * (cores // group) * group >= 2 * cores


def _resident_pays(problem: Problem) -> bool:
    elements = RESIDENT_ELEMENTS_FP16 if problem.dtype == torch.float16 else RESIDENT_ELEMENTS
    return problem.N >= RESIDENT_TOKENS and elements <= problem.N * problem.K


def _many_streams(problem: Problem) -> bool:
    return problem.n >= WIDE_STREAMS or (problem.n >= WIDE_STREAMS_OF_MANY and problem.N >= WIDE_TOKENS)


FORWARD = (
    Kernel(
        "whole",
        supports=_whole,
        preferred=always,
        serves=_WHOLE,
        reason="always: tensor cores take no float32, and its bfloat16 terms lose digits below 2^-126",
    ),
    Kernel(
        "resident",
        supports=_resident,
        preferred=_resident_pays,
        serves=_RESIDENT,
        reason=f"for N >= {RESIDENT_TOKENS} and N K >= 2^{RESIDENT_ELEMENTS.bit_length() - 1}"
        f" (float16: {RESIDENT_ELEMENTS_FP16 >> 24} * 2^24): x is read once;"
        " for less, its start costs more than reading x twice",
    ),
    Kernel(
        "hopper",
        supports=_packed,
        preferred=lambda one: max(HOPPER_TOKENS, 2 * packed_rows(one.K) * one.M) <= one.N,
        serves=_PACKED,
        reason=f"for N >= {HOPPER_TOKENS} and N >= 16 M / gcd(n * D, 8): a loading warp keeps memory busy meanwhile",
    ),
    Kernel("two_pass", supports=always, preferred=always, serves="every problem", reason="always"),
    Kernel(
        "fused",
        supports=always,
        preferred=never,
        serves="every problem",
        reason="never: slower than `two_pass`, also for 128 tokens; it can be pinned",
    ),
)
BACKWARD = (
    Kernel(
        "wide_hopper",
        supports=_packed,
        preferred=_many_streams,
        serves=_PACKED,
        reason="where `wide` would be: a loading warp keeps memory busy during the products",
    ),
    Kernel(
        "wide",
        supports=_wide,
        preferred=_many_streams,
        serves=_WIDE,
        reason=f"for n >= {WIDE_STREAMS}, and for n >= {WIDE_STREAMS_OF_MANY} with N >= {WIDE_TOKENS}: the products outweigh"
        " the memory traffic, and there they pay for three more launches",
    ),
    Kernel(
        "resident",
        supports=_resident_backward,
        preferred=_one_pass_pays,
        serves=_RESIDENT_BACKWARD,
        reason=f"for N >= {ONE_PASS_TOKENS} and D >= {64 * ONE_PASS_GROUP} for n = 2, else {32 * ONE_PASS_GROUP}:"
        " x and dh_in are read once;"
        f" where D / 32 programs (n = 2: D / 64) leave more than a third of the device idle, up to N ="
        f" {ONE_PASS_TOKENS_IDLE}; float16 only for n = 2",
    ),
    Kernel(
        "hopper",
        supports=_hopper,
        preferred=always,
        serves=_HOPPER,
        reason="always: a loading warp keeps memory busy during the products",
    ),
    Kernel("streams", supports=always, preferred=always, serves="every problem", reason="always"),
)
