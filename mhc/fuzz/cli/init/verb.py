"""The verb `init`: finds a kernel and its reference in a file, guesses shapes, writes the operator, and checks it."""

import shlex
import sys
from pathlib import Path

import click
import torch

from mhc.fuzz.cli.init.plan import kernel_of, plan_of, reference_of
from mhc.fuzz.cli.init.survey import SurveyError, survey
from mhc.fuzz.cli.init.text import text_of
from mhc.implementation import ImplementationError
from mhc.registry import load

_CASES = 50
_MINUTES = 2
"""The limit of the campaign: on two cores, 50 cases of a kernel in Triton's interpreter and the minimiser take one."""


@click.command()
@click.argument("kernel_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", "kernel_name", metavar="FUNCTION", help="What is checked; you are asked where it is not clear.")
@click.option("--reference", "reference_name", metavar="FUNCTION", help="A plain PyTorch function that is right.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.  [default: FILE_fuzz.py beside it]"
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@click.option("--run/--no-run", "runs", default=True, help="Run a short campaign on it.  [default: run]")
@click.option("--cases", type=click.IntRange(min=1), default=_CASES, show_default=True, help="Cases of that campaign.")
@click.option("--seed", type=click.IntRange(min=0), help="Its seed; the same seed draws the same cases.")
@click.option("--fixtures", type=click.Path(file_okay=False, path_type=Path), help="Its folder for fixtures.")
@click.pass_context
def init(
    context: click.Context,
    kernel_file: Path,
    kernel_name: str | None,
    reference_name: str | None,
    output: Path | None,
    force: bool,
    yes: bool,
    runs: bool,
    cases: int,
    seed: int | None,
    fixtures: Path | None,
) -> None:
    """Write the operator and the record for a kernel in a Python file, and check it with a short campaign.

    The file holds the kernel, such as a Triton kernel with the function that launches it, and a reference in plain PyTorch.
    Both are found in its text. Then the file is imported, and the reference is called on small tensors, to see which shapes
    it takes. What was guessed is in comments of the written file. Without a reference, a skeleton of one is written.

    Exit status: that of the campaign, 0 clean, 1 findings; 2 where nothing was checked, or the file has to be completed.
    """
    target = output or kernel_file.with_name(f"{kernel_file.stem}_fuzz.py")
    if target.exists() and not force:
        raise click.UsageError(f"{target} exists; give --force to overwrite it, or --output")
    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    try:
        text = kernel_file.read_text(encoding="utf-8")
        found = survey(text, str(kernel_file))
        kernel = kernel_of(found, kernel_name, reference_name, kernel_file, asks=asks)
        reference = reference_of(found, reference_name, kernel, kernel_file, asks=asks)
        device = "cuda" if found.dsl and torch.cuda.is_available() else "cpu"
        plan = plan_of(kernel_file, target, found, kernel, reference, device)
    except (SurveyError, OSError, UnicodeDecodeError) as error:
        raise click.UsageError(str(error)) from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text_of(plan), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--output {target}: {error}" if output else str(error)) from error
    click.echo(f"{target} is written: {kernel.name}{f' against {reference.name}' if reference else ''}")
    for name, notation in {**plan.guess.tensors, **plan.guess.keywords}.items():
        click.echo(f"    {name} = {notation}")
    spec = shlex.quote(f"{target}:IMPL")
    if reference is None:
        raise click.UsageError(
            f"{kernel_file} has no reference: write one in place of the line `raise NotImplementedError` in {target}, "
            f"correct the axes above it, and run: python -m mhc.fuzz --impl {spec}"
        )
    try:
        load(f"{target}:IMPL")
    except ImplementationError as error:
        raise click.UsageError(f"a guess in {target} is wrong, please correct it: {error}") from error
    if found.dsl == "tilelang" and device == "cpu":
        there = f"python -m mhc.fuzz --device cuda --impl {spec}"
        raise click.UsageError(f"TileLang kernels need a GPU, and PyTorch sees none; where there is one: {there}")
    command = ["--minutes", str(_MINUTES), "--cases", str(cases)]
    command += ["--device", "cuda"] if device == "cuda" else []
    command += [] if seed is None else ["--seed", str(seed)]
    command += [] if fixtures is None else ["--fixtures", str(fixtures)]
    command += ["--impl", f"{target}:IMPL"]
    click.echo(f"python -m mhc.fuzz {shlex.join(command)}")
    if runs:
        context.find_root().command.main(command, standalone_mode=False)
