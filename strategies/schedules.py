"""Kernel schedules out of the space that an implementation declares, simplest first: its own default."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from mhc.case import ScheduleValue


@st.composite
def schedules(draw: st.DrawFn, space: Mapping[str, Sequence[ScheduleValue]]) -> dict[str, ScheduleValue]:
    """Values for a few of the space's names; those left out have the implementation's default. Shrinks to none."""
    if not space or draw(st.integers(0, 3)) < 3:
        return {}
    names = draw(st.lists(st.sampled_from(sorted(space)), max_size=4, unique=True))
    return {name: draw(st.sampled_from(tuple(space[name]))) for name in names}


def tiles(spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]]) -> tuple[int, ...]:
    """The integers among the declared choices that can be the size of a tile."""
    choices = {value for space in spaces.values() for values in space.values() for value in values}
    return tuple(sorted({value for value in choices if isinstance(value, int) and 8 <= value <= 4096}))
