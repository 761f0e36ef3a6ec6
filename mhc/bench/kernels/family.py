"""The verb `family` of `python -m mhc.bench`: times of the kernels of hyper-connections, ours and other libraries'.

Each operator has rows of its own, since libraries divide the layer differently; its docstring says what it leaves out. An
implementation's `precision` says what it rounds lower.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click
import torch
from torch import Tensor

from mhc.adapters import MODULES
from mhc.adapters import kernels as kernels_of
from mhc.bench import verbs
from mhc.bench.kernels import meter
from mhc.bench.kernels.meter import Call
from mhc.bench.kernels.record import STAGES, first_line
from mhc.bench.markdown import aligned
from mhc.case import default_case, with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.implementation import Implementation, Refused
from mhc.operator import Operator
from mhc.oracles import bound
from mhc.registry import BUILT_IN

RESULTS = verbs.RESULTS / "kernels-family.md"
KERNELS = {str(one.operator): one for one in BUILT_IN if one.name == f"{one.operator}.triton"}
PRE = ("hc_pre", "hc_pre_tilekernels", "hc_pre_blocks", "megatron_pre")
"""Operators of other libraries that do what `mhc_pre` does, and Sinkhorn on h_res."""
OPERATORS = (*KERNELS, "te_sinkhorn", "hc_post", "mhc_pre", *PRE)
SIZES = (
    {"B0": 4, "B1": 2048, "n": 4, "C": 4096},
    {"B0": 4, "B1": 2048, "n": 4, "C": 7168},
    {"B0": 1, "B1": 64, "n": 4, "C": 4096},
    {"B0": 1, "B1": 2048, "n": 16, "C": 1024},
)
_FEW = {"B0": 1, "B1": 64}  # tokens at which errors are measured: their bounds take a thousand bytes an element
_SEED = 20250101
_LONGEST = 160  # characters of an exception's type and message that are shown
_HEAD = ("operator", "stage", "shape", "implementation", "ms", "once", "error / bound", "rounds lower")


def axes(table: Operator, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of an operator's own axes: T and B, S are tokens, D is C."""
    tokens = sizes["B0"] * sizes["B1"]
    known = {**sizes, "T": tokens, "B": sizes["B0"], "S": sizes["B1"], "D": sizes["C"], "K": sizes["n"] * sizes["C"]}
    known["blocks"] = sizes["C"] // 64
    return {name: known[name] for name in table.axis_names if name in known}


def fits(table: Operator, sizes: Mapping[str, int]) -> bool:
    """Return whether the operator takes the sizes; where it has no n, it is of four streams."""
    return table.problem(axes(table, sizes)) is None and ("n" in table.axis_names or sizes["n"] == 4)


def draw(table: Operator, sizes: Mapping[str, int], device: torch.device) -> dict[str, Tensor]:
    """Draw inputs and upstream gradients; storage is bfloat16."""
    generator = torch.Generator(device).manual_seed(_SEED)
    every = table.sizes(sizes)
    tensors = {}
    for spec in table.drawn:
        values = torch.randn(spec.shape(every), generator=generator, device=device)
        if spec.name == "phi":
            values *= every["K"] ** -0.5
        if spec.within is not None:
            values.clamp_(*spec.within)
        tensors[spec.name] = values.to(spec.dtype(torch.bfloat16))
    return tensors


