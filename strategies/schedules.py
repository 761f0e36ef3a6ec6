"""Kernel schedules from the space that an implementation declares; the default is the simplest."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from mhc.autotuned import CONFIG
from mhc.case import ScheduleValue


@st.composite
def schedules(draw: st.DrawFn, space: Mapping[str, Sequence[ScheduleValue]]) -> dict[str, ScheduleValue]:
    """Draw values for one or two parameters of the space, in half of the cases; the others keep their default.

    Most combinations of more parameters are refused. Parameters with words or truth values, which select a code path, are
    together drawn as often as the sizes. Shrinks to an empty schedule.
    """
    if not space or not draw(st.booleans()):
        return {}
    names = sorted(space)
    paths = [name for name in names if any(isinstance(value, (str, bool)) for value in space[name])]
    weighted = [*names, *paths * (len(names) // len(paths) - 1)] if paths else names
    chosen = draw(st.lists(st.sampled_from(weighted), min_size=1, max_size=2, unique=True))
    return {name: draw(st.sampled_from(tuple(space[name]))) for name in chosen}


def tiles(spaces: Mapping[str, Mapping[str, Sequence[ScheduleValue]]]) -> tuple[int, ...]:
    """Return the integers among the declared values that can be tile sizes."""
    chosen = [values for space in spaces.values() for name, values in space.items() if name != CONFIG]
    choices = {value for values in chosen for value in values}
    return tuple(sorted({value for value in choices if isinstance(value, int) and 8 <= value <= 4096}))
