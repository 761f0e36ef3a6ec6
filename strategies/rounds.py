"""How Hypothesis is run here: short rounds, nothing kept on disk, and what is found is told by the caller."""

from hypothesis import HealthCheck, Phase, settings

ROUND = 10
"""Cases. A longer run Hypothesis fills up, after ten, with variations of what it drew: five of six would be near copies."""


def quiet(count: int, *, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)) -> settings:
    """`count` cases, with no database, deadline or health check, and no blob to reproduce a failure by."""
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
