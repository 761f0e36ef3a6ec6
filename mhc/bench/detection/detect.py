"""Hunts for mutants with drawn cases and with fixed suites, several at a time; campaigns over what is correct."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from mhc.bench import campaigns
from mhc.bench.apart import Ended, run_apart
from mhc.bench.detection import suites
from mhc.bench.detection.hunt import LIMIT, Hunt, Subject, base_subject, drawn_for, hunt
from mhc.bench.state import Results
from mhc.environment import gpu_memory
from mhc.fuzz.campaign.campaign import Budget
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.size_budget import room
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles.mutants.record import BASES
from mhc.registry import built_in, load

_SUITES_LIMIT = 300.0  # seconds; suites with real token counts take half a minute of a core
_CAMPAIGN = 300.0  # seconds that a campaign over a correct implementation takes at most
_GPU_SHARE = 0.9
"""Of a GPU's memory, what all hunts together may take."""
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
    share = _GPU_SHARE / jobs
    largest = {"cpu": None, "cuda": room(share * gpu_memory())}
    drawn = {
        (base, device, own): drawn_for(base, many, seed + own, device, largest[device])
        for (base, device, own), many in most.items()
    }

    def one(prey: Subject) -> Hunt:
        chosen = drawn[_sample(prey)][: cases(prey)]
        result = hunt(prey, chosen, limit=limit, seconds=seconds, gpu_share=share)
        return replace(result, suites=judge_apart(prey))

    return state.complete(subjects, one, jobs, on_hunt)


def _sample(prey: Subject) -> tuple[str, str, int]:
    """Return a key: subjects with the same one are hunted with the same cases."""
    return prey.base, prey.device, prey.own


def judge_apart(prey: Subject) -> dict[str, list[str]]:
    """Return what each fixed suite finds, in a process of its own; a mutant that ends or hangs that process fails them all.

    The suites are of mHC pre; of other operators nothing is returned.
    """
    if BASES[prey.base].operator != "mhc_pre":
        return {}
    tests = (*suites.FIXED, *suites.FULL_SIZE) if BASES[prey.base].quick else suites.QUICK
    try:
        found: dict[str, list[str]] = run_apart(suites.judge, prey.spec, tests, prey.device, limit=_SUITES_LIMIT)
    except Ended as ended:
        return {name: ["hangs" if ended.status is None else "ends the process"] for name in suites.COMPARATORS}
    return found


def bases_on(device: str) -> list[str]:
    """Return the bases of mutants that run on a device."""
    return [base for base in BASES if device in load(base_subject(base).spec).devices]


def others_on(device: str) -> list[str]:
    """Return the built-in implementations on a device that are no base of mutants."""
    hunted = {load(base_subject(base).spec).name for base in bases_on(device)}
    return [name for name, one in built_in("mhc_pre").items() if device in one.devices and name not in hunted]


def campaign(spec: str, device: str, *, cases: int, seed: int, jobs: int) -> Hunt:
    """Run a campaign over one correct implementation, with all workers, as `python -m mhc.fuzz` does.

    Return its cases, and its first finding as a false alarm; a known issue is no alarm. It ends after `cases`, or where they
    take longer, after `_CAMPAIGN` seconds.
    """
    implementation = load(spec)
    name = implementation.name
    specs = {name: (spec, implementation)}
    first: list[dict[str, Any]] = []
    fault = ""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    share = _GPU_SHARE / jobs if gpus else 1.0

    def alarm(finding: Finding) -> None:
        number = max(1, running.cases)
        message = f"{finding.fingerprint}: {finding.message}"
        fired = {finding.fingerprint.oracle: number}
        first.append(
            {"first": number, "seconds": running.now, "fired": fired, "message": message, "case": finding.case.json}
        )

    with campaigns.campaign(
        specs,
        Pool(specs, LocalExecutor(specs, device, jobs, Limits(gpu_share=share), gpus=gpus)),
        Budget(seconds=_CAMPAIGN, cases=cases),
        memory=share * gpu_memory() if gpus else Limits.memory,
        seed=seed,
        device=device,
        known_issues=KNOWN_ISSUES,
        on_finding=alarm,
    ) as running:
        try:
            running.run()
        except HarnessError as error:
            fault = str(error)
        counts = running.store.counts().get(name, {})
        worst = max((row[2] for row in running.store.table("worst")), default=0.0)
    refused = int(counts.get("refused", 0))
    done = int(counts.get("checked", 0)) + refused
    return Hunt(name=name, cases=done, refused=refused, worst=worst, fault=fault, **(first[0] if first else {}))
