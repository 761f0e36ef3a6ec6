"""Shapes: sizes where kernels change their path, simplest first, within a budget of elements."""

from hypothesis import strategies as st

BATCH = (1, 2, 3, 0, 5)
SEQUENCE = (1, 2, 3, 0, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 129)
WIDTH_EDGES = (63, 64, 65, 72, 96, 127, 128, 129, 200, 255, 256, 257, 511, 513, 1024, 1111)


@st.composite
def shapes(draw: st.DrawFn, *, max_n: int, max_elements: int) -> tuple[int, int, int, int]:
    """(B, S, n, D) with B*S*n*D and the projection's (n*n + 2*n)*n*D at most `max_elements`; shrinks to (1, 1, 1, 1)."""
    n = draw(st.integers(1, max_n))
    widest = max(1, max_elements // ((n * n + 2 * n) * n))
    D = draw(st.integers(1, min(40, widest)) | st.sampled_from([size for size in (1, *WIDTH_EDGES) if size <= widest]))
    B = draw(st.sampled_from(BATCH))
    most = max(1, max_elements // (max(B, 1) * n * D))
    S = draw(st.sampled_from([size for size in SEQUENCE if size <= most]))
    return B, S, n, D
