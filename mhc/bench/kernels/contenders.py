"""Forward and backward of every contender at one shape, side by side in one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mhc.bench.kernels import meter
from mhc.bench.kernels.accuracy import COPIES, allowed, deviations
from mhc.bench.kernels.meter import Call
from mhc.bench.kernels.record import COMPILE, GOLDEN, STAGES, Row, Shape, Timing, first_line
from mhc.case import default_case
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_pre import formula
from mhc.operators.mhc_pre.api import choose, mhc_pre
from mhc.operators.mhc_pre.table import PRE
from mhc.operators.mhc_pre.torch.golden import mhc_forward_pre
from mhc.operators.mhc_pre.torch.implementations import GOLDEN as GOLDEN_IMPLEMENTATION
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.precision import float32_matmuls

_DTYPE = torch.bfloat16
_SEED = 20250101
_SCALARS = dict(PRE.scalars)  # a plain dict, which Dynamo reads
_RESULTS = {"forward": [spec.name for spec in PRE.outputs], "backward": [spec.name for spec in PRE.gradients]}

Tensors = Mapping[str, Tensor | None]
_Tolerances = Callable[[bool], Mapping[str, ErrorNumber]]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to compute one stage.

    Attributes:
        prepare: makes the call that is timed; what the call keeps alive, such as a graph, is freed with it.
        entry: makes the same call through `mhc_pre`, where there is such a way.
        recomputes_forward: as for an implementation.
        refusal: why it does not take the shape, if so; then nothing runs.
    """

    name: str
    stage: str
    prepare: Callable[[], Call]
    variant: str = ""
    entry: Callable[[], Call] | None = None
    recomputes_forward: bool = False
    refusal: Callable[[], Refused | None] = lambda: None


def measure(
    shape: Shape,
    implementations: Sequence[Implementation],
    device: torch.device,
    *,
    compiled: bool = True,
    on_timing: Callable[[Shape, Timing], None] = lambda shape, timing: None,
) -> Row:
    """Measure everything at one shape: golden, `torch.compile` if `compiled`, and `implementations`.

    An exception is recorded in what it belongs to, not raised. `on_timing` is called with each timing.
    """
    if compiled:
        torch.compiler.reset()  # from the ninth shape on Dynamo would refuse to compile the same function again
    timings = []
    with float32_matmuls(device.type), torch.no_grad():
        try:
            need, free = 8 * COPIES * shape.B * shape.S * shape.n * shape.D, meter.free_bytes()
            tensors = draw(shape, device)
            wanted = _tolerances(tensors) if need <= free else None
        except Exception as error:
            return Row(shape=shape, error=first_line(error))
        for contender in _contenders(shape, implementations, tensors, compiled=compiled):
            timings.append(_measure_one(contender, wanted))
            on_timing(shape, timings[-1])
    gib = 2.0**30
    note = f"accuracy not measured: float64 needs {need / gib:.2g} GiB, {free / gib:.2g} GiB are free"
    return Row(shape=shape, timings=timings, note=note if wanted is None else None)


def draw(shape: Shape, device: torch.device) -> dict[str, Tensor | None]:
    """Draw inputs, upstream gradients and saved tensors on the device; h_mix * inv_rms is about N(0, 1).

    The saved tensors are the float64 forward's, rounded once, so that a backward is judged by itself.
    """
    sizes = PRE.sizes(vars(shape))
    generator = torch.Generator(device).manual_seed(_SEED)
    tensors: dict[str, Tensor | None] = {}
    for spec in PRE.drawn:
        values = torch.randn(spec.shape(sizes), generator=generator, device=device)
        if spec.name == "phi":
            values *= sizes["K"] ** -0.5
        elif spec.name == "gamma":
            values = 1 + 0.1 * values
        tensors[spec.name] = values.to(spec.dtype(_DTYPE))
    wide = [None if tensor is None else tensor.double() for tensor in _pick(tensors, PRE.forward_arguments)]
    outputs = dict(zip(_RESULTS["forward"], PRE.forward(*wide, **_SCALARS), strict=True))
    specs = PRE.argument_specs
    return {**tensors, **{name: outputs[name].to(specs[name].dtype(_DTYPE)) for name in PRE.saved}}


def _pick(tensors: Tensors, names: Sequence[str]) -> list[Any]:
    return [tensors[name] for name in names]


def _tolerances(tensors: Tensors) -> _Tolerances:
    """Return the tolerances of a shape by whether the backward recomputes the forward; only the last asked for are kept."""
    drawn = {spec.name: tensors[spec.name] for spec in PRE.drawn}
    return lru_cache(maxsize=1)(lambda again: allowed(PRE, drawn, _SCALARS, recomputes_forward=again))


