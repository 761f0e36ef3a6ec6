"""False alarms of a campaign over built-in implementations: each with all workers, as `python -m mhc.fuzz` runs it."""

from dataclasses import replace

import torch

from mhc.bench import campaigns
from mhc.bench.detection.hunt import Hunt, base_subject
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.registry import built_in, load
from oracles.mutants.record import BASES

_SECONDS = 300.0


def bases_on(device: str) -> list[str]:
    """Return the bases of mutants that run on a device."""
    return [base for base in BASES if device in load(base_subject(base).spec).devices]


def others_on(device: str) -> list[str]:
    """Return the built-in implementations on a device that are no base of mutants."""
    hunted = {load(base_subject(base).spec).name for base in bases_on(device)}
    return [name for name, one in built_in().items() if device in one.devices and name not in hunted]


def campaign(spec: str, device: str, *, cases: int, seed: int, jobs: int) -> Hunt:
    """Run a campaign over one correct implementation: return its cases, and its first finding as a false alarm.

    A known issue is no alarm. It ends after `cases`, or where they take longer, after `_SECONDS`.
    """
    implementation = load(spec)
    name = implementation.name
    specs = {name: (spec, implementation)}
    first: list[tuple[int, float, Finding]] = []
    fault = ""
    running: Campaign
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    with campaigns.campaign(
        specs,
        Pool(specs, LocalExecutor(specs, device, jobs, Limits(), gpus=gpus)),
        Budget(seconds=_SECONDS, cases=cases),
        seed=seed,
        device=device,
        known_issues=KNOWN_ISSUES,
        on_finding=lambda finding: first.append((max(1, running.cases), running.now, finding)),
    ) as running:
        try:
            running.run()
        except HarnessError as error:
            fault = str(error)
        counts = running.store.counts().get(name, {})
        worst = max((row[2] for row in running.store.table("worst")), default=0.0)
    refused = int(counts.get("refused", 0))
    result = Hunt(name=name, cases=int(counts.get("checked", 0)) + refused, refused=refused, worst=worst, fault=fault)
    if not first:
        return result
    number, at, finding = first[0]
    oracle = finding.fingerprint.oracle
    return replace(
        result,
        first=number,
        seconds=at,
        fired={oracle: number},
        on_first=[oracle],
        message=f"{finding.fingerprint}: {finding.message}",
        case=finding.case.json,
    )
