"""The command line of `python -m mhc.fuzz`. Exit codes: 0 clean, 1 findings, 2 usage or nothing judged, 3 harness fault."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mhc.adapters import MODULES, kernels
from mhc.case_json import CaseError
from mhc.commands import Commands
from mhc.drawn_case import DrawnCase
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli import minimise, report, serve
from mhc.fuzz.cli.effective import configured, effective
from mhc.fuzz.cli.init.verb import init
from mhc.fuzz.cli.options import load_pairs, load_targets, require_operator
from mhc.fuzz.cli.replay_table import replay_lines, replay_table
from mhc.fuzz.cli.run import run_campaign
from mhc.fuzz.cli.settings import settings_of
from mhc.fuzz.cli.trust import require_trust, trust_option
from mhc.fuzz.findings.finding import read_against, read_drawn
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import DEVICES
from mhc.loading import outside_names
from mhc.operator import DEFAULT
from mhc.oracles.judge import JUDGED, SAMPLED, outcomes
from mhc.oracles.verdict import Status, Verdict
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import AnyProgram, language_of
from mhc.registry import BUILT_IN, Tested, built_in, load
from mhc.upstream.cli.export import VERBS


def _lines(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Return the names of `--impl`: a workflow of CI has them in one text, each on a line of its own."""
    found = ([line.strip() for line in value.splitlines() if line.strip()] or [value] for value in values)
    return tuple(name for names in found for name in names)


