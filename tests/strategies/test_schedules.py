"""Which parameters of a schedule are drawn, how often, and which of their values."""

from typing import Any

import pytest
from hypothesis import find, strategies
from hypothesis import strategies as st

from mhc.strategies.rounds import quiet
from mhc.strategies.schedules import schedules, tiles

SPACES: dict[str, tuple[dict[str, tuple[Any, ...]], list[str]]] = {
    # the space, and the names that are drawn from, repeated by weight
    "sizes alone": ({"WARPS": (4, 8), "BLOCK": (8, 96)}, ["BLOCK", "WARPS"]),
    "a word": ({"C": (1,), "A": (1,), "P": ("a", "b"), "B": (2,)}, ["A", "B", "C", "P", "P", "P", "P"]),
    "a truth value": ({"A": (1,), "B": (2,), "F": (True, False)}, ["A", "B", "F", "F", "F"]),
    "two paths": ({"A": (1,), "B": (2,), "F": (1, False), "P": ("a", 1)}, ["A", "B", "F", "P", "F", "P"]),
    "paths alone": ({"F": (True, False)}, ["F"]),
}


@pytest.mark.parametrize("name", SPACES)
def test_paths_are_as_likely_as_all_sizes_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, wanted = SPACES[name]
    offered: list[list[Any]] = []
    sampled_from = st.sampled_from

    def noted(options: Any) -> Any:
        offered.append([*options])
        return sampled_from(options)

    with monkeypatch.context() as patched:
        patched.setattr(strategies, "sampled_from", noted)
        found = find(schedules(space), bool, settings=quiet(200))
    assert offered[0] == wanted
    assert set(map(tuple, offered[1:])) <= {tuple(wanted), *space.values()}
    assert all(value in space[name] for name, value in found.items())


def test_one_or_two_parameters_and_no_more() -> None:
    space: dict[str, Any] = dict.fromkeys("ABCD", (1, 2))
    two = find(schedules(space), lambda one: len(one) == 2, settings=quiet(500))
    assert two == {"A": 1, "B": 1}
    assert find(schedules(space), bool, settings=quiet(500)) == {"A": 1}
    assert find(schedules(space), lambda one: one.get("D") == 2, settings=quiet(500))["D"] == 2
    assert find(schedules(space), lambda one: True, settings=quiet(500)) == {}


def test_tiles_are_integers_from_8_to_4096() -> None:
    assert tiles({"a": {"X": (7, 8, 9, "x", False)}, "b": {"Y": (4095, 4096, 4097, 8, True)}}) == (8, 9, 4095, 4096)
