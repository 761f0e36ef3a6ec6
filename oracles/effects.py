"""The effects gate: a stage leaves generators, default modes, precision switches, current device and stream as they were.

`mhc.global_state` lists them, and puts back what was changed.
"""

from mhc.observation import Observation
from oracles.verdict import Verdict, failed, not_applicable, passed

NAME = "effects"


def judge(observation: Observation) -> list[Verdict]:
    """A failure for each setting that was left changed, or one verdict on all of them."""
    how: dict[str, list[str]] = {}
    for change in observation.changes:
        told = f"left changed: {change.setting}: {change.how}" if change.how else f"drew from, or seeded, {change.setting}"
        how.setdefault(change.setting, []).append(f"{change.stage} {told}")
    if how:
        return [failed(NAME, setting, "changed", "; ".join(told)) for setting, told in how.items()]
    if not observation.outputs and not observation.gradients:
        return [not_applicable(NAME, "settings", "no stage ran to its end")]
    return [passed(NAME, "settings")]
