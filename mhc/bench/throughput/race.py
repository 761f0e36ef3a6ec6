"""How soon a campaign finds known-bad implementations, beside the plain loop: the same mutants on the same cores.

Each compiles for itself, in a cache of its own that is empty when it begins. What either finds counts if the correct
implementation passes the same case; the time of that run is not counted.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhc.bench.apart import Ended, run_apart
from mhc.bench.campaigns import campaign
from mhc.bench.detection.hunt import base_subject, subject
from mhc.bench.detection.sets import KNOWN, set_of
from mhc.bench.detection.suites import COMPARATORS
from mhc.bench.markdown import table
from mhc.bench.throughput.plain import apart
from mhc.case import Case
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.check.check import check
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import Implementation
from mhc.oracles.mutants.record import Mutant
from mhc.registry import load

_PARTS = (0.125, 0.25, 0.5, 1.0)  # of the limit: the score is also given for these limits
_HEAD = (
    *("seconds each", "", "killed", "clean flagged", "seconds, all mutants", "kills a minute"),
    *("campaign's kills a minute over it", "its seconds over the campaign's"),
)
_RUN, _COMPILE = 30.0, 30.0  # seconds after which a run, or one that compiles, hangs: a race is short


@dataclass(frozen=True, kw_only=True)
class Race:
    """One mutant under the campaign and under the plain loop.

    Attributes:
        campaign: seconds until it had a finding that counts, without the start of its process; None where it had none.
        plain: the same of the loop, by comparator; absent where it found nothing.
        found: the message of that finding, and its case.
        cases: that the campaign had checked by then.
        fault: of the harness, if one ended the campaign.
    """

    name: str
    base: str
    clean: bool
    campaign: float | None
    plain: dict[str, float]
    cases: int
    found: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Score:
    """The findings of the campaign or of the plain loop.

    Attributes:
        seconds: of all mutants, each up to its kill or the limit. flagged: clean variants.
    """

    kills: int
    seconds: float
    flagged: int

    @property
    def per_minute(self) -> float:
        return 60 * self.kills / self.seconds if self.seconds else 0.0


def race(mutant: Mutant, limit: float, seed: int) -> Race:
    """Race one mutant: it has `limit` seconds under each of the two, one after the other."""
    spec, correct = subject(mutant).spec, base_subject(mutant.base).spec
    fault, at, found, cases = "", None, "", 0
    with tempfile.TemporaryDirectory() as cache:
        try:
            at, found, cases = _campaign(spec, "" if mutant.clean else correct, limit, seed, cache)
        except HarnessError as error:
            fault = str(error)
    with tempfile.TemporaryDirectory() as cache:
        plain = apart(spec, seconds=limit, seed=seed, correct=correct, variables={"MHC_CACHE": cache})
    return Race(
        name=mutant.name,
        base=mutant.base,
        clean=mutant.clean,
        campaign=at,
        plain=dict(plain.kills),
        cases=cases,
        found=found,
        fault=fault,
    )


def _campaign(spec: str, correct: str, limit: float, seed: int, cache: str) -> tuple[float | None, str, int]:
    """Return the seconds until the first finding of a campaign with one worker, what that is, and its cases until then.

    Args:
        correct: names what must pass the finding's case; "" for nothing, since of a clean variant every finding counts.
    """
    loaded = load(spec)
    implementation = replace(loaded, env={**loaded.env, "MHC_CACHE": cache})
    specs = {implementation.name: (spec, implementation)}

    def counts(running: Campaign) -> Mapping[str, float]:
        return running.store.counts().get(implementation.name, {})

    counted: dict[str, bool] = {}  # of each finding, whether the correct implementation passes its case

    def first_counted(running: Campaign) -> Mapping[str, Any] | None:
        findings = running.store.findings() if running.found else {}
        for key, kept in findings.items():
            if key not in counted:
                counted[key] = not correct or _is_right(correct, json.dumps(kept["document"]["case"]), limit)
        return next((kept for key, kept in findings.items() if counted[key]), None)

    def tick(running: Campaign) -> None:
        if first_counted(running) is not None:
            running.stop("found")
        elif running.now - counts(running).get("starting", 0.0) >= limit:
            running.stop("limit")

    pool = Pool(specs, LocalExecutor(specs, "cpu", 1, Limits(run=_RUN, compile=_COMPILE)))
    with campaign(specs, pool, Budget(), seed=seed, on_tick=tick) as running:
        running.run()
        first = first_counted(running)
        until = counts(running)
    cases = int(until.get("checked", 0) + until.get("refused", 0))
    if first is None or (seconds := first["at"] - until.get("starting", 0.0)) > limit:
        return None, "", cases
    found = first["document"]
    return max(0.0, seconds), f"{found['message']}: {json.dumps(found['case'])}", cases


def _is_right(correct: str, case: str, limit: float) -> bool:
    """Return whether the correct implementation passes a case, in a process of its own."""
    try:
        return bool(run_apart(_passes, correct, case, limit=limit))
    except Ended:
        return False


def _passes(implementation: Implementation, case: str) -> bool:
    return not check(implementation, Case.from_json(case), "cpu").failures


def scores(races: Sequence[Race], limit: float) -> dict[str, Score]:
    """Return the scores of the campaign, and of the plain loop under each comparator, with `limit` seconds a mutant."""
    found = {"campaign": [(one.clean, one.campaign) for one in races]}
    for name in COMPARATORS:
        found[f"plain loop, {name}"] = [(one.clean, one.plain.get(name)) for one in races]
    return {name: _score(times, limit) for name, times in found.items()}


def _score(times: Sequence[tuple[bool, float | None]], limit: float) -> Score:
    hunted = [at for clean, at in times if not clean]
    kills = [at for at in hunted if at is not None and at <= limit]
    return Score(
        kills=len(kills),
        seconds=sum(kills) + limit * (len(hunted) - len(kills)),
        flagged=sum(clean and at is not None and at <= limit for clean, at in times),
    )


def tables(mutants: Sequence[Mutant], races: Sequence[Race], limit: float) -> Iterator[str]:
    """Yield the title and table of all races, where there are several sets, and of each set with all clean variants.

    Then what the campaign found in clean variants.
    """
    clean = [one for one in races if one.clean]
    sets: dict[str, list[Race]] = {}
    for mutant, result in zip(mutants, races, strict=True):
        if not mutant.clean:
            sets.setdefault(set_of(mutant), []).append(result)
    if len(sets) > 1:
        yield f"All\n\n{race_table(races, limit)}"
    for name, of_set in sets.items():
        yield f"{name}. {KNOWN[name]}\n\n{race_table([*of_set, *clean], limit)}"
    yield from (f"{one.name}, which is clean: {one.found}" for one in clean if one.campaign is not None)


def race_table(races: Sequence[Race], limit: float) -> str:
    """Return the table of a set of mutants, and of all clean variants."""
    hunted = sum(not one.clean for one in races)
    rows = []
    for part in _PARTS:
        found = scores(races, limit * part)
        ours = found["campaign"]
        for name, score in found.items():
            often = f"{ours.per_minute / score.per_minute:.1f}" if score.per_minute else "-"
            longer = f"{score.seconds / ours.seconds:.1f}" if ours.seconds else "-"
            kills = (f"{score.kills} of {hunted}", str(score.flagged), f"{score.seconds:.0f}", f"{score.per_minute:.1f}")
            rows.append((f"{limit * part:g}", name, *kills, often, longer))
    return table(_HEAD, rows)
