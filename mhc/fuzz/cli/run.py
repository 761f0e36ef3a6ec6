"""From the command line's options to a campaign that runs: its folder, settings, signals, display and reports."""

import math
import os
import shlex
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch

from mhc.environment import environment
from mhc.files import new_folder, refuse_links
from mhc.fuzz import report
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.size_budget import OWN, PER_ELEMENT, room
from mhc.fuzz.campaign.store import FILE, Store, StoreError
from mhc.fuzz.campaign.store_validation import check_to_go_on
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.cli.display import Display, display
from mhc.fuzz.cli.options import load_pairs
from mhc.fuzz.cli.trust import has_outside, require_trust
from mhc.fuzz.executors.local import Executor, LocalExecutor, Specs
from mhc.fuzz.executors.ray_cluster import RayExecutor, join
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Fault
from mhc.implementation import Implementation
from mhc.operator import DEFAULT

MINIMISE = True
_DEFAULT_SECONDS = 60.0
_MEMORY_SHARE = 0.8
_ENDS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM  # and SIGHUP, where it is not ignored


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run. A resumed run has the seed, specs, against and device of its first leg.

    Attributes:
        max_elements: of x at model sizes; None: the device's default.
        operator: whose built-in implementations run, where `specs` names none.
        on: the joined Ray cluster; None: this machine.
    """

    folder: Path
    budget: Budget
    specs: tuple[str, ...]
    against: tuple[str, ...]
    device: str
    seed: int
    workers: int
    limits: Limits
    resumed: bool
    fixtures: Path | None
    max_elements: int | None = None
    on: str | None = None
    operator: str = DEFAULT


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
) -> Settings:
    """Return the settings that the options mean.

    Raises:
        click.UsageError: options contradict one another or the run to resume, or that run names what is not trusted.
    """
    numbers = {"hours": hours, "minutes": minutes, "run-limit": run_limit, "compile-limit": compile_limit, "memory": memory}
    for name, number in numbers.items():
        if number is not None and math.isnan(number):
            raise click.UsageError(f"--{name}: must be a number, was {number}")
    if hours is not None and minutes is not None:
        raise click.UsageError("give --hours or --minutes, not both")
    if operator is not None and specs:
        raise click.UsageError("give --operator, for its built-in implementations, or --impl, not both")
    seconds = hours * 3600 if hours is not None else None if minutes is None else minutes * 60
    if resume is not None:
        if specs or against or operator or seed is not None:
            own = "--operator, --impl, --against and --seed"
            raise click.UsageError(f"--resume goes on with the run's own {own}; give none of them")
        meta = _meta_of(resume)
        specs, device, seed = tuple(one["spec"] for one in meta["implementations"]), meta["device"], meta["seed"]
        max_elements = meta.get("max_elements") if max_elements is None else max_elements
        against = tuple(meta.get("against", ()))
        require_trust([("", spec) for spec in (*specs, *against)], resume, trust=trust)
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
    share = _gpu_share(memory, gpus, math.ceil(workers / gpus) if gpus and on is None else 1, 1 + len(against))
    return Settings(
        folder=resume or out / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}",
        budget=budget,
        specs=specs,
        against=against,
        device=device,
        seed=seed,
        workers=workers,
        limits=Limits(run=run_limit, compile=compile_limit, memory=each, gpu_share=share),
        resumed=resume is not None,
        fixtures=fixtures_folder,
        max_elements=max_elements,
        on=on,
        operator=operator or DEFAULT,
    )


def run_campaign(settings: Settings) -> int:
    """Run a campaign to its end, write its reports, and return the exit status."""
    here, operator = settings.on is None, settings.operator
    loaded, peers = load_pairs(settings.specs, settings.against, settings.device, here=here, operator=operator)
    settings, store = _opened(settings)
    folder = settings.folder
    again = "going on with" if settings.resumed else "reports in"
    click.echo(f"checking {_who(loaded, peers)} on {settings.device}, seed {settings.seed}, {again} {folder}")
    limits = {"seconds": settings.budget.seconds, "cases": settings.budget.cases}  # the next leg's, if it is given none
    store.set_meta(
        budget=_budget(settings.budget),
        **{name: None if limit == float("inf") else limit for name, limit in limits.items()},
    )
    if not settings.resumed:
        _describe(store, settings, loaded, peers)
    named = {implementation.name: (spec, implementation) for spec, implementation in loaded}
    written = {id_: Path(path) for id_, path in store.meta().get("fixtures", {}).items()}

    def save(found: Finding) -> Path:
        """Write the finding and its fixture, and return the path to replay.

        A file that cannot be written is a fault of the harness. The store keeps the finding.
        """
        id_ = found.fingerprint.id
        path = folder / f"{id_}.json"
        try:
            report.write_finding(folder, found)
            place = fixtures.folder_for(found, None, settings.fixtures)
            if place is not None:
                path = written[id_] = fixtures.write(found, place, replacing=written.get(id_))
                store.set_meta(fixtures={id_: str(path) for id_, path in written.items()})
        except OSError as error:
            campaign.note_fault(found.fingerprint.implementation, Fault.of(error), found.case.json)
        return path

    def on_finding(found: Finding) -> None:
        shown.tell(report.describe(found, save(found), settings.device))

    def on_minimal(found: Finding) -> None:
        text = report.describe(found, save(found), settings.device).replace("FOUND", "MINIMAL", 1)
        shown.tell(f"{text}\n    {found.reduction}")

    def on_fault(fault: FaultRecord) -> None:
        shown.tell(report.describe_fault(fault))

    with ExitStack() as stack:
        shown = stack.enter_context(display())
        executor = _executor(settings, named, peers)
        campaign = Campaign(
            [Subject(spec=spec, implementation=implementation) for spec, implementation in loaded],
            store,
            Pool(named, executor),
            settings.budget,
            seed=settings.seed,
            largest=settings.max_elements,
            device=settings.device,
            memory=settings.limits.memory,
            known_issues=KNOWN_ISSUES,
            minimise=MINIMISE,
            on_finding=on_finding,
            on_minimal=on_minimal,
            on_fault=on_fault,
            on_tick=shown,
        )
        with _signals(campaign, shown):
            try:
                ended = campaign.run()
            except HarnessError as error:
                ended = "fault"
                campaign.note_fault("", Fault(message=str(error)))
            stack.close()
            return _finish(settings, store, campaign, ended)


def _finish(settings: Settings, store: Store, campaign: Campaign, ended: str) -> int:
    """Write the reports, print the summary, and return the exit status."""
    folder = settings.folder
    try:
        run = report.write_reports(folder, store)
    except OSError as error:
        campaign.note_fault("", Fault(message=f"the reports cannot be written: {error}"))
        run = report.read(folder, store)
    except StoreError as error:  # this campaign wrote it, so the check is at fault
        store.close()
        click.echo(f"fault of the harness: no report can be made of {folder / FILE}: {error}", err=True)
        return 3
    store.close()
    click.echo(report.markdown(run), nl=False)
    for name in run.empty:
        click.echo(f"{name}: {run.gaps[name]}", err=True)
    for fault in run.faults:
        click.echo(f"fault of the harness: {fault}", err=True)
    if ended not in {"budget spent", "fault"}:
        trust = " --trust" if has_outside((*settings.specs, *settings.against)) else ""
        click.echo(f"ended by {ended}; go on with: python -m mhc.fuzz --resume {shlex.quote(str(folder))}{trust}")
    return run.status


def _opened(settings: Settings) -> tuple[Settings, Store]:
    """Return the settings with the folder of this run, and its store.

    Raises:
        click.UsageError: the folder cannot be made or opened, or another process has resumed the run.
    """
    folder = settings.folder
    try:
        if settings.resumed:
            refuse_links(folder / "logs", *folder.glob("logs/*"))
            store = Store(folder / FILE)
        else:
            folder = new_folder(folder)
            store = Store.create(folder / FILE)
        store.claim()
    except (OSError, StoreError, sqlite3.Error) as error:
        where = f"--resume {folder}" if settings.resumed else f"--out {folder.parent}"
        raise click.UsageError(f"{where}: {error}") from error
    return replace(settings, folder=folder), store


def _executor(settings: Settings, specs: Specs, peers: Sequence[Peer]) -> Executor:
    logs = settings.folder / "logs"
    if settings.on is not None:
        return RayExecutor(specs, settings.device, settings.workers, settings.limits, logs=logs, peers=peers)
    return LocalExecutor(
        specs,
        settings.device,
        settings.workers,
        settings.limits,
        logs=logs,
        gpus=torch.cuda.device_count() if settings.device == "cuda" else 0,
        peers=peers,
    )


def _who(loaded: Sequence[tuple[str, Implementation]], peers: Sequence[Peer]) -> str:
    names = ", ".join(implementation.name for _, implementation in loaded)
    return f"{names} against {', '.join(peer.name for peer in peers)}" if peers else names


def _describe(store: Store, settings: Settings, loaded: Sequence[tuple[str, Implementation]], peers: Sequence[Peer]) -> None:
    """Write down what the run is, for its reports and for `--resume`."""
    store.set_meta(
        seed=settings.seed,
        device=settings.device,
        workers=settings.workers,
        max_elements=settings.max_elements,
        implementations=[{"name": one.name, "spec": spec, "precision": one.declared.words} for spec, one in loaded],
        chosen=bool(settings.specs),
        against=list(settings.against),
        partners=[peer.name for peer in peers],
        environment=environment().to_json(),
        command=" ".join(["python -m mhc.fuzz", *sys.argv[1:]]),
        known=[str(entry) for entry in KNOWN_ISSUES],
    )


def _budget(budget: Budget) -> str:
    limits = [
        f"{budget.seconds:g} s" if budget.seconds != float("inf") else "",
        f"{budget.cases} cases each" if budget.cases != float("inf") else "",
    ]
    return ", ".join(filter(None, limits))


def _meta_of(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    if not path.exists():
        raise click.UsageError(f"--resume {folder}: there is no {FILE} in it")
    try:
        with closing(Store(path)) as store:
            check_to_go_on(store)
            return store.meta()
    except StoreError as error:
        raise click.UsageError(f"--resume {folder}: {error}") from error


@contextmanager
def _signals(campaign: Campaign, shown: Display) -> Iterator[None]:
    """End the campaign with a full report on the first signal that would end the process; at once on a second SIGINT.

    SIGTSTP (Ctrl-Z) stops the workers too, until the campaign is continued.
    """

    def first(number: int, _: object) -> None:
        campaign.stop(signal.Signals(number).name)
        signal.signal(signal.SIGINT, second)

    def pause(*_: object) -> None:
        campaign.pool.pause(stopped=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    def wake(*_: object) -> None:
        campaign.woken = True
        campaign.pool.pause(stopped=False)

    def second(*_: object) -> None:
        shown.abandon()
        os._exit(130)

    wanted: dict[int, Any] = {**dict.fromkeys(_ENDS, first), signal.SIGTSTP: pause, signal.SIGCONT: wake}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it is ignored
        wanted[signal.SIGHUP] = first
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _gpu_share(memory: float | None, gpus: int, workers: int, processes: int) -> float:
    """Return the share of a GPU's memory for one process: `memory` GiB, or an equal part for each worker and one minimiser.

    Args:
        workers: of one GPU. processes: of one worker, its peers included.
    """
    if memory is not None and gpus:
        least = min(torch.cuda.get_device_properties(gpu).total_memory for gpu in range(gpus))
        return min(1.0, memory * 2**30 / least)
    return _MEMORY_SHARE / ((workers + 1) * processes)


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
