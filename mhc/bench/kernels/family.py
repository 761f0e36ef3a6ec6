"""The verb `family` of `python -m mhc.bench`: times of the Triton kernels of Sinkhorn and mHC post, beside PyTorch's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
import torch
from torch import Tensor

from mhc.bench import verbs
from mhc.bench.kernels import meter
from mhc.bench.kernels.meter import Call
from mhc.bench.kernels.record import STAGES
from mhc.bench.markdown import aligned
from mhc.implementation import Implementation, Refused
from mhc.registry import BUILT_IN

RESULTS = verbs.RESULTS / "kernels-family.md"
KERNELS = {str(one.operator): one for one in BUILT_IN if one.name == f"{one.operator}.triton"}
SIZES = (
    {"B0": 4, "B1": 2048, "n": 4, "C": 4096},
    {"B0": 1, "B1": 64, "n": 4, "C": 4096},
    {"B0": 1, "B1": 2048, "n": 16, "C": 1024},
)
_SEED = 20250101
_COLUMNS = ("golden", "compile", "triton")


def draw(kernel: Implementation, sizes: Mapping[str, int], device: torch.device) -> dict[str, Tensor]:
    """Draw inputs and upstream gradients; storage is bfloat16."""
    generator = torch.Generator(device).manual_seed(_SEED)
    return {
        spec.name: torch.randn(spec.shape(sizes), generator=generator, device=device).to(spec.dtype(torch.bfloat16))
        for spec in kernel.table.drawn
    }


def contenders(
    kernel: Implementation, stage: str, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Yield the name of each contender, and what makes its call. PyTorch's backward is autograd's, without the forward."""
    table, scalars = kernel.table, dict(kernel.table.scalars)
    given = [tensors[spec.name] for spec in table.inputs]
    upstream = [tensors[spec.name] for spec in table.upstream]
    reference = table.function
    assert reference is not None

    def compiled() -> Callable[..., Any]:
        return torch.compile(reference, dynamic=False, fullgraph=True)

    if stage == "forward":
        yield "golden", lambda: _once(reference, given, scalars)
        yield "compile", lambda: _once(compiled(), given, scalars)
        yield "triton", lambda: lambda: kernel.forward(*given, **kernel.keywords(scalars))  # type: ignore[misc]
    else:
        yield "golden", lambda: _autograd(reference, given, upstream, scalars)
        yield "compile", lambda: _autograd(compiled(), given, upstream, scalars)
        yield "triton", lambda: lambda: kernel.backward(*given, *upstream, **kernel.keywords(scalars))  # type: ignore[misc]


def _once(function: Callable[..., Any], given: Sequence[Tensor], scalars: Mapping[str, float]) -> Call:
    return lambda: [function(*given, **scalars)]


def _autograd(
    function: Callable[..., Any], given: Sequence[Tensor], upstream: Sequence[Tensor], scalars: Mapping[str, float]
) -> Call:
    """Return autograd's backward alone, through a graph that is kept."""
    import torch._functorch.config as functorch  # noqa: PLC0415  private: a compiled graph gives its buffers away

    settings: Any = functorch
    leaves = [tensor.detach().requires_grad_() for tensor in given]
    with settings.patch(donated_buffer=False), torch.enable_grad():
        y = function(*leaves, **scalars)
        torch.autograd.grad(y, leaves, upstream, retain_graph=True)
    return lambda: torch.autograd.grad(y, leaves, upstream, retain_graph=True)


def least_ms(
    kernel: Implementation, stage: str, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], rate: float
) -> float:
    """Return the milliseconds in which every tensor of a stage moves once, at `rate` TB/s."""
    table = kernel.table
    read = table.inputs if stage == "forward" else table.drawn
    written = table.outputs if stage == "forward" else table.gradients
    moved = sum(tensors[spec.name].nbytes for spec in read)
    for spec in written:
        moved += torch.Size(spec.shape(sizes)).numel() * spec.dtype(torch.bfloat16).itemsize
    return moved / (rate * 1e9)


def rows(
    kernel: Implementation,
    sizes: Mapping[str, int],
    device: torch.device,
    rate: float,
    milliseconds: Callable[[Call], float] = meter.milliseconds,
) -> list[list[str]]:
    """Return a row of the page for each stage. A kernel's exception is shown in its place."""
    table = kernel.table
    sizes = {name: size for name, size in sizes.items() if name in table.axis_names}
    tensors = draw(kernel, sizes, device)
    found = []
    for stage in STAGES:
        cells = {}
        torch.compiler.reset()
        for name, prepare in contenders(kernel, stage, tensors):
            try:
                with torch.no_grad():
                    cells[name] = f"{milliseconds(prepare()):.4f}"
            except (Exception, Refused) as error:
                cells[name] = type(error).__name__
        shape = ",".join(str(size) for size in sizes.values())
        least = least_ms(kernel, stage, tensors, sizes, rate)
        found.append([table.name, stage, shape, *(cells[name] for name in _COLUMNS), f"{least:.4f}"])
    return found


def page(found: Sequence[Sequence[str]], rate: float) -> str:
    """Return the page."""
    head = f"# Sinkhorn and mHC post, measured side by side\n\n{verbs.today()} (UTC), {verbs.hardware('cuda')}\n\n"
    legend = (
        f"    {verbs.command()}\n\nMedian of `triton.testing.do_bench`, ms; x and f are bfloat16. Shapes are B0,B1,n and C. "
        f"*once* is every tensor read or written once, at {rate:g} TB/s.\n\n"
    )
    return f"{head}{legend}{aligned(['operator', 'stage', 'shape', *_COLUMNS, 'once'], found)}\n"


@click.command()
@verbs.several("--only", "names", metavar="OPERATOR", help="Measure this operator.")
@verbs.positive("--bandwidth", default=4.3, help="TB/s of the bound.")
@verbs.write(RESULTS)
def family(names: tuple[str, ...], bandwidth: float, write: bool) -> None:
    """Time the Triton kernels of Sinkhorn and mHC post beside the reference and torch.compile.

    \b
        python -m mhc.bench family --write

    Exit status: 0 measured, 2 usage, 3 a fault of the harness itself.
    """
    verbs.refuse_unknown(names, KERNELS, "operator")
    if not torch.cuda.is_available():
        raise click.UsageError("kernels are measured on a GPU alone, and PyTorch sees no CUDA device here")
    shown, found = verbs.Page(RESULTS, write=write), []
    for operator in names or KERNELS:
        for sizes in SIZES:
            for row in rows(KERNELS[operator], sizes, torch.device("cuda"), bandwidth):
                shown.show("  ".join(row))
                found.append(row)
    shown.finish(page(found, bandwidth), 0)
