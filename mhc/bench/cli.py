"""The command line of `python -m mhc.bench`. Exit codes: 0 measured, 1 a kernel raised, 2 usage, 3 fault of the harness."""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple
from importlib.metadata import PackageNotFoundError, version
from os import environ
from pathlib import Path

import click
import torch

from mhc.bench.coverage import coverage
from mhc.bench.detection.cli import detection
from mhc.bench.framework.cli import framework
from mhc.bench.kernels import table
from mhc.bench.kernels.contenders import measure
from mhc.bench.kernels.meter import Meter, cuda_meter
from mhc.bench.kernels.record import COMPILE, DEFAULT_SHAPES, GOLDEN, STAGES, Row, Setting, Shape, Timing, bound
from mhc.bench.minimal.cli import minimal
from mhc.bench.repros.cli import repros
from mhc.bench.soak.cli import soak_
from mhc.bench.throughput.cli import throughput
from mhc.commands import Commands
from mhc.implementation import Implementation, ImplementationError
from mhc.operators.mhc_pre.table import MAX_N
from mhc.registry import BUILT_IN, load

RESULTS = Path("docs/results/kernels.md")
_REFERENCES = (GOLDEN, "manual")
_SEEN = "mhc.bench.arguments"


class _Commands(Commands):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_SEEN] = tuple(args)  # the header shows the command as it was given
        return super().parse_args(ctx, args)


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Shape, ...]:
    """Each `B,S,n,D`."""
    shapes = []
    for value in values:
        try:
            shape = Shape(*(int(size) for size in value.split(",")))
        except (ValueError, TypeError):
            raise click.BadParameter(f"{value}: must be four integers B,S,n,D, as in 4,2048,4,4096", ctx, param) from None
        if min(astuple(shape)) < 1 or shape.n > MAX_N:
            raise click.BadParameter(f"{value}: each must be at least 1, and n at most {MAX_N}", ctx, param)
        shapes.append(shape)
    return tuple(shapes)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the kernels on this machine, the oracles on known-bad implementations, or campaigns."""


main.add_command(coverage)
main.add_command(detection)
main.add_command(framework)
main.add_command(minimal)
main.add_command(repros)
main.add_command(soak_)
main.add_command(throughput)


@main.command()
@click.option("--device", default="cuda", show_default=True, help="The CUDA device: cuda or cuda:INDEX.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="B,S,n,D",
    help="Instead of the default shapes. Repeatable.",
)
@click.option(
    "--impl",
    "specs",
    multiple=True,
    metavar="IMPL",
    help="Measure this too: FILE.py:NAME or package.module:NAME. Repeatable.",
)
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option(
    "--bandwidth", type=click.FloatRange(min=0, min_open=True), default=4.3, show_default=True, help="TB/s of the bounds."
)
@click.option("--write", is_flag=True, help=f"Write the tables to {RESULTS}.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the raw numbers there.")
@click.pass_context
def kernels(
    context: click.Context,
    device: str,
    shapes: tuple[Shape, ...],
    specs: tuple[str, ...],
    no_compile: bool,
    bandwidth: float,
    write: bool,
    json_file: Path | None,
) -> None:
    """Time forward and backward of golden, torch.compile and the kernels, side by side in one process.

    \b
        python -m mhc.bench kernels --write
        python -m mhc.bench kernels --shape 4,2048,4,4096 --impl my_kernel.py:IMPL --no-compile

    Exit status: 0 measured, 1 a kernel raised, 2 usage, 3 a fault of the harness itself.
    """
    for path in ([RESULTS] if write else []) + ([json_file] if json_file else []):
        if not path.parent.is_dir():  # now, and not after minutes of measuring
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
    where, meter, current = open_device(device)
    implementations = _load_all(specs, where.type)
    rows: list[Row] = []
    with current:
        command = f"python -m mhc.bench {shlex.join(context.meta[_SEEN])}"
        setting = _setting(where, command, bandwidth)
        text = ""
        for shape in shapes or DEFAULT_SHAPES:
            row = measure(shape, implementations, where, meter, compiled=not no_compile, on_timing=_on_timing)
            if row.error is not None:
                click.echo(f"{shape}: {row.error}")
            rows.append(row)
            text = table.render(setting, rows)
            if write:  # after each shape, so that a run cut short leaves what it has
                RESULTS.write_text(text, encoding="utf-8")
            if json_file is not None:
                json_file.write_text(json.dumps(_document(setting, rows), indent=2) + "\n", encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(1 if any(row.failed for row in rows) else 0)


def open_device(name: str) -> tuple[torch.device, Meter, AbstractContextManager[object]]:
    """The device, its meter, and what makes it the current one."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("cpu")
    if device.type != "cuda":
        raise click.UsageError(f"--device {name}: must be cuda or cuda:INDEX; kernels are measured on a GPU alone")
    if not torch.cuda.is_available():
        raise click.UsageError(f"--device {name}: PyTorch sees no CUDA device here")
    count, index = torch.cuda.device_count(), device.index or 0
    if index >= count:
        raise click.UsageError(f"--device {name}: there are {count} CUDA devices here")
    return torch.device("cuda", index), cuda_meter(), torch.cuda.device(index)


def _on_timing(shape: Shape, timing: Timing) -> None:
    click.echo(table.progress(shape, timing))  # which flushes


def _load_all(specs: Sequence[str], device: str) -> list[Implementation]:
    """The built-in kernels that run on the device, less the references, and the ones asked for."""
    found = [one for one in BUILT_IN if device in one.devices and one.name not in _REFERENCES and _environment_fits(one)]
    for spec in specs:
        try:
            implementation = load(spec)
        except ImplementationError as error:
            raise click.UsageError(f"--impl {error}") from error
        if device not in implementation.devices:
            devices = ", ".join(implementation.devices)
            raise click.UsageError(f"--impl {spec}: {implementation.name} runs on {devices}, not on {device}")
        if not _environment_fits(implementation):
            wanted = " ".join(f"{name}={value}" for name, value in implementation.env.items())
            raise click.UsageError(f"--impl {spec}: all is measured in this process, so start it with {wanted}")
        if implementation.name in (GOLDEN, COMPILE) or any(other.name == implementation.name for other in found):
            raise click.UsageError(f"--impl {spec}: another one is named {implementation.name!r} too; names must differ")
        found.append(implementation)
    return found


def _environment_fits(implementation: Implementation) -> bool:
    return all(environ.get(name) == value for name, value in implementation.env.items())


def _setting(device: torch.device, command: str, bandwidth: float) -> Setting:
    properties = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return Setting(
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        gpu=device.type if properties is None else properties.name,
        multiprocessors=0 if properties is None else properties.multi_processor_count,
        torch=torch.__version__,
        triton=_triton_version(),
        cuda=torch.version.cuda or "none",
        command=command,
        bandwidth=bandwidth,
    )


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "absent"


def _document(setting: Setting, rows: Sequence[Row]) -> dict[str, object]:
    """The raw numbers: ms, us, MiB as the records say; the bounds in ms."""
    measured = [
        {**asdict(row), "bounds_ms": {stage: asdict(bound(row.shape, stage, setting.bandwidth)) for stage in STAGES}}
        for row in rows
    ]
    return {"setting": asdict(setting), "rows": measured}
