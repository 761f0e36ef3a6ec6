"""Settings of Hypothesis: short rounds, no database, and no report of its own."""

from hypothesis import HealthCheck, Phase, settings

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