def _measure_one(contender: Contender, wanted: _Tolerances | None) -> Timing:
    who: dict[str, Any] = {"name": contender.name, "stage": contender.stage, "variant": contender.variant}
    try:
        refusal = contender.refusal()
        if refusal is not None:
            return Timing(**who, refused=refusal.reason)
        call = contender.prepare()
        results = call()
        accuracy = {}
        if contender.name != GOLDEN and wanted is not None:
            accuracy = dict(deviations(_RESULTS[contender.stage], results, wanted(contender.recomputes_forward)))
        del results
        return Timing(
            **who,
            ms=meter.milliseconds(call),
            host_us=meter.host_us(call),
            entry_us=None if contender.entry is None else meter.host_us(contender.entry()),
            scratch_mib=meter.scratch_mib(call),
            accuracy=accuracy,
        )
    except Exception as error:  # whatever a kernel raises is a result, not an end
        return Timing(**who, error=first_line(error))


def _contenders(
    shape: Shape, implementations: Sequence[Implementation], tensors: Tensors, *, compiled: bool
) -> Iterator[Contender]:
    """Yield the contenders stage by stage, so that what is compared is measured close together."""
    for stage in STAGES:
        if stage == "forward":
            yield _implementation(GOLDEN_IMPLEMENTATION, stage, shape, tensors)
        else:
            yield Contender(name=GOLDEN, stage=stage, prepare=lambda: _autograd(_eager, tensors))
        if compiled:
            yield from _compiled(stage, tensors)
        for implementation in implementations:
            if getattr(implementation, stage) is not None:
                yield _implementation(implementation, stage, shape, tensors)


def _implementation(implementation: Implementation, stage: str, shape: Shape, tensors: Tensors) -> Contender:
    function = getattr(implementation, stage)
    arguments = _pick(tensors, PRE.forward_arguments if stage == "forward" else PRE.backward_arguments)
    keywords = implementation.keywords(_SCALARS)
    (x,) = _pick(tensors, ["x"])
    case = default_case(B=shape.B, S=shape.S, n=shape.n, D=shape.D, dtype="bfloat16")
    device = x.device.type
    return Contender(
        name=implementation.name,
        stage=stage,
        prepare=lambda: lambda: function(*arguments, **keywords),
        entry=(lambda: _entry(implementation, tensors)) if stage == "forward" else None,
        recomputes_forward=implementation.recomputes_forward,
        refusal=lambda: implementation.refusal(case, device),
    )


def _entry(implementation: Implementation, tensors: Tensors) -> Call:
    """Return `mhc_pre` as a model calls it; without `impl` where it chooses this implementation by itself."""
    x, phi, alpha, bias, gamma = _pick(tensors, PRE.forward_arguments)
    if choose(x, gamma).implementation is implementation:
        return lambda: mhc_pre(x, phi, alpha, bias, gamma)
    return lambda: mhc_pre(x, phi, alpha, bias, gamma, impl=implementation)


def _eager(*arguments: Any) -> tuple[Tensor, ...]:
    return mhc_forward_pre(*arguments, norm_eps=_SCALARS["norm_eps"], hc_eps=_SCALARS["hc_eps"])


def _formula_forward(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(formula.forward(*arguments, **_SCALARS))


def _formula_differentiable(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(formula.forward(*arguments, **_SCALARS)[:3])


def _formula_backward(*arguments: Any) -> tuple[Tensor | None, ...]:
    return tuple(formula.backward(*arguments, **_SCALARS))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # fullgraph: an error rather than a silent return to eager
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    return compiled


def _compiled(stage: str, tensors: Tensors) -> Iterator[Contender]:
    """Yield the formula under `torch.compile`; its backward both as written by hand and as autograd derives it."""

    def direct(function: Callable[..., Any], names: Sequence[str]) -> Call:
        compiled, arguments = _compile(function), _pick(tensors, names)
        return lambda: compiled(*arguments)

    if stage == "forward":
        yield Contender(name=COMPILE, stage=stage, prepare=lambda: direct(_formula_forward, PRE.forward_arguments))
        return
    yield Contender(
        name=COMPILE, stage=stage, variant="manual", prepare=lambda: direct(_formula_backward, PRE.backward_arguments)
    )
    yield Contender(
        name=COMPILE,
        stage=stage,
        variant="autograd",
        prepare=lambda: _autograd(_compile(_formula_differentiable), tensors),
        recomputes_forward=True,
    )


def _autograd(forward: Callable[..., Any], tensors: Tensors) -> Call:
    """Return autograd's backward alone, through a forward that has run once and whose graph is kept."""
    import torch._functorch.config as functorch  # noqa: PLC0415  private: a compiled graph gives its buffers away

    settings: Any = functorch
    given = _pick(tensors, PRE.forward_arguments)
    leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in given]
    wanted = [leaf for leaf in leaves if leaf is not None]
    upstream = _pick(tensors, [spec.name for spec in PRE.upstream])
    with settings.patch(donated_buffer=False):  # or retain_graph is refused
        with torch.enable_grad():
            outputs = forward(*leaves)
        torch.autograd.grad(outputs, wanted, upstream, retain_graph=True)  # compiled while the setting holds
    return lambda: torch.autograd.grad(outputs, wanted, upstream, retain_graph=True)
