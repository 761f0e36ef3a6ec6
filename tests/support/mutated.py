"""JSON documents with some values replaced by any others: files from an untrusted source."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -0.0, 0.5, float("inf"), float("nan")]),
    st.text(max_size=4),
    st.sampled_from(["nan", "inf", "\ud800", "\x1b[31m", "../x", "bound", "float32", "9" * 5000]),
)
VALUES: SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value, the whole document first."""
    yield path
    inside = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """Return `document` with one to three of its values replaced or left out."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(changed))))
        if not path:
            return draw(VALUES)
        inside = changed
        for key in path[:-1]:
            inside = inside[key]
        if isinstance(inside, dict) and draw(st.booleans()):
            del inside[path[-1]]
        else:
            inside[path[-1]] = draw(VALUES)
    return changed
