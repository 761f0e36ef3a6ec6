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
    most = min(max_elements, _STRETCHED_ELEMENTS) if reach is Reach.STRETCHED else max_elements
    if reach is Reach.STRETCHED:
        symbol = draw(st.sampled_from(sorted(LIMITS)))
        sizes = {
            "B": 1,
            "S": draw(st.integers(1, 3)),
            "n": draw(st.sampled_from((1, 1, 2, 4))),
            "D": draw(st.integers(1, 5)),
        }
        sizes[symbol] = round(2 ** draw(st.floats(0, math.log2(min(LIMITS[symbol], max(2, most // 3))))))
        for name in ("n", "S", "D"):
            if name != symbol and _largest(sizes) > most:
                sizes[name] = 1
        return sizes["B"], sizes["S"], sizes["n"], sizes["D"]
    n = draw(st.sampled_from((1, 2, 4, 4, 8)))
    D = draw(st.sampled_from(_WIDTHS)) + draw(st.sampled_from((0, 0, 0, 1, -1)))
    while n > 1 and (n * n + 2 * n) * n * D > most:
        n //= 2
    D = min(D, max(1, most // ((n * n + 2 * n) * n)))
    return 1, round(2 ** draw(st.floats(0, math.log2(max(1, min(16384, most // (n * D))))))), n, D


def _largest(sizes: dict[str, int]) -> int:
    n, N = sizes["n"], sizes["B"] * sizes["S"]
    return max(N * n * sizes["D"], N * (n * n + 2 * n), (n * n + 2 * n) * n * sizes["D"])
