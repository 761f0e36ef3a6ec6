"""The shapes (B, S, n, D) that are drawn for mHC Forward Pre, within a limit of elements.

With M = n*n + 2*n the largest tensors are x with B*S*n*D, phi with M*n*D, and gates with B*S*M elements.
"""

from collections.abc import Mapping, Sequence

from mhc.operator import Draw

MAX_N = 16
BATCH = (*(1,) * 6, *(2,) * 5, *(3,) * 4, *(5,) * 3, 0)
STREAMS = (1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16)
WIDE = 256
"""Rows with a larger D need more than one block in most kernels' reductions; one case in twelve has one."""
LONGEST = {"B": 1 << 18, "S": 1 << 18, "D": 8192}
"""The largest size that is drawn while all others are small."""
MODEL_STREAMS = (4, 4, 4, 1, 2, 8)
"""n is 4 in the paper."""
MODEL_WIDTHS = (1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192)
"""D from 1280 to 7168 in the paper, and the widths of other models."""
MODEL_TOKENS = 16384
"""The largest N of a call in a model."""
PROBES = ({"B": 1, "S": 1, "n": 1, "D": 1}, {"B": 1, "S": 70, "n": 2, "D": 8}, {"B": 2, "S": 3, "n": 4, "D": 33})
"""The simplest shape; more than 64 tokens; another n and D. All are small, since probes run often."""

_AXES = ("S", "D", "S", "D", "S", "B", "B", "n and D")
_ODD = (0, 0, 0, 1, -1, 37, -64)
_WHOLE = (False, False, False, False, False, False, False, True)


def draw_sizes(
    draw: Draw,
    reach: str,
    *,
    max_elements: int,
    usual: Sequence[int],
    beside: Sequence[int],
    like: Mapping[str, int] | None,
    max_n: int = MAX_N,
) -> Mapping[str, int]:
    """Return B, S, n and D, as `Operator.draw_sizes` says."""
    match reach:
        case "stretched":
            B, S, n, D = _stretched(draw, max_elements, max_n)
        case "model":
            B, S, n, D = _model(draw, max_elements, max_n)
        case _:
            kept = None if like is None else (like["n"], like["D"])
            B, S, n, D = _usual(draw, max_elements, max_n, usual, beside, kept)
    return {"B": B, "S": S, "n": n, "D": D}


def _usual(
    draw: Draw,
    max_elements: int,
    max_n: int,
    widths: Sequence[int],
    beside: Sequence[int],
    like: tuple[int, int] | None,
) -> tuple[int, int, int, int]:
    """Draw small sizes and those next to a tile, with at most `max_elements` per tensor, or what n = D = 1 needs."""
    if like is None:
        wide = next((size for size in widths if size > WIDE), max_elements)
        least = wide if 3 * wide <= max_elements and draw.integer(0, 11) == 11 else 1
        n = draw.choice(tuple(n for n in STREAMS if n <= max_n and (n * n + 2 * n) * n * least <= max_elements) or (1,))
        widest = max(1, max_elements // ((n * n + 2 * n) * n))
        # from one list, so that a wide D shrinks to a narrow one
        D = widths[draw.integer(widths.index(least), sum(size <= widest for size in widths) - 1)]
    else:
        n, D = like
    row = max(n * D, n * n + 2 * n)
    B = draw.choice(tuple(size for size in BATCH if size <= 1 or size * row <= max_elements))
    most = max(1, max_elements // (max(B, 1) * row))
    few = (1, 1, 1, 2, 2, 2, 3, 3, 3, 0)  # if the limit allows no others, few shapes are empty
    lengths = [*few, *sorted({*range(4, 10), *beside} - {*few})]
    S = draw.choice(tuple(size for size in lengths if size <= most))
    return B, S, n, D


def _stretched(draw: Draw, max_elements: int, max_n: int) -> tuple[int, int, int, int]:
    """Draw one size log-uniform up to its limit and the others small."""
    axis = draw.choice(_AXES)
    few = axis in {"S", "B"}  # many tokens need few streams and columns: x has n*D elements a token, gates n*n + 2*n
    n = draw.choice(tuple(one for one in ((1, 1, 1, 2, 4) if few else (1, 1, 2, 4, 3, 5, 8)) if one <= max_n))
    B, S, D = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 3 if few else 6)
    match axis:
        case "S":
            S = draw.log_uniform(257, min(LONGEST["S"], max_elements // (B * max(n * D, n * n + 2 * n))))
        case "B":
            S = draw.integer(1, 2)
            B = draw.log_uniform(257, min(LONGEST["B"], max_elements // (S * max(n * D, n * n + 2 * n))))
        case "D":
            D = draw.log_uniform(257, min(LONGEST["D"], max_elements // ((n * n + 2 * n) * n)))
        case _:  # any n; only K = n*D is large
            n = draw.integer(1, max_n)
            D = draw.log_uniform(65, min(LONGEST["D"], max_elements // ((n * n + 2 * n) * n)))
    return B, S, n, D


def _model(draw: Draw, max_elements: int, max_n: int) -> tuple[int, int, int, int]:
    """Draw a shape as in a model or close to it, with at most `max_elements` in x; few tokens first."""
    least = min(MODEL_WIDTHS)
    streams = [one for one in MODEL_STREAMS if one <= max_n and (one * one + 2 * one) * one * least <= 2 * max_elements]
    n = draw.choice(tuple(streams) or (min(MODEL_STREAMS),))
    fitting = tuple(one for one in MODEL_WIDTHS if (n * n + 2 * n) * n * one <= 2 * max_elements) or (least,)
    D = draw.choice(fitting) + draw.choice(_ODD)
    fitting_tokens = max(1, max_elements // (n * D))
    if draw.choice(_WHOLE):  # as many elements as allowed: offsets may overflow
        B = draw.choice(tuple(size for size in (1, 2) if size <= fitting_tokens))
        return B, fitting_tokens // B, n, D
    tokens = min(MODEL_TOKENS, fitting_tokens)
    B = draw.choice(tuple(size for size in (1, 1, 2, 4) if size <= tokens))
    return B, draw.log_uniform(1, tokens // B), n, D
