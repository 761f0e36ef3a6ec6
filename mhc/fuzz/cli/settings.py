"""The settings of a run: what the options mean, or the run to resume and the options together."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

from mhc.environment import gpu_memory
from mhc.fuzz.campaign.campaign import Budget
from mhc.fuzz.campaign.planner import counted
from mhc.fuzz.campaign.size_budget import OWN, PER_ELEMENT, room
from mhc.fuzz.campaign.store import FILE, Store, StoreError
from mhc.fuzz.campaign.store_validation import check_to_go_on
from mhc.fuzz.cli.ledger import Entry
from mhc.fuzz.cli.options import load_targets
from mhc.fuzz.cli.trust import require_trust
from mhc.fuzz.executors.ray_cluster import join
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES, KnownIssue
from mhc.fuzz.worker.limits import Limits
from mhc.operator import DEFAULT
from mhc.programs.targets import DSLS, TARGETS
from mhc.registry import built_in

_DEFAULT_SECONDS = 60.0
_MEMORY_SHARE = 0.8
_CONTEXT = 768 << 20
"""Bytes of a GPU's memory that a process has beside its tensors: 540 to 750 MiB were seen on an H200."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run. A resumed run has the seed, specs, against and device of its first leg.

    Attributes:
        max_elements: of x at model sizes; None: the device's default.
        device_memory: bytes that a worker may use where kernels run.
        idle: as for `Pool`, on one device.
        operator: whose built-in implementations run, where `specs` names none.
        programs: `specs` are targets of programs.
        on: the joined Ray cluster; None: this machine.
        exact: a new run takes `folder` as it is, and not one beside it.
        named_by, compared_by: the option or file that names `specs`, and `against`. ledger: the project's known issues.
    """

    folder: Path
    budget: Budget
    specs: tuple[str, ...]
    against: tuple[str, ...]
    device: str
    seed: int
    workers: int
    limits: Limits
    device_memory: float
    idle: int | None
    resumed: bool
    fixtures: Path | None
    max_elements: int | None = None
    on: str | None = None
    operator: str = DEFAULT
    programs: bool = False
    exact: bool = False
    named_by: str = "--impl"
    compared_by: str = "--against"
    ledger: tuple[Entry, ...] = ()

    @property
    def known_issues(self) -> tuple[KnownIssue, ...]:
        """Return what is no finding of this run."""
        return (*KNOWN_ISSUES, *(entry.issue for entry in self.ledger))


def settings_of(
    *,
    hours: float | None,
    minutes: float | None,
    case_limit: int | None,
    workers: int | None,
    seed: int | None,
    out: Path,
    resume: Path | None,
    run_limit: float,
    compile_limit: float,
    memory: float | None,
    fixtures_folder: Path | None,
    specs: tuple[str, ...],
    against: tuple[str, ...],
    device: str,
    trust: bool = False,
    max_elements: int | None = None,
    on: str | None = None,
    operator: str | None = None,
    programs: tuple[str, ...] = (),
    again: Path | None = None,
    named_by: str = "--impl",
    compared_by: str = "--against",
    ledger: tuple[Entry, ...] = (),
) -> Settings:
    """Return the settings that the options mean.

    Args:
        again: the folder of `--resume-or-start`. named_by, compared_by, ledger: as for `Settings`.

    Raises:
        click.UsageError: options contradict one another or the run to resume, or that run names what is not trusted.
    """
    numbers = {"hours": hours, "minutes": minutes, "run-limit": run_limit, "compile-limit": compile_limit, "memory": memory}
    for name, number in numbers.items():
        if number is not None and math.isnan(number):
            raise click.UsageError(f"--{name}: must be a number, was {number}")
    contradictions = {
        "--hours or --minutes": hours is not None and minutes is not None,
        "--operator, for its built-in implementations, or --impl": operator is not None and bool(specs),
        "--programs, or --impl, --against and --operator": bool(programs and (specs or against or operator)),
        "--resume or --resume-or-start": again is not None and resume is not None,
    }
    for either in (words for words, both in contradictions.items() if both):
        raise click.UsageError(f"give {either}, not both")
    named, specs = (*specs, *against), specs or programs
    seconds = hours * 3600 if hours is not None else None if minutes is None else minutes * 60
    if again is not None and (again / FILE).exists():
        meta, spent = _stored(again, "--resume-or-start")
        _require_same(again, meta, specs, against, operator, device, seed)
        if seconds is None and case_limit is None:
            seconds = _DEFAULT_SECONDS
        seconds = None if seconds is None else spent.seconds + seconds
        case_limit = None if case_limit is None else int(spent.cases) + case_limit
        resume, specs, against, operator, seed = again, (), (), None, None
    if resume is not None:
        if specs or against or operator or seed is not None:
            own = "--programs, --operator, --impl, --against and --seed"
            raise click.UsageError(f"--resume takes the run's own {own}; give none of them")
        meta, _ = _stored(resume, "--resume")
        specs, device, seed = tuple(one["spec"] for one in meta["implementations"]), meta["device"], meta["seed"]
        max_elements = meta.get("max_elements") if max_elements is None else max_elements
        against = tuple(meta.get("against", ()))
        require_trust([("", spec) for spec in (*specs, *against)], resume, given=named, trust=trust)
        if seconds is None and case_limit is None:
            seconds, case_limit = meta["seconds"], meta["cases"]
    elif seconds is None and case_limit is None:
        seconds = _DEFAULT_SECONDS
    seed = time.time_ns() % 2**32 if seed is None else seed
    if on is None:
        workers = workers or min(os.cpu_count() or 1, 16)
        near = workers
    else:
        cluster = join(on, device, workers)
        workers = workers or cluster.room
        near = math.ceil(workers / cluster.nodes)  # on one machine, all taken for as large as this one
    budget = Budget(
        seconds=float("inf") if seconds is None else seconds, cases=float("inf") if case_limit is None else case_limit
    )
    each = memory * 2**30 if memory is not None else max(2.0**31, _MEMORY_SHARE * _memory() / near / (1 + len(against)))
    if device == "cpu" and max_elements is not None and max_elements > room(each):
        needed = (OWN + PER_ELEMENT * max_elements) / 2**30
        raise click.UsageError(f"--max-elements {max_elements} needs --memory {needed:.1f}; a worker has {each / 2**30:.1f}")
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    least = gpu_memory() if device == "cuda" else math.inf
    together, processes = math.ceil(workers / gpus) if gpus and on is None else 1, 1 + len(against)
    share = _gpu_share(memory, least, together, processes)
    return Settings(
        folder=resume or again or out / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}",
        budget=budget,
        specs=specs,
        against=against,
        device=device,
        seed=seed,
        workers=workers,
        limits=Limits(run=run_limit, compile=compile_limit, memory=each, gpu_share=share),
        device_memory=each if device == "cpu" else share * least,
        idle=_idle(least, share, together, processes) if gpus and on is None else None,
        resumed=resume is not None,
        fixtures=fixtures_folder,
        max_elements=max_elements,
        on=on,
        operator=operator or DEFAULT,
        programs=bool(programs) or (resume is not None and all(one.partition("@")[0] in TARGETS for one in specs)),
        exact=again is not None and resume is None,
        named_by=named_by,
        compared_by=compared_by,
        ledger=ledger,
    )


def _stored(folder: Path, option: str) -> tuple[dict[str, Any], Budget]:
    """Return the settings that a run to resume has in its store, `campaign.sqlite`, once all of the store is checked.

    Also return what it has spent: seconds, and cases on the implementation that has most.

    They are the implementations, `--against`, device, seed, `--max-elements` and the limits in seconds and cases. The parts
    of the campaign read the rest of the store themselves: `planner.py` counts, seeds and regions; `triage.py` findings;
    `harness_faults.py` faults; `campaign.py` the time that was spent, and the cases that were running, which it drops.

    Raises:
        click.UsageError: there is no store, or it cannot be resumed.
    """
    path = folder / FILE
    if not path.exists():
        raise click.UsageError(f"{option} {folder}: there is no {FILE} in it")
    try:
        with closing(Store(path)) as store:
            check_to_go_on(store)
            cases = max(map(counted, store.counts().values()), default=0)
            return store.meta(), Budget(seconds=store.seconds(), cases=cases)
    except StoreError as error:
        raise click.UsageError(f"{option} {folder}: {error}") from error


def _require_same(
    folder: Path,
    meta: Mapping[str, Any],
    specs: Sequence[str],
    against: Sequence[str],
    operator: str | None,
    device: str,
    seed: int | None,
) -> None:
    """Refuse to go on with a run that is about something else than what is asked for.

    Raises:
        click.UsageError: it is about other implementations, or has another device or seed.
    """
    stored = [one["spec"] for one in meta["implementations"]]
    if specs and {spec.partition("@")[0] for spec in specs} <= {*TARGETS, *DSLS}:
        specs = [spec for spec, _ in load_targets(specs, device)]
    others = set(built_in(operator or DEFAULT))
    same = sorted(stored) == sorted(specs) if specs else not meta.get("chosen") and set(stored) <= others
    asked = ", ".join(specs) or f"built-in ones of {operator or DEFAULT}"
    peers = [", ".join(sorted(names)) or "nothing" for names in (meta.get("against", ()), against)]
    differences = {
        f"checks {', '.join(stored)}, not {asked}": not same,
        f"compares with {peers[0]}, not with {peers[1]}": peers[0] != peers[1],
        f"runs on {meta['device']}, not on {device}": meta["device"] != device,
        f"has the seed {meta['seed']}, not {seed}": seed not in {None, meta["seed"]},
    }
    if any(differences.values()):
        told = "; ".join(words for words, differ in differences.items() if differ)
        raise click.UsageError(f"--resume-or-start {folder}: the run in it {told}")


def _gpu_share(memory: float | None, least: float, workers: int, processes: int) -> float:
    """Return the share of a GPU's memory for one process: `memory` GiB, or an equal part for each worker and one minimiser.

    Args:
        least: bytes of the smallest GPU, infinite without one. workers: of one GPU. processes: of one worker, its peers
            included.
    """
    if memory is not None and math.isfinite(least):
        return min(1.0, memory * 2**30 / least)
    return _MEMORY_SHARE / ((workers + 1) * processes)


def _idle(least: float, share: float, workers: int, processes: int) -> int:
    """Return how many workers without work a GPU has room for, beside those that work and one minimiser.

    Args:
        least, workers, processes: as for `_gpu_share`. share: of that memory, what PyTorch may allocate in one process.
    """
    working = (workers + 1) * processes
    left = least * (1 - working * share) - working * _CONTEXT
    return max(0, int(left / (_CONTEXT * processes)))


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
