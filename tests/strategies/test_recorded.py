"""What is drawn may not change unseen."""

import json
from pathlib import Path

import mhc.strategies
from mhc.strategies import cases, layouts, reach, regions, schedules, shapes, values
from tests.strategies import recorded

DRAWN = (cases, layouts, reach, regions, schedules, shapes, values)


def test_cases_are_the_recorded_ones() -> None:
    """A new module of strategies needs cases that reach it."""
    assert recorded.recorded() == json.loads(recorded.FILE.read_text(encoding="utf-8")), recorded.COMMAND
    found = {path.stem for path in Path(*mhc.strategies.__path__).glob("*.py")} - {"__init__", "choice", "rounds"}
    assert found == {module.__name__.removeprefix("mhc.strategies.") for module in DRAWN}
