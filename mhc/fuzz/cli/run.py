"""Runs a campaign for the command line: its folder, signals, display and reports."""

import os
import shlex
import signal
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch

from mhc.case import default_case
from mhc.environment import environment
from mhc.files import new_folder, refuse_links
from mhc.fuzz import report
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import FILE, Store, StoreError
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.cli.display import Display, display
from mhc.fuzz.cli.ledger import refuse_mended
from mhc.fuzz.cli.minimise import our_fault
from mhc.fuzz.cli.options import load_pairs, load_targets, not_available
from mhc.fuzz.cli.settings import Settings
from mhc.fuzz.cli.trust import has_outside
from mhc.fuzz.executors.local import Executor, LocalExecutor, Specs
from mhc.fuzz.executors.ray_cluster import RayExecutor
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import UNCONFIRMED, Finding
from mhc.fuzz.worker.forkserver import start_server
from mhc.fuzz.worker.preload_compiler import preload_compiler
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Fault
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.oracles.bounds.carried import UnreadableReference
from mhc.oracles.tolerances import tolerances
from mhc.programs.targets import ProgramTarget
from mhc.reference import reference
from mhc.registry import Tested

MINIMISE = True
_ENDS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM  # and SIGHUP, where it is not ignored


def run_campaign(settings: Settings) -> int:
    """Run a campaign to its end, write its reports, and return the exit status."""
    loaded, peers = _loaded(settings)
    if settings.fixtures is not None:
        _require_folder("--fixtures", settings.fixtures)
    settings, store = _opened(settings)
    folder = settings.folder
    again = "resuming" if settings.resumed else "reports in"
    click.echo(f"checking {_who(loaded, peers)} on {settings.device}, seed {settings.seed}, {again} {folder}")
    limits = {"seconds": settings.budget.seconds, "cases": settings.budget.cases}  # the next leg's, if it is given none
    store.set_meta(
        budget=_budget(settings.budget),
        **{name: None if limit == float("inf") else limit for name, limit in limits.items()},
    )
    if not settings.resumed:
        absent = {} if settings.specs or settings.on is not None else not_available(settings.device, settings.operator)
        _describe(store, settings, loaded, peers, absent)
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
            fault = Fault(message=f"the finding {id_} cannot be written: {error.strerror or error}")
            campaign.note_fault(found.fingerprint.implementation, fault, found.case.json)
        return path

    def on_finding(found: Finding) -> None:
        text = report.describe(found, save(found), settings.device)
        shown.tell(f"{text}\n    {UNCONFIRMED if found.reduction is None else found.reduction}")

    def on_minimal(found: Finding) -> None:
        text = report.describe(found, save(found), settings.device, minimal=True)
        shown.tell(f"{text}\n    {found.reduction}")

    def on_other(drawn: Finding, found: Finding) -> None:
        _remove(drawn.fingerprint.id, folder, written, store)
        shown.tell(report.describe_other(drawn, found))

    def on_fault(fault: FaultRecord) -> None:
        shown.tell(report.describe_fault(fault))

    with ExitStack() as stack:
        shown = stack.enter_context(display())
        executor = _executor(settings, named, peers)
        campaign = Campaign(
            [Subject(spec=spec, implementation=implementation) for spec, implementation in loaded],
            store,
            Pool(named, executor, settings.idle),
            settings.budget,
            seed=settings.seed,
            largest=settings.max_elements,
            device=settings.device,
            memory=settings.device_memory,
            known_issues=settings.known_issues,
            minimise=MINIMISE,
            on_finding=on_finding,
            on_minimal=on_minimal,
            on_other=on_other,
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


def _remove(id_: str, folder: Path, written: dict[str, Path], store: Store) -> None:
    """Remove the file and the fixture of a finding that this run has written."""
    (folder / f"{id_}.json").unlink(missing_ok=True)
    if id_ in written:
        written.pop(id_).unlink(missing_ok=True)
        store.set_meta(fixtures={one: str(path) for one, path in written.items()})


def _loaded(settings: Settings) -> tuple[Sequence[tuple[str, Tested]], tuple[Peer, ...]]:
    """Return what is checked and what it is compared with, once the project's known issues are seen to fail.

    Raises:
        click.UsageError: one cannot be loaded, or a known issue does not fail any more.
    """
    if settings.programs:
        loaded: Sequence[tuple[str, Tested]] = load_targets(settings.specs, settings.device, here=settings.on is None)
        peers: tuple[Peer, ...] = ()
    else:
        loaded, peers = load_pairs(
            settings.specs,
            settings.against,
            settings.device,
            settings.named_by,
            here=settings.on is None,
            operator=settings.operator,
            compared_by=settings.compared_by,
        )
        if settings.on is None:
            start_server()  # it imports while references are read
    for spec, implementation in loaded:
        _require_readable(f"{settings.named_by} {spec}", implementation)
    if settings.on is None:
        try:
            refuse_mended(settings.ledger, loaded, peers, settings.device)
        except HarnessError as fault:
            our_fault(fault)
    return loaded, peers


def _require_readable(named: str, implementation: Tested) -> None:
    """Refuse an implementation from outside whose operator's function does what no bound can be read from.

    It is read on the simplest case; what only other cases do shows in these.

    Raises:
        click.UsageError: it does.
    """
    if not isinstance(implementation, Implementation) or not implementation.place or implementation.table.function is None:
        return
    try:
        inputs = materialise(default_case(operator=implementation.table.name, dtype=implementation.dtypes[0]))
        tolerances(inputs, reference(inputs), declared=implementation.declared)
    except UnreadableReference as error:
        raise click.UsageError(f"{named}: the reference {implementation.table.name} cannot be judged: {error}") from error
    except Exception:
        return  # cases show it


def _finish(settings: Settings, store: Store, campaign: Campaign, ended: str) -> int:
    """Write the reports, print the summary, and return the exit status."""
    folder = settings.folder
    trouble = store.save()
    if store.trouble is not None:
        campaign.note_fault("", Fault(message=f"{store.trouble}; the run cannot be resumed or reported again"))
    elif trouble is not None:
        campaign.note_fault("", Fault(message=f"{trouble}; it was written again at the end"))
    try:
        run = report.write_reports(folder, store, settings.known_issues)
    except OSError as error:
        campaign.note_fault("", Fault(message=f"the reports cannot be written to {folder}: {error.strerror or error}"))
        run = report.read(folder, store, settings.known_issues)
    except StoreError as error:  # this campaign wrote it, so the check is at fault
        store.close()
        click.echo(f"fault of the harness: no report can be made of {folder / FILE}: {error}", err=True)
        return 3
    store.close()
    click.echo(report.markdown(run), nl=False)
    for name in (*run.unavailable, *run.empty):
        click.echo(f"{name}: {run.gaps[name]}", err=True)
    for fault in run.faults:
        click.echo(f"fault of the harness: {fault}", err=True)
    if ended not in {"budget spent", "fault"}:
        trust = " --trust" if has_outside((*settings.specs, *settings.against)) else ""
        click.echo(f"ended by {ended}; resume with: python -m mhc.fuzz --resume {shlex.quote(str(folder))}{trust}")
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
            folder = _empty(folder) if settings.exact else new_folder(folder)
            store = Store.create(folder / FILE)
        store.claim()
    except (OSError, StoreError, sqlite3.Error) as error:
        where = f"--resume {folder}" if settings.resumed else f"--out {folder.parent}"
        where = f"--resume-or-start {folder}" if settings.exact else where
        raise click.UsageError(f"{where}: {error}") from error
    return replace(settings, folder=folder), store


def _require_folder(option: str, folder: Path) -> None:
    """Refuse a folder that cannot be made; one that is not there stays absent until something is written to it.

    Raises:
        click.UsageError: it cannot.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in missing:
            one.rmdir()
    except OSError as error:
        raise click.UsageError(f"{option} {folder}: {error}") from error


def _empty(folder: Path) -> Path:
    """Make and return a folder, which may exist if nothing is in it.

    Raises:
        FileExistsError: something is in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"has no {FILE}, and is not empty; give another folder")
    return folder


