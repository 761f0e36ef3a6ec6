"""Hypothesis profiles. `ci` is taken where Hypothesis recognises continuous integration, `dev` elsewhere."""

from hypothesis import HealthCheck, settings


def register() -> None:
    """Register and load them; pytest's `--hypothesis-profile` comes later and has the last word.

    All of them descend from Hypothesis's own default: in continuous integration a profile without a parent descends from
    Hypothesis's `ci`, so that `nightly` would draw the same cases every night.
    """
    default = settings.get_profile("default")
    settings.register_profile("dev", default, max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    dev = settings.get_profile("dev")
    here = "ci" if settings.get_current_profile_name() == "ci" else "dev"
    settings.register_profile("ci", dev, derandomize=True, database=None, print_blob=True)
    settings.register_profile("nightly", dev, max_examples=2000, print_blob=True)
    settings.load_profile(here)
