"""The verbs `minimise` and `promote` of `python -m mhc.fuzz`. Exit status: 0 clean, 1 still fails, 2 usage, 3 a fault."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.files import replace_text
from mhc.fuzz.cli.configuration import known_here
from mhc.fuzz.cli.options import elsewhere, require_available, require_operator
from mhc.fuzz.cli.trust import require_trust, trust_option
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.fuzz.findings.known_issues import known
from mhc.fuzz.minimise.minimise import CHECKS, RUNS, SECONDS, confirm
from mhc.fuzz.minimise.minimise import minimise as make_small
from mhc.fuzz.minimise.sandbox import least_limit, processes
from mhc.fuzz.report.words import details, replay_command
from mhc.fuzz.worker.preload_compiler import preload_compiler
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import DEVICES, Implementation, ImplementationError
from mhc.registry import Tested, load_tested

_finding_file = click.argument(
    "finding_file", metavar="FINDING.json", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_device = click.option(
    "--device", type=click.Choice(DEVICES), help="Where it runs; the first that the kernel takes if not given."
)
_spec = click.option("--impl", "spec", metavar="IMPL", help="Run it on this implementation instead: NAME or FILE.py:NAME.")


@click.command()
@_finding_file
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the small finding there; FINDING-small.json if not given.",
)
@click.option("--checks", type=click.IntRange(min=1), default=CHECKS, show_default=True, help="Cases to try at most.")
@click.option("--seconds", type=click.FloatRange(min=1), default=SECONDS, show_default=True, help="Time to try them in.")
@_spec
@trust_option
@_device
def minimise(
    finding_file: Path, out: Path | None, checks: int, seconds: float, spec: str | None, trust: bool, device: str | None
) -> None:
    """Make the case of a finding as small as it can be while the same output fails in the same way.

    \b
        python -m mhc.fuzz minimise fuzz_reports/RUN/1f3a90c2.json
        python -m mhc.fuzz minimise 1f3a90c2.json --out small.json --seconds 60

    Cases run in processes of their own, so crashes and hangs are minimised too. The result is confirmed in fresh
    processes: stable, or flaky with its rate. Exit status: 0 it does not fail any more and nothing is written, 1 it still
    fails and the small finding is written, 2 usage, 3 a fault of the harness itself.
    """
    found, implementation, where = open_finding(finding_file, spec, device, trust=trust)
    preload_compiler({found.spec: implementation}, where)
    try:
        small = make_small(found, where, checks=checks, seconds=seconds)
    except HarnessError as fault:
        our_fault(fault)
    assert small.reduction is not None
    click.echo(f"{small.fingerprint}\n    {small.reduction}")
    if not small.reduction.reproduced:
        click.echo("    it does not fail any more")
        sys.exit(0)
    path = out or finding_file.with_name(f"{finding_file.stem}-small.json")
    try:
        if out is None:
            replace_text(path, small.to_json())  # in a folder that may be another's, with links
        else:
            out.write_text(small.to_json(), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--out {path}: {error}") from error
    special = details(small.case)
    lines = [small.message, small.case.id, *([special] if special else []), _replay(path, where, small)]
    click.echo("\n".join(f"    {line}" for line in lines))
    sys.exit(1)


@click.command()
@_finding_file
@click.option(
    "--fixtures",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write it there; tests/regressions of the source tree if not given.",
)
@_spec
@trust_option
@_device
def promote(finding_file: Path, folder: Path | None, spec: str | None, trust: bool, device: str | None) -> None:
    """Make a finding a fixture, which the test suite replays from then on.

    One on a kernel from outside needs --fixtures: the folder that its own tests replay.

    \b
        python -m mhc.fuzz promote fuzz_reports/RUN/1f3a90c2.json
        python -m mhc.fuzz promote small.json --fixtures my_project/regressions

    Only a finding that fails in three of three fresh processes becomes a fixture: a test must not be flaky. Exit status: 0
    it does not fail any more and nothing is written; 1 it fails each time and is a fixture now, or only sometimes and is
    refused with its rate; 2 usage, 3 a fault of the harness itself.
    """
    found, implementation, where = open_finding(finding_file, spec, device, trust=trust)
    target = fixtures.folder_for(found, None, folder)
    if target is None:
        raise click.UsageError(f"--fixtures: must be given, since {found.spec} is not of the source tree here")
    try:
        start = processes(found.spec, implementation, where, found.against)
        confirmed = confirm(found, start, least=least_limit(implementation))
    except HarnessError as fault:
        our_fault(fault)
    again = confirmed.reduction
    assert again is not None
    click.echo(f"{found.fingerprint}\n    failed in {again.reproduced} of {again.runs} fresh processes")
    if not again.reproduced:
        click.echo("    it does not fail any more: nothing to promote")
        sys.exit(0)
    if not again.stable:
        click.echo(f"    refused: a fixture must fail {RUNS} times of {RUNS}")
        sys.exit(1)
    entry = known(found.fingerprint, known_here())
    if entry is not None:
        click.echo(f"    {entry}")
    before = found.reduction or again
    kept = replace(confirmed, reduction=replace(before, reproduced=again.reproduced, runs=again.runs))
    try:
        path = fixtures.write(kept, target)
    except OSError as error:
        raise click.UsageError(f"--fixtures {target}: {error}") from error
    click.echo(f"    {path}\n    {_replay(path, where, kept)}")
    sys.exit(1)


def open_finding(path: Path, spec: str | None, device: str | None, *, trust: bool = False) -> tuple[Finding, Tested, str]:
    """Return the finding in a file, its implementation and device; `mhc.fuzz.cli.trust` decides what may be loaded."""
    try:
        found = read_finding(path)
    except CaseError as error:
        raise click.UsageError(f"{path}: {error}") from error
    chosen = spec or found.spec
    named = (("--impl", chosen), ("", found.against))
    require_trust(named, path, given=() if spec is None else (spec,), trust=trust)
    try:
        implementation = load_tested(chosen)
        other = None if found.against is None else load_tested(found.against)
    except ImplementationError as error:
        raise click.UsageError(f"--impl {error}" if spec else f"{path}: {error}") from error
    if isinstance(implementation, Implementation) and isinstance(found.case, Case):
        require_operator(path, found.case, implementation)
    for name, one in ((chosen, implementation), (found.against, other)):
        if name is not None and one is not None:
            require_available("--impl" if spec == name else f"{path}:", name, one)
    where = device or implementation.devices[0]
    if where not in implementation.devices:
        devices = ", ".join(implementation.devices)
        raise click.UsageError(
            f"--device {where}: {implementation.name} runs on {devices}{elsewhere(implementation, where)}"
        )
    if where == "cuda" and not _cuda():
        by = f"--device {where}" if device else f"{path}: {implementation.name} runs on {where}"
        raise click.UsageError(f"{by}: PyTorch sees no CUDA device here{elsewhere(implementation, 'cpu')}")
    if other is not None and (other.name == implementation.name or where not in other.devices):
        devices = ", ".join(other.devices)
        problem = "not with itself" if other.name == implementation.name else f"which runs on {devices}, not on {where}"
        raise click.UsageError(f"{path}: is compared with {other.name}, {problem}")
    fingerprint = replace(found.fingerprint, implementation=implementation.name)
    return replace(found, fingerprint=fingerprint, spec=chosen, variables=implementation.env), implementation, where


def _replay(path: Path, device: str, found: Finding) -> str:
    return replay_command(path, device, found.spec, found.against)


def _cuda() -> bool:
    import torch  # noqa: PLC0415  the help is shown without it

    return torch.cuda.is_available()


def our_fault(fault: HarnessError) -> NoReturn:
    """End with the status of a fault of the harness."""
    click.echo(f"fault of the harness: {fault}", err=True)
    sys.exit(3)