def _executor(settings: Settings, specs: Specs, peers: Sequence[Peer]) -> Executor:
    logs = settings.folder / "logs"
    if settings.on is not None:
        return RayExecutor(specs, settings.device, settings.workers, settings.limits, logs=logs, peers=peers)
    preload_compiler(dict(specs.values()), settings.device)
    return LocalExecutor(
        specs,
        settings.device,
        settings.workers,
        settings.limits,
        logs=logs,
        gpus=torch.cuda.device_count() if settings.device == "cuda" else 0,
        peers=peers,
    )


def _who(loaded: Sequence[tuple[str, Tested]], peers: Sequence[Peer]) -> str:
    names = ", ".join(implementation.name for _, implementation in loaded)
    return f"{names} against {', '.join(peer.name for peer in peers)}" if peers else names


def _describe(
    store: Store,
    settings: Settings,
    loaded: Sequence[tuple[str, Tested]],
    peers: Sequence[Peer],
    absent: Mapping[str, str],
) -> None:
    """Write down what the run is, for its reports and for `--resume`. absent: what is not available, and why."""
    store.set_meta(
        seed=settings.seed,
        device=settings.device,
        workers=settings.workers,
        max_elements=settings.max_elements,
        implementations=[
            {"name": one.name, "spec": spec, "precision": "" if isinstance(one, ProgramTarget) else one.judged_as}
            for spec, one in loaded
        ],
        chosen=bool(settings.specs),
        against=list(settings.against),
        partners=[peer.name for peer in peers],
        unavailable=dict(absent),
        environment=environment().to_json(),
        command=" ".join(["python -m mhc.fuzz", *sys.argv[1:]]),
        known=[str(entry) for entry in settings.known_issues],
    )


def _budget(budget: Budget) -> str:
    limits = [
        f"{budget.seconds:g} s" if budget.seconds != float("inf") else "",
        f"{budget.cases} cases each" if budget.cases != float("inf") else "",
    ]
    return ", ".join(filter(None, limits))


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