def contenders(
    table: Operator, stage: str, kernels: Sequence[Implementation], tensors: Mapping[str, Tensor], *, compiled: bool = True
) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Yield the name of each contender, and what makes its call. PyTorch's backward is autograd's, without the forward."""
    reference, scalars = table.function, dict(table.scalars)
    given = [tensors[spec.name] for spec in table.inputs]
    upstream = [tensors[spec.name] for spec in table.upstream]
    if reference is not None:
        functions = {"golden": reference}
        if compiled:
            functions["compile"] = torch.compile(reference, dynamic=False, fullgraph=True)
        for name, function in functions.items():
            if stage == "forward":
                yield name, partial(_once, function, given, scalars)
            else:
                yield name, partial(_autograd, function, given, upstream, scalars)
    for kernel in kernels:
        function, keywords = getattr(kernel, stage), kernel.keywords(scalars)
        names = table.forward_arguments if stage == "forward" else table.backward_arguments
        if function is not None:
            arguments = [tensors.get(name) for name in names]
            yield kernel.name, partial(partial, function, *arguments, **keywords)


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


def least_ms(table: Operator, stage: str, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], rate: float) -> float:
    """Return the milliseconds in which every tensor of a stage moves once, at `rate` TB/s."""
    read = table.inputs if stage == "forward" else table.drawn
    written = table.outputs if stage == "forward" else table.gradients
    moved = sum(tensors[spec.name].nbytes for spec in read)
    for spec in written:
        moved += math.prod(spec.shape(table.sizes(sizes))) * spec.dtype(torch.bfloat16).itemsize
    return moved / (rate * 1e9)


def ratios(kernel: Implementation, sizes: Mapping[str, int], device: str) -> dict[str, str]:
    """Return the largest |error| / bound by stage at a few tokens; a stage of which nothing is judged is left out."""
    table = kernel.table
    few: dict[str, Any] = axes(table, {**sizes, **_FEW})
    case = default_case(operator=table.name, dtype="bfloat16", **few)
    if "phi" in case.tensors:  # as in a model, its product with a normalised x is about 1
        case = with_tensor(case, "phi", scale=2.0 ** table.usual_exponents(case.sizes).get("phi", 0))
    found: dict[str, float] = {}
    for one in check(kernel, case, device, Level.PLAIN).verdicts:
        if one.oracle == bound.NAME and one.ratio is not None:
            stage = "backward" if one.subject in {spec.name for spec in table.gradients} else "forward"
            found[stage] = max(found.get(stage, 0.0), one.ratio)
    return {stage: f"{value:.2g}" for stage, value in found.items()}


def rows(
    kernels: Sequence[Implementation],
    sizes: Mapping[str, int],
    device: torch.device,
    rate: float,
    milliseconds: Callable[[Call], float] = meter.milliseconds,
    *,
    compiled: bool = True,
    raised: Callable[[str], object] = lambda line: None,
) -> Iterator[list[str]]:
    """Yield a row of the page for each stage and contender of one operator.

    An exception's type is shown in place of a time, and `raised` is called with a line that names the rest.
    """
    table = kernels[0].table
    own = axes(table, sizes)
    tensors = draw(table, own, device)
    if table.function is None:  # mhc_pre: its backward takes what the forward saved
        outputs = table.forward(*[tensors.get(name) for name in table.forward_arguments], **table.scalars)
        saved = zip(table.outputs, outputs, strict=True)
        tensors |= {spec.name: one.to(spec.dtype(torch.bfloat16)) for spec, one in saved if spec.name in table.saved}
    by_name = {one.name: one for one in kernels}
    errors = {one.name: ratios(one, sizes, device.type) for one in kernels}
    shape = ",".join(str(size) for size in own.values())
    for stage in STAGES:
        torch.compiler.reset()
        least = f"{least_ms(table, stage, tensors, own, rate):.4f}"
        for name, prepare in contenders(table, stage, kernels, tensors, compiled=compiled):
            try:
                with torch.no_grad():
                    took = f"{milliseconds(prepare()):.4f}"
            except (Exception, Refused) as error:
                took = type(error).__name__
                raised(f"{table.name}, {shape}, {name}, {stage}: {first_line(error)[:_LONGEST]}")
            lower = ", ".join(f"{what} in {how}" for what, how in by_name[name].precision.items()) if name in by_name else ""
            yield [table.name, stage, shape, name, took, least, errors.get(name, {}).get(stage, ""), lower]


def found_here(names: Sequence[str]) -> dict[str, list[Implementation]]:
    """Return the kernels of each operator that run on a GPU here: ours, and those of libraries that can be imported."""
    libraries = [one for library in MODULES for one in kernels_of(library).values()]
    every = [one for one in (*BUILT_IN, *libraries) if "cuda" in one.devices and one.unavailable() is None]
    plain = ("golden", "manual")  # contenders by themselves, as the operator's function
    chosen = {name: [one for one in every if str(one.operator) == name and not one.name.endswith(plain)] for name in names}
    return {name: kernels for name, kernels in chosen.items() if kernels}


def page(found: Sequence[Sequence[str]], raised: Collection[str], setting: str, rate: float) -> str:
    """Return the page."""
    head = f"# Hyper-connections, measured side by side\n\n{setting}\n\n"
    legend = (
        f"    {verbs.command()}\n\n"
        "Median of `triton.testing.do_bench`, ms; storage is bfloat16. Shapes are the operator's axes.\n"
        f"*once* is every tensor read or written once, at {rate:g} TB/s. *error / bound* is the largest at 64 tokens.\n"
        "A `hc_pre` is `mhc_pre` with Sinkhorn on h_res and without the tensors that a backward needs.\n\n"
    )
    return f"{head}{legend}{aligned(list(_HEAD), found)}\n{failures(raised)}"


def failures(raised: Collection[str]) -> str:
    """Return the list of what raised, or nothing."""
    lines = ["", "What raised, and the first line of its message:", "", *(f"- {line}" for line in raised), ""]
    return "\n".join(lines) if raised else ""


@click.command()
@verbs.several("--only", "names", metavar="OPERATOR", help="Measure this operator.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@verbs.positive("--bandwidth", default=4.3, help="TB/s of the bound.")
@verbs.write(RESULTS)
def family(names: tuple[str, ...], no_compile: bool, bandwidth: float, write: bool) -> None:
    """Time the kernels of hyper-connections, ours and those of libraries that can be imported, beside torch.compile.

    \b
        python -m mhc.bench family --write
        MHC_CHECKOUT_SGLANG=path/to/sglang python -m mhc.bench family --only mhc_post_transposed

    Exit status: 0 measured, 2 usage, 3 a fault of the harness itself.
    """
    verbs.refuse_unknown(names, dict.fromkeys(OPERATORS), "operator")
    if not torch.cuda.is_available():
        raise click.UsageError("kernels are measured on a GPU alone, and PyTorch sees no CUDA device here")
    shown, found, setting = verbs.Page(RESULTS, write=write), [], verbs.setting("cuda")
    raised: dict[str, None] = {}  # each line once
    for kernels in found_here(names or OPERATORS).values():
        table = kernels[0].table
        sizes_of = {tuple(axes(table, sizes).items()): sizes for sizes in SIZES if fits(table, sizes)}  # Sinkhorn has no C
        for sizes in sizes_of.values():
            lines = rows(kernels, sizes, torch.device("cuda"), bandwidth, compiled=not no_compile, raised=raised.setdefault)
            for row in lines:
                shown.show("  ".join(row))
                found.append(row)
            shown.write(page(found, raised, setting, bandwidth))
    shown.finish(page(found, raised, setting, bandwidth), 0)
