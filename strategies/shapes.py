"""Shapes: sizes where kernels change their path, simplest first, within a budget of elements."""

from collections.abc import Iterable

from hypothesis import strategies as st

from strategies.choice import choice

BATCH = (*(1,) * 6, *(2,) * 5, *(3,) * 4, *(5,) * 3, 0)
STREAMS = (1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16)
TILES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Of kernels whose schedule is not known."""
WIDE = 256
"""A row of D that is longer takes more than one block of most kernels' reductions over it; of one case in twelve it is."""
PRIMES = (43, 61, 97, 131, 199, 251, 509, 1021)
EIGHT_MOD_SIXTEEN = (40, 56, 72, 88, 104, 136, 200, 264, 520)


def edges(tiles: Iterable[int]) -> tuple[int, ...]:
    """Each tile, one less and one more, in order."""
    return tuple(sorted({size for tile in tiles for size in (tile - 1, tile, tile + 1)}))


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    max_n: int,
    max_elements: int,
    tiles: tuple[int, ...] = TILES,
    like: tuple[int, int] | None = None,
) -> tuple[int, int, int, int]:
    """(B, S, n, D) with every tensor of at most `max_elements`, or of what n = D = 1 needs; shrinks to (1, 1, 1, 1).

    With M = n*n + 2*n the largest are x of B*S*n*D, the projection of M*n*D, and gates of B*S*M.

    Args:
        tiles: sizes of blocks that kernels cut a dimension into; D and the tokens of a batch are drawn at and beside them.
        like: n and D, where only B and S are to be drawn.
    """
    beside = edges(tiles)
    if like is None:
        widths = [*range(1, 41), *sorted({*beside, *PRIMES, *EIGHT_MOD_SIXTEEN} - set(range(41)))]
        wide = next((size for size in widths if size > WIDE), max_elements)
        least = wide if 3 * wide <= max_elements and draw(st.integers(0, 11)) == 11 else 1
        n = draw(choice(tuple(n for n in STREAMS if n <= max_n and (n * n + 2 * n) * n * least <= max_elements) or (1,)))
        widest = max(1, max_elements // ((n * n + 2 * n) * n))
        # of one list, wide or not, so that a wide one shrinks to one that is not
        D = widths[draw(st.integers(widths.index(least), sum(size <= widest for size in widths) - 1))]
    else:
        n, D = like
    row = max(n * D, n * n + 2 * n)
    B = draw(choice(tuple(size for size in BATCH if size <= 1 or size * row <= max_elements)))
    most = max(1, max_elements // (max(B, 1) * row))
    few = (1, 1, 1, 2, 2, 2, 3, 3, 3, 0)  # where the budget leaves no others, empty ones must not be many
    lengths = [*few, *sorted({*range(4, 10), *beside} - {*few})]
    S = draw(choice(tuple(size for size in lengths if size <= most)))
    return B, S, n, D
