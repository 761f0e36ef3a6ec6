"""How soon a campaign finds known-bad implementations, beside the plain loop: the same mutants on the same cores.

Each compiles for itself, in a cache of its own that is empty when it begins.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mhc.bench.campaigns import campaign
from mhc.bench.detection.hunt import base_subject, subject
from mhc.bench.detection.suites import COMPARATORS
from mhc.bench.state import Results
from mhc.bench.throughput.plain import apart
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.registry import load
from oracles.mutants.record import Mutant

_RUN, _COMPILE = 30.0, 30.0  # seconds after which a run, or one that compiles, hangs: a race is short


@dataclass(frozen=True, kw_only=True)
class Race:
    """One mutant under the campaign and under the plain loop.

    Attributes:
        campaign: seconds until it had a finding, without the start of its process; None where it had none.
        plain: the same of the loop, by comparator; absent where it found nothing.
        cases, plain_cases: that each had checked by then.
        fault: of the harness, if one ended the campaign.
    """

    name: str
    base: str
    clean: bool
    campaign: float | None
    plain: dict[str, float]
    cases: int
    plain_cases: int
    fault: str = ""


class State(Results[Race]):
    """Finished races."""

    key, kind = "races", Race


@dataclass(frozen=True)
class Score:
    """The findings of one of the two. seconds: of all mutants, each up to its kill or the limit. flagged: clean variants."""

    kills: int
    seconds: float
    flagged: int

    @property
    def per_minute(self) -> float:
        return 60 * self.kills / self.seconds if self.seconds else 0.0


def race(
    mutants: Sequence[Mutant],
    state: State,
    *,
    limit: float,
    jobs: int,
    seed: int,
    on_race: Callable[[Mutant, Race], None] = lambda mutant, result: None,
) -> list[Race]:
    """Race the mutants, `jobs` at a time; each has `limit` seconds under each of the two, one after the other."""
    first = FORKSERVER.Process()  # what the first process alone waits for is in no race
    first.start()
    first.join()
    return state.complete(mutants, lambda mutant: _one(mutant, limit, seed), jobs, on_race)


def _one(mutant: Mutant, limit: float, seed: int) -> Race:
    prey = subject(mutant)
    fault, at, cases = "", None, 0
    with tempfile.TemporaryDirectory() as cache:
        try:
            at, cases = _campaign(prey.spec, limit, seed, cache)
        except HarnessError as error:
            fault = str(error)
    with tempfile.TemporaryDirectory() as cache:
        correct = base_subject(mutant.base).spec
        plain = apart(prey.spec, seconds=limit, seed=seed, correct=correct, variables={"MHC_CACHE": cache})
    return Race(
        name=mutant.name,
        base=mutant.base,
        clean=mutant.clean,
        campaign=at,
        plain=dict(plain.kills),
        cases=cases,
        plain_cases=plain.cases,
        fault=fault,
    )


def _campaign(spec: str, limit: float, seed: int, cache: str) -> tuple[float | None, int]:
    """Return the seconds until the first finding of a campaign with one worker, and its cases until then."""
    loaded = load(spec)
    implementation = replace(loaded, env={**loaded.env, "MHC_CACHE": cache})
    specs = {implementation.name: (spec, implementation)}

    def tick(running: Campaign) -> None:
        starting = running.store.counts().get(implementation.name, {}).get("starting", 0.0)
        if running.found:
            running.stop("found")
        elif running.now - starting >= limit:
            running.stop("limit")

    pool = Pool(specs, LocalExecutor(specs, "cpu", 1, Limits(run=_RUN, compile=_COMPILE)))
    with campaign(specs, pool, Budget(), seed=seed, on_tick=tick) as running:
        running.run()
        at = min((row["at"] for row in running.store.findings().values()), default=None)
        counts = running.store.counts().get(implementation.name, {})
    starting = counts.get("starting", 0.0)
    cases = int(counts.get("checked", 0) + counts.get("refused", 0))
    return None if at is None or at - starting > limit else max(0.0, at - starting), cases


def scores(races: Sequence[Race], limit: float) -> dict[str, Score]:
    """Return the scores of the campaign, and of the plain loop under each comparator, with `limit` seconds a mutant."""
    found = {"campaign": [(one.clean, one.campaign) for one in races]}
    for name in COMPARATORS:
        found[f"plain loop, {name}"] = [(one.clean, one.plain.get(name)) for one in races]
    return {name: _score(times, limit) for name, times in found.items()}


def _score(all_times: Sequence[tuple[bool, float | None]], limit: float) -> Score:
    times = [(clean, None if at is None or at > limit else at) for clean, at in all_times]
    hunted = [at for clean, at in times if not clean]
    return Score(
        kills=sum(at is not None for at in hunted),
        seconds=sum(limit if at is None else at for at in hunted),
        flagged=sum(clean and at is not None for clean, at in times),
    )
