"""The aliasing gate: no output shares memory with an input, a saved tensor or another output, unless that is declared.

A result that is a view of something else changes when that is written to, which a caller may do at any time.
"""

from mhc.observation import Observation
from oracles.trial import results
from oracles.verdict import Verdict, failed, not_applicable, passed

NAME = "aliasing"


def judge(observation: Observation) -> list[Verdict]:
    """A failure for each result that shares memory, or one verdict on all of them."""
    others: dict[str, list[str]] = {}
    for name, other in observation.aliased:
        others.setdefault(name, []).append(other)
    if others:
        return [
            failed(NAME, name, "shares memory", f"{name} shares memory with {', '.join(found)}, which is not declared")
            for name, found in others.items()
        ]
    if all(value is None or not value.numel() for value in results(observation).values()):
        return [not_applicable(NAME, "results", "no result has an element")]
    return [passed(NAME, "results")]
