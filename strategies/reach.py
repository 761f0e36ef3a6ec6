"""How far the sizes of drawn cases reach."""

import math
from enum import Enum

from hypothesis import strategies as st

LIMITS = {"D": 8192, "B": 1 << 17, "S": 1 << 17}
_STRETCHED_ELEMENTS = 1 << 18
_WIDTHS = (1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)


class Reach(Enum):
    """Which sizes a round draws."""

    USUAL = "usual"
    STRETCHED = "stretched"  # one of B, S, D log-uniform up to its limit, the other axes small
    MODEL = "model"  # widths and numbers of streams that models have


@st.composite
def reached(draw: st.DrawFn, reach: Reach, max_elements: int) -> tuple[int, int, int, int]:
    """(B, S, n, D) of a reach that is not usual: a stub."""
    if reach is Reach.STRETCHED:
        symbol = draw(st.sampled_from(sorted(LIMITS)))
        size = round(2 ** draw(st.floats(0, math.log2(LIMITS[symbol]))))
        sizes = {"B": 1, "S": draw(st.integers(1, 3)), "n": draw(st.sampled_from((1, 1, 2, 4))), "D": draw(st.integers(1, 5))}
        sizes[symbol] = size
        while sizes["n"] > 1 and _largest(sizes) > _STRETCHED_ELEMENTS:
            sizes["n"] //= 2
        for name in ("S", "D"):
            if name != symbol and _largest(sizes) > _STRETCHED_ELEMENTS:
                sizes[name] = 1
        return sizes["B"], sizes["S"], sizes["n"], sizes["D"]
    n = draw(st.sampled_from((1, 2, 4, 4, 8)))
    D = draw(st.sampled_from(_WIDTHS)) + draw(st.sampled_from((0, 0, 0, 1, -1)))
    most = max(1, min(16384, max_elements // (n * D)))
    return 1, round(2 ** draw(st.floats(0, math.log2(most)))), n, D


def _largest(sizes: dict[str, int]) -> int:
    n, N = sizes["n"], sizes["B"] * sizes["S"]
    return max(N * n * sizes["D"], N * (n * n + 2 * n), (n * n + 2 * n) * n * sizes["D"])
