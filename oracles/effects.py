"""The effects gate: checks that a stage leaves generators, modes, precision switches, current device and stream unchanged.

`mhc.global_state` lists the settings and restores them.
"""

from mhc.observation import Observation
from mhc.oracles.verdict import Verdict, failed, not_applicable, passed

NAME = "effects"


def judge(observation: Observation) -> list[Verdict]:
    """Return a failure for each setting that was left changed, or one verdict for all settings."""
    how: dict[str, list[str]] = {}
    for change in observation.changes:
        what = f"left changed: {change.setting}: {change.how}" if change.how else f"drew from, or seeded, {change.setting}"
        how.setdefault(change.setting, []).append(f"{change.stage} {what}")
    if how:
        return [failed(NAME, setting, "changed", "; ".join(changes)) for setting, changes in how.items()]
    if not observation.outputs and not observation.gradients:
        return [not_applicable(NAME, "settings", "no stage ran to its end")]
    return [passed(NAME, "settings")]