_implementations = click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="IMPL",
    callback=_lines,
    help="Check only this implementation: a name from `list`, FILE.py:NAME, package.module:NAME, or FILE.py for all of a "
    "file. Repeatable.",
)
_against = click.option(
    "--against",
    multiple=True,
    metavar="IMPL",
    help="Compare each case with this implementation as well, named as for --impl. Repeatable.",
)
_device = click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Where kernels run.")


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Stop after this many hours.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after this many minutes.")
@click.option("--cases", "case_limit", type=click.IntRange(min=1), help="Stop after this many on each implementation.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes that work at a time.  [default: one a core]")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the first round; the same seed draws the same cases.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("fuzz_reports"), show_default=True, help="Report folder."
)
@click.option(
    "--resume",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="RUN",
    help="Resume the run in this folder; a limit that is given replaces the old one.",
)
@click.option(
    "--resume-or-start",
    "again",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN",
    help="Resume the run in this folder with the limits on top of what it has spent; if it is empty, start a run there.",
)
@click.option(
    "--run-limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds of a call."
)
@click.option(
    "--compile-limit", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds more, for compiling."
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.5),
    help="GiB that a worker may use, and as many of a GPU.  [default: its part of 80 %]",
)
@click.option(
    "--max-elements",
    type=click.IntRange(min=1),
    metavar="N",
    help="Elements of x at model sizes; parameters: twice as many.  [default: as --memory allows, to 2^24, GPU 2^25]",
)
@click.option(
    "--fixtures",
    "fixtures_folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for fixtures.  [default: tests/regressions for built-in implementations in a checkout]",
)
@click.option(
    "--on",
    metavar="ray[://ADDRESS]",
    help="Run the workers on a Ray cluster, one GPU each with --device cuda; without ADDRESS on one started here.",
)
@click.option(
    "--operator",
    type=click.Choice(list(dict.fromkeys(str(one.operator) for one in BUILT_IN))),
    metavar="NAME",
    help=f"Check the built-in implementations of this operator, as `list` names it.  [default: {DEFAULT}]",
)
@click.option(
    "--programs",
    multiple=True,
    metavar="TARGET",
    help="Test a compiler with small programs: tilelang, triton, or NAME@SITE for the release in a folder. Repeatable.",
)
@configured
@_implementations
@_against
@trust_option
@_device
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Draw cases, run every implementation on each, and judge them against float64.

    \b
        python -m mhc.fuzz --minutes 10                      the built-in implementations of one operator
        python -m mhc.fuzz --cases 200 --operator rms_norm
        python -m mhc.fuzz --cases 500 --impl my_kernel.py:IMPL
        python -m mhc.fuzz --minutes 10 --impl my_kernel.py:IMPL --against golden
        python -m mhc.fuzz --resume fuzz_reports/RUN --hours 2
        python -m mhc.fuzz replay fuzz_reports/RUN/1f3a90c2.json

    Without a limit it runs for one minute. Findings go to a folder of the run's own under --out, each as small as it can be
    made. Ctrl-C ends it with a full report, a second one at once. Exit status: 0 clean, 1 findings, 2 usage, or nothing was
    judged, 3 a fault of the harness itself.
    """
    if context.invoked_subcommand is None:
        sys.exit(run_campaign(settings_of(**effective(context, options).settings)))


@main.command()
@click.argument("case_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_implementations
@_against
@trust_option
@_device
@click.option("--json", "as_json", is_flag=True, help="Print each verdict as a line of JSON in place of the table.")
def replay(
    case_file: Path, specs: tuple[str, ...], against: tuple[str, ...], trust: bool, device: str, as_json: bool
) -> None:
    """Run one saved case or finding again, and show each output's error beside its bound.

    Largest and mean error are against float64, over the elements that are finite in both; the bound is the one where error /
    bound is largest. Every gate judges; what fails is shown in full.

    Without --impl, a finding runs on the implementation that it was found on, a bare case on all built-in ones. Without a
    GPU, a finding on triton runs in Triton's interpreter with --impl triton-interpreted, which refuses schedules that are
    pinned for triton. Without --against, the case is compared with the implementation that the finding names. An
    implementation that the file names and that is not built in is executed only after confirmation, or with --trust.

    Exit status: 0 nothing fails, 1 it fails, 2 usage, or nothing was judged, 3 a fault of the harness itself.
    """
    try:
        case, found_on = read_drawn(case_file)
        remembered = read_against(case_file)
    except CaseError as error:
        raise click.UsageError(f"{case_file}: {error}") from error
    if isinstance(case, DrawnProgram):
        require_trust([("--impl", None if specs else found_on)], case_file, given=specs, trust=trust)
        sys.exit(_replay_program(case, specs or (found_on or language_of(case).dsl,), as_json=as_json))
    named = (("--impl", None if specs else found_on), ("--against", None if against else remembered))
    require_trust(named, case_file, given=(*specs, *against), trust=trust)
    chosen = specs or (() if found_on is None else (found_on,))
    if not against and remembered in specs:
        click.echo(f"not compared with {remembered}, which it was found to differ from: --impl names it")
    elif not against and remembered is not None:
        against = (remembered,)
    failed, empty = False, list[str]()
    loaded, peers = load_pairs(
        chosen, against, device, "--impl" if specs else f"{case_file}: found on", operator=case.operator
    )
    for _, implementation in loaded:
        require_operator(case_file, case, implementation)
    for spec, implementation in loaded:
        verdicts = _check_once(spec, implementation, case, device, peers)
        click.echo((replay_lines if as_json else replay_table)(case, implementation.name, verdicts))
        fails = any(verdict.status is Status.FAIL for verdict in verdicts)
        failed |= fails
        if not fails and not {JUDGED, SAMPLED} & set(outcomes(verdicts).values()):
            empty.append(implementation.name)
            click.echo(f"{implementation.name}: nothing was judged", err=True)
    none = bool(empty) and (bool(chosen) or len(empty) == len(loaded))
    sys.exit(1 if failed else 2 if none else 0)


@main.command(name="list")
def list_() -> None:
    """Show the implementations there are, with their operator and the devices and dtypes they take."""
    adapted = [name for library in MODULES for name in kernels(library)]
    for name in (*built_in(), *adapted, *outside_names()):
        one = load(name)
        row = f"{name:31} {one.operator:24} {', '.join(one.devices):12} {', '.join(one.dtypes):31} {one.judged_as}"
        reason = one.unavailable()
        click.echo(row.rstrip() if reason is None else f"{row.rstrip()}  not available: {reason}")


main.add_command(minimise.minimise)
main.add_command(minimise.promote)
main.add_command(report.report)
main.add_command(serve.serve)
main.add_command(init)
for verb in VERBS:
    main.add_command(verb)


def _replay_program(program: AnyProgram, specs: Sequence[str], *, as_json: bool) -> int:
    """Run a program on targets, show its text and what is wrong, and return the exit status."""
    targets = load_targets(specs)
    verdicts = []
    for spec, target in targets:
        if not as_json:  # before it runs, which it may not survive
            click.echo(f"{program.id} on {target.name}\n\n{target.text(program)}")
        found = _check_once(spec, target, program, target.devices[0], ())
        if as_json:
            click.echo(replay_lines(program, target.name, found))
        else:
            for one in found:
                click.echo(f"{one.subject}: {one.symptom or one.status.value}{': ' if one.message else ''}{one.message}")
        verdicts += found
    failed = any(one.status is Status.FAIL for one in verdicts)
    return 1 if failed else 0 if any(one.status is Status.PASS for one in verdicts) else 2


def _check_once(spec: str, implementation: Tested, case: DrawnCase, device: str, peers: Sequence[Peer]) -> list[Verdict]:
    worker = WorkerClient(spec, implementation, device, peers=peers)
    try:
        worker.start(case, Level.FULL, measure=True)
        return worker.finish()
    except HarnessError as fault:
        minimise.our_fault(fault)
    finally:
        worker.stop()
