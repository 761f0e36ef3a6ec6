"""The aliasing gate: checks that no result shares memory with an input, a saved tensor or another result, unless declared.

A result that is a view of another tensor changes when the caller writes to that tensor.
"""

from mhc.observation import Observation
from mhc.oracles.trial import results
from mhc.oracles.verdict import Verdict, failed, not_applicable, passed

NAME = "aliasing"


def judge(observation: Observation) -> list[Verdict]:
    """Return a failure for each result that shares memory, or one verdict for all results."""
    others: dict[str, list[str]] = {}
    for name, other in observation.aliased:
        others.setdefault(name, []).append(other)
    if others:
        return [failed(NAME, name, "shares memory", _message(name, found)) for name, found in others.items()]
    if all(value is None or not value.numel() for value in results(observation).values()):
        return [not_applicable(NAME, "results", "no result has an element")]
    return [passed(NAME, "results")]


def _message(name: str, others: list[str]) -> str:
    pairs = " ".join(f'("{name}", "{one}"),' for one in others)
    return f"{name} shares memory with {', '.join(others)}, which is not declared; if it is meant: aliases=({pairs})"
