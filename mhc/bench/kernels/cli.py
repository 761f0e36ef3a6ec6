"""The verb `kernels` of `python -m mhc.bench`: time and accuracy of every contender, shape by shape."""

from collections.abc import Sequence
from dataclasses import astuple
from os import environ

import click
import torch

from mhc.bench import verbs
from mhc.bench.kernels import table
from mhc.bench.kernels.contenders import measure
from mhc.bench.kernels.record import COMPILE, DEFAULT_SHAPES, GOLDEN, Row, Shape, Timing
from mhc.fuzz.cli.options import load_all
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.registry import IMPLEMENTATIONS
from mhc.operators.mhc_pre.shapes import MAX_N

RESULTS = verbs.RESULTS / "kernels.md"
DEVICE = torch.device("cuda")
_REFERENCES = (GOLDEN, "manual")


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Shape, ...]:
    """Return the shapes, each given as `B,S,n,D`."""
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


@click.command()
@verbs.several("--shape", "shapes", callback=_shapes, metavar="B,S,n,D", help="Instead of the default shapes.")
@verbs.several("--impl", "specs", metavar="IMPL", help="Measure this too: FILE.py:NAME or package.module:NAME.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@verbs.positive("--bandwidth", default=4.3, help="TB/s of the bounds.")
@verbs.write(RESULTS)
def kernels(shapes: tuple[Shape, ...], specs: tuple[str, ...], no_compile: bool, bandwidth: float, write: bool) -> None:
    """Time forward and backward of golden, torch.compile and the kernels, side by side in one process.

    \b
        python -m mhc.bench kernels --write
        python -m mhc.bench kernels --shape 4,2048,4,4096 --impl my_kernel.py:IMPL --no-compile

    Exit status: 0 measured, 1 a kernel raised, 2 usage, 3 a fault of the harness itself.
    """
    page = verbs.Page(RESULTS, write=write)
    if not torch.cuda.is_available():
        raise click.UsageError("kernels are measured on a GPU alone, and PyTorch sees no CUDA device here")
    implementations = _load_all(specs, DEVICE.type)

    def show(shape: Shape, timing: Timing) -> None:
        page.show(table.progress(shape, timing))

    rows: list[Row] = []
    text = ""
    setting = verbs.setting(DEVICE.type)
    for shape in shapes or DEFAULT_SHAPES:
        row = measure(shape, implementations, DEVICE, compiled=not no_compile, on_timing=show)
        if row.error is not None:
            page.show(f"{shape}: {row.error}")
        rows.append(row)
        text = table.render(rows, setting=setting, command=verbs.command(), bandwidth=bandwidth)
        page.write(text)  # after each shape, so that a run cut short leaves what it has
    page.finish(text, 1 if any(row.failed for row in rows) else 0)


def _load_all(specs: Sequence[str], device: str) -> list[Implementation]:
    """Return the built-in kernels that run on the device, less the references, and the ones asked for."""
    found = [
        one for one in IMPLEMENTATIONS if device in one.devices and one.name not in _REFERENCES and _environment_fits(one)
    ]
    for spec, implementation in load_all(specs, device) if specs else ():
        if not _environment_fits(implementation):
            wanted = " ".join(f"{name}={value}" for name, value in implementation.env.items())
            raise click.UsageError(f"--impl {spec}: all is measured in this process, so start it with {wanted}")
        if implementation.name in (GOLDEN, COMPILE, *(other.name for other in found)):
            raise click.UsageError(f"--impl {spec}: another one is named {implementation.name!r} too; names must differ")
        found.append(implementation)
    return found


def _environment_fits(implementation: Implementation) -> bool:
    return all(environ.get(name) == value for name, value in implementation.env.items())
