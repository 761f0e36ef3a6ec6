"""Kernel schedules out of the space that an implementation declares, simplest first: its own default."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from mhc.case import ScheduleValue


@st.composite
def schedules(draw: st.DrawFn, space: Mapping[str, Sequence[ScheduleValue]]) -> dict[str, ScheduleValue]:
    """In half of the cases a value for one or two of the space's names; the others have the implementation's default.

    Few at once, since most combinations of more do not fit a shape and are refused. Names whose choices are words or truth
    values, which select a path, are drawn as often together as the sizes are. Shrinks to none.
    """
    if not space or not draw(st.booleans()):
        return {}
    names = sorted(space)
    paths = [name for name in names if any(isinstance(value, (str, bool)) for value in space[name])]
    weighted = [*names, *paths * (len(names) // len(paths) - 1)] if paths else names
    chosen = draw(st.lists(st.sampled_from(weighted), min_size=1, max_size=2, unique=True))
    return {name: draw(st.sampled_from(tuple(space[name]))) for name in chosen}


def tiles(spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]]) -> tuple[int, ...]:
    """The integers among the declared choices that can be the size of a tile."""
    choices = {value for space in spaces.values() for values in space.values() for value in values}
    return tuple(sorted({value for value in choices if isinstance(value, int) and 8 <= value <= 4096}))
