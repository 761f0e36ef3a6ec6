"""Which TileLang program runs on CUDA for a problem, and why: the forward's table, and the backward's.

`docs/tilelang/forward.md` and `backward.md` show them, and a test compares. Tiles and splits of what runs are in
`forward_schedule` and `backward_schedule`.
"""

import torch

from mhc.operators.mhc_pre.selection import TWO_TERMS_FROM, Kernel, Problem, Support, always

# Tokens, and elements of x, from which the start of the resident kernel pays.
RESIDENT_TOKENS, RESIDENT_ELEMENTS = 1024, 1 << 22
# Columns of every stream that a program of the resident kernel owns, for n = 1, 2, 3, 4; and the programs of a token.
RESIDENT_WIDTH, RESIDENT_GROUP = {1: 1024, 2: 512, 3: 256, 4: 256}, 16
# Elements of x from which a program compiled for n and D is worth its compilation.
FIXED_ELEMENTS = 1 << 22

_RESIDENT = (
    f"bfloat16 on sm_90, n at most 4, n * D at least {TWO_TERMS_FROM}, D a multiple of"
    f" {', '.join(str(width) for width in RESIDENT_WIDTH.values())} for n = 1, 2, 3, 4 and at most {RESIDENT_GROUP}"
    " times that"
)
_FIXED = "bfloat16, D a multiple of 8 and n * D of 64"
_STREAMS = "bfloat16 on sm_90, n at most 4, D a multiple of 8"
_RING = "sm_90 with bfloat16, or float16 and D a multiple of 8"


def resident_width(problem: Problem) -> int | None:
    """Return the columns of every stream that a program of the resident kernel owns; None where it does not serve."""
    n, D, chip = problem.n, problem.D, problem.chip
    if chip.capability != 90 or problem.dtype != torch.bfloat16 or n > 4 or problem.K < TWO_TERMS_FROM:
        return None
    width = RESIDENT_WIDTH[n]
    return None if D % width or D // width > min(RESIDENT_GROUP, chip.cores) else width


def _was(problem: Problem) -> str:
    return f"was {problem.type}, n = {problem.n}, D = {problem.D}"


def _resident(problem: Problem) -> Support:
    return resident_width(problem) is not None or f"is for {_RESIDENT}; {_was(problem)}"


def _fixed(problem: Problem) -> Support:
    """Return True, or why not: tiles of bfloat16 must be whole, and terms of phi under 2**31 elements."""
    K = problem.K
    fits = problem.dtype == torch.bfloat16 and K % 64 == 0 and problem.D % 8 == 0 and 3 * 384 * K < 1 << 31
    return fits or f"is for {_FIXED}; {_was(problem)}"


def _whole(problem: Problem) -> Support:
    return problem.dtype == torch.float32 or f"is for float32; {_was(problem)}"


def _terms(problem: Problem) -> Support:
    return problem.dtype != torch.float32 or f"is for bfloat16 and float16; {_was(problem)}"


def _streams(problem: Problem) -> Support:
    fits = problem.chip.capability == 90 and problem.dtype == torch.bfloat16 and problem.n <= 4 and problem.D % 8 == 0
    return fits or f"is for {_STREAMS}; {_was(problem)}"


def _ring(problem: Problem) -> Support:
    """Return True, or why not: dx reads x in its own dtype by TMA, from x itself or from a plane of terms."""
    dtype = problem.dtype
    fits = dtype == torch.bfloat16 or (dtype == torch.float16 and problem.D % 8 == 0)
    return (problem.chip.capability == 90 and fits) or f"is for {_RING}; was {problem.type}, D = {problem.D}"


_NO_TERMS = "always: tensor cores take no float32, and its bfloat16 terms lose digits below 2^-126"

FORWARD = (
    Kernel("whole", supports=_whole, preferred=always, serves="float32, on any GPU", reason=_NO_TERMS),
    Kernel(
        "resident",
        supports=_resident,
        preferred=lambda one: one.N >= RESIDENT_TOKENS and one.N * one.K >= RESIDENT_ELEMENTS,
        serves=_RESIDENT,
        reason=f"for N >= {RESIDENT_TOKENS} and N K >= 2^{RESIDENT_ELEMENTS.bit_length() - 1}: x is read once;"
        " for less, its start costs more than reading x twice",
    ),
    Kernel(
        "fixed",
        supports=_fixed,
        preferred=lambda one: one.N * one.K >= FIXED_ELEMENTS,
        serves=_FIXED,
        reason=f"for N K >= 2^{FIXED_ELEMENTS.bit_length() - 1}: x and terms by TMA;"
        " for less, compiling for n and D is not worth it",
    ),
    Kernel(
        "general",
        supports=_terms,
        preferred=always,
        serves="bfloat16 and float16, any n, D, N",
        reason="always",
    ),
)
"""What `forward_schedule.program_of` names. A schedule pins `resident` as forward_mode, and `fixed` as forward_fixed."""

BACKWARD = (
    Kernel("whole", supports=_whole, preferred=always, serves="float32, on any GPU", reason=_NO_TERMS),
    Kernel(
        "streams",
        supports=_streams,
        preferred=always,
        serves=_STREAMS,
        reason="always: x and dh_in are read once for both products, whose sums fit into registers",
    ),
    Kernel(
        "ring",
        supports=_ring,
        preferred=always,
        serves=_RING,
        reason="always: a loading warp keeps tiles coming during the products",
    ),
    Kernel(
        "plain",
        supports=_terms,
        preferred=always,
        serves="bfloat16 and float16, on any GPU",
        reason="always",
    ),
)
