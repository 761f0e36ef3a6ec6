"""The command line of `python -m mhc.fuzz`. Exit codes: 0 clean, 1 findings, 2 usage, 3 fault of the harness itself."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.commands import Commands
from mhc.fuzz import report
from mhc.fuzz.campaign import Budget, Tally, run
from mhc.fuzz.depth import Depth
from mhc.fuzz.finding import Finding, read_case
from mhc.fuzz.worker import HarnessError, Worker
from mhc.implementation import DEVICES, Implementation, ImplementationError
from mhc.loading import outside_names
from mhc.registry import built_in, load
from oracles.verdict import Status, Verdict

_PROGRESS_EVERY = 5.0
_DEFAULT_MINUTES = 1.0

_implementations = click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="IMPL",
    help="Check only this implementation: a name from `list`, FILE.py:NAME or package.module:NAME. Repeatable.",
)
_device = click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Where kernels run.")


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Stop after this many hours.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after this many minutes.")
@click.option("--cases", "case_limit", type=click.IntRange(min=1), help="Stop drawing after this many; shrinking runs more.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the first round; the same seed draws the same cases.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("fuzz_reports"), show_default=True, help="Report folder."
)
@_implementations
@_device
@click.pass_context
def main(
    context: click.Context,
    hours: float | None,
    minutes: float | None,
    case_limit: int | None,
    seed: int | None,
    out: Path,
    specs: tuple[str, ...],
    device: str,
) -> None:
    """Draw cases, run every implementation on each, and judge them against float64.

    \b
        python -m mhc.fuzz --minutes 10                      all built-in implementations
        python -m mhc.fuzz --cases 500 --impl my_kernel.py:IMPL
        python -m mhc.fuzz replay fuzz_reports/RUN/1f3a90c2.json

    Without a limit it runs for one minute. Findings go to a folder of the run's own under --out, each as small as it can be
    made. Exit status: 0 clean, 1 findings, 2 usage, 3 a fault of the harness itself.
    """
    if context.invoked_subcommand is not None:
        return
    if hours is not None and minutes is not None:
        raise click.UsageError("give --hours or --minutes, not both")
    seconds = hours * 3600 if hours is not None else None if minutes is None else minutes * 60
    if seconds is None:
        seconds = float("inf") if case_limit is not None else _DEFAULT_MINUTES * 60
    seed = time.time_ns() % 2**32 if seed is None else seed
    workers = [Worker(spec, implementation, device) for spec, implementation in _load_all(specs, device)]
    folder = out / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--out {out}: {error}") from error
    names = ", ".join(worker.implementation.name for worker in workers)
    click.echo(f"checking {names} on {device}, seed {seed}, reports in {folder}")
    started = time.monotonic()
    display = _Progress(started)

    def on_finding(found: Finding) -> None:
        path = report.write_finding(folder, found)
        click.echo(report.describe(found, path))

    try:
        tally = run(
            workers,
            Budget(seconds=seconds, cases=float("inf") if case_limit is None else case_limit),
            seed=seed,
            on_progress=display,
            on_finding=on_finding,
        )
    except HarnessError as fault:
        click.echo(f"fault of the harness: {fault}", err=True)
        sys.exit(3)
    finally:
        for worker in workers:
            worker.stop()
    summary = report.summary(tally, seconds=time.monotonic() - started, seed=seed, device=device)
    (folder / "summary.md").write_text(summary, encoding="utf-8")
    click.echo(summary)
    sys.exit(1 if tally.findings else 0)


@main.command()
@click.argument("case_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_implementations
@_device
def replay(case_file: Path, specs: tuple[str, ...], device: str) -> None:
    """Run one saved case or finding again, and show each output's error beside its bound.

    Without --impl, a finding runs on the implementation that it was found on, a bare case on all built-in ones.
    """
    try:
        case, found_on = read_case(case_file)
    except CaseError as error:
        raise click.UsageError(f"{case_file}: {error}") from error
    chosen = specs or (() if found_on is None else (found_on,))
    failed = False
    for spec, implementation in _load_all(chosen, device):
        verdicts = _check_once(spec, implementation, case, device)
        click.echo(report.replay_table(case, implementation.name, verdicts))
        failed |= any(verdict.status is Status.FAIL for verdict in verdicts)
    sys.exit(1 if failed else 0)


@main.command(name="list")
def list_() -> None:
    """Show the implementations there are, with the devices and dtypes they take."""
    for name in (*built_in(), *outside_names()):
        implementation = load(name)
        click.echo(f"{name:16} {', '.join(implementation.devices):12} {', '.join(implementation.dtypes)}")


class _Progress:
    """A plain line now and then."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._next = started + _PROGRESS_EVERY

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_EVERY
            seconds = now - self._started
            rate = tally.cases / seconds
            click.echo(f"{seconds:6.0f} s  {tally.cases:6} cases  {rate:5.1f} cases/s  {len(tally.findings)} findings")


def _load_all(specs: Sequence[str], device: str) -> list[tuple[str, Implementation]]:
    """The implementations asked for; all built-in ones that run on the device where none is."""
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: PyTorch sees no CUDA device here")
    if not specs:
        return [(name, implementation) for name, implementation in built_in().items() if device in implementation.devices]
    loaded: list[tuple[str, Implementation]] = []
    for spec in specs:
        try:
            implementation = load(spec)
        except ImplementationError as error:
            raise click.UsageError(f"--impl {error}") from error
        if device not in implementation.devices:
            devices = ", ".join(implementation.devices)
            raise click.UsageError(f"--impl {spec}: {implementation.name} runs on {devices}, not on {device}")
        if any(other.name == implementation.name for _, other in loaded):
            raise click.UsageError(f"--impl {spec}: another one is named {implementation.name!r} too; names must differ")
        loaded.append((spec, implementation))
    return loaded


def _check_once(spec: str, implementation: Implementation, case: Case, device: str) -> list[Verdict]:
    worker = Worker(spec, implementation, device)
    try:
        worker.start(case, Depth.FULL)
        return worker.finish()
    except HarnessError as fault:
        click.echo(f"fault of the harness: {fault}", err=True)
        sys.exit(3)
    finally:
        worker.stop()
