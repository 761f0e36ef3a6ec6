"""What is drawn may not change unseen."""

import json

from strategies import cases, layouts, reach, regions, schedules, shapes, values
from tests.strategies import recorded


def test_cases_are_the_recorded_ones() -> None:
    assert recorded.recorded() == json.loads(recorded.FILE.read_text(encoding="utf-8")), recorded.COMMAND
