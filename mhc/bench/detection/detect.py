"""Hunts for mutants with drawn cases, and with the suites that one would otherwise write; several at a time."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mhc.bench.apart import Ended, run_apart
from mhc.bench.detection import suites
from mhc.bench.detection.hunt import LIMIT, Hunt, Subject, drawn_for, hunt
from mhc.bench.state import Results
from oracles.mutants.record import BASES

_SUITES_LIMIT = 300.0  # seconds; suites with real token counts take half a minute of a core
_SLOW = 25
"""How much longer a case takes in an interpreter."""


def detect(
    subjects: Sequence[Subject],
    state: Results[Hunt],
    *,
    count: int,
    seed: int,
    jobs: int,
    clean: int | None = None,
    limit: float = LIMIT,
    seconds: float = float("inf"),
    on_hunt: Callable[[Subject, Hunt], None] = lambda prey, result: None,
) -> list[Hunt]:
    """Hunt every subject that `state` does not have yet, `jobs` at a time; in the order of `subjects`.

    Args:
        count, seed: of the drawn cases, the same for all subjects of a base but for drawn thresholds.
        limit, seconds: as for `hunt`.
        clean: cases for what is clean, where that is not `count`; of a base that is not quick, a twenty-fifth of them.
    """

    def cases(prey: Subject) -> int:
        if clean is None or not prey.clean:
            return count
        return clean if BASES[prey.base].quick else max(1, clean // _SLOW)

    most: dict[tuple[str, str, int], int] = {}
    for prey in state.waiting(subjects):
        most[_sample(prey)] = max(cases(prey), most.get(_sample(prey), 0))
    drawn = {(base, device, own): drawn_for(base, many, seed + own, device) for (base, device, own), many in most.items()}

    def one(prey: Subject) -> Hunt:
        result = hunt(prey, drawn[_sample(prey)][: cases(prey)], limit=limit, seconds=seconds)
        return replace(result, suites=judge_apart(prey))

    return state.complete(subjects, one, jobs, on_hunt)


def _sample(prey: Subject) -> tuple[str, str, int]:
    """Return a key: subjects with the same one are hunted with the same cases."""
    return prey.base, prey.device, prey.own


def judge_apart(prey: Subject) -> dict[str, list[str]]:
    """Return what each fixed suite finds, in a process of its own; a mutant that ends or hangs it fails them all."""
    tests = (*suites.FIXED, *suites.FULL_SIZE) if BASES[prey.base].quick else suites.QUICK
    try:
        found: dict[str, list[str]] = run_apart(suites.judge, prey.spec, tests, prey.device, limit=_SUITES_LIMIT)
    except Ended as ended:
        return {name: ["hangs" if ended.status is None else "ends the process"] for name in suites.COMPARATORS}
    return found
