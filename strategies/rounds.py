"""Rounds of Hypothesis: short ones, without a database and a report of its own."""

from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import SearchStrategy

ROUND = 10
"""Cases of a round. After ten cases Hypothesis mostly varies earlier ones: five of six would be near copies."""


def quiet(count: int, *, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)) -> settings:
    """Return settings for `count` cases without database, deadline, health checks or reproduction blob."""
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def drawn(strategy: SearchStrategy[Any], count: int, seed: int) -> list[Any]:
    """Return what one round draws."""
    found: list[Any] = []

    def keep(one: Any) -> None:
        found.append(one)

    settings = quiet(count, phases=(Phase.generate,))
    hypothesis.seed(seed)(settings(hypothesis.given(strategy)(keep)))()
    return found[:count]
