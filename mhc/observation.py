"""Observation: what one implementation did with one case."""

import mmap
import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mhc.case import Case
from mhc.environment import Environment, environment
from mhc.global_state import Change, unchanged
from mhc.implementation import Implementation, Refused, text_of
from mhc.inputs import Inputs
from mhc.memory import NAN_FILL, Allocations, poisoned
from mhc.operator import STORAGE_DTYPES, TensorSpec
from mhc.overlap import shared
from mhc.placement import Placed, fetch, place
from mhc.precision import float32_matmuls
from mhc.stream_order import Stream, call_late


class ContractError(TypeError):
    """An implementation returned something else than its interface promises; says what and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception out of an implementation, as text (exceptions from outside need not survive pickling)."""

    stage: str
    type: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything that the oracles may look at.

    Attributes:
        outputs, gradients: by name, copies on the host of what was returned; an entry is None where the implementation gave
            none. A stage that did not run, or failed, leaves its mapping empty, and so does a device that is lost.
        returned: what was returned itself, where it is, with what a later call may have written to it by now.
        refused: the reason, where the implementation does not take the case, or the device has no room for the schedule that
            the case pins.
        failure: the exception, where there was one; the first stage that fails ends the run.
        written: inputs whose memory was not the same afterwards, or that are another view of it.
        overrun: outputs and gradients with memory beside them that was written; "scratch" for other allocations.
        seconds: wall time by stage, device work included.
        aliased: (result, other) where a result shares memory with an input, a saved tensor or another result, and is not
            declared to.
        changes: of the global state, which was put back.
        early: where the inputs came late (`mhc.stream_order`), copies on the host of the results as the stream had them
            when the call had returned; the other fields tell of the results as they are in the end.
    """

    implementation: str
    case: Case
    device: torch.device
    outputs: Mapping[str, Tensor | None]
    gradients: Mapping[str, Tensor | None]
    returned: Mapping[str, Tensor]
    refused: str | None
    failure: Failure | None
    written: tuple[str, ...]
    overrun: tuple[str, ...]
    seconds: Mapping[str, float]
    environment: Environment
    aliased: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()
    early: Mapping[str, Tensor] = field(default_factory=dict)


STAGES = ("forward", "backward")


class DeviceFull(RuntimeError):
    """A kernel got no memory on a GPU whose memory others have: that says nothing of the kernel."""


def observe(
    implementation: Implementation,
    inputs: Inputs,
    saved: Mapping[str, Tensor],
    *,
    stages: Sequence[str] = STAGES,
    fill: int = NAN_FILL,
    stream: Stream | None = None,
) -> Observation:
    """Run forward and backward of `implementation` on copies of `inputs` on their device, and bring back what it did.

    An exception out of the implementation is recorded, not raised.

    Raises:
        DeviceFull: it got no memory because other processes have it.

    Args:
        saved: what the backward gets for the forward's saved tensors, not its own forward's; on the host.
        stages: the ones to run, of those that there are.
        fill: the byte that fills what the implementation allocates and does not initialise.
        stream: the current one during the run; the inputs come late on it.
    """
    case, table = inputs.case, inputs.case.table
    record = _StageRecord()
    outputs: Mapping[str, Tensor | None] = {}
    gradients: Mapping[str, Tensor | None] = {}
    refused = failure = None
    placed = place(inputs, saved)
    given = placed.tensors
    views = {name: (one, _metadata(one)) for name, one in given.items() if one is not None}
    allocations = Allocations(fill)
    stage = "supports"
    try:
        refused = implementation.refusal(case, inputs.device.type)
        with poisoned(fill) as allocations:
            if refused is None and implementation.forward is not None and "forward" in stages:
                stage = "forward"
                arguments = [given[name] for name in table.forward_arguments]
                outputs = _run(implementation, stage, arguments, table.outputs, inputs, stream, record)
            if refused is None and implementation.backward is not None and "backward" in stages:
                stage = "backward"
                arguments = [given[name] for name in table.backward_arguments]
                gradients = _run(implementation, stage, arguments, table.gradients, inputs, stream, record)
    except Refused as refusal:
        # a pinned schedule may turn out too large for the device only when it is compiled; nothing else may refuse so late
        if implementation.name in case.schedules:
            refused = refusal
        else:
            failure = _failure(stage, refusal)
    except BaseException as error:  # whatever a kernel raises is a finding, not an end
        if _interrupted(error):
            raise
        if inputs.device.type == "cuda" and _taken_by_others(error):
            raise DeviceFull(f"other processes have the GPU's memory: {text_of(error)}") from error
        failure = _failure(stage, error)
    returned = {name: value for name, value in {**outputs, **gradients}.items() if value is not None}
    try:
        copied = _HostCopies() if stage == "supports" else _fetch_all(returned, placed, allocations, record.early)
    except Exception as error:  # the device is lost, or a tensor raises; what was raised before says more
        failure = failure or _failure(stage, error)
        outputs, gradients, returned, copied = {}, {}, {}, _HostCopies()
    return Observation(
        implementation=implementation.name,
        case=case,
        device=inputs.device,
        outputs={name: copied.results.get(name) for name in outputs},
        gradients={name: copied.results.get(name) for name in gradients},
        returned=returned,
        refused=None if refused is None else refused.reason,
        failure=failure,
        written=tuple(
            name
            for name, memory in copied.memory.items()
            if not _same_bits(memory, inputs.storages[name] if name in inputs.storages else saved[name])
            or (name in views and _metadata(views[name][0]) != views[name][1])
        ),
        overrun=_overrun(allocations, copied.canaries, returned),
        seconds=record.seconds,
        environment=environment(),
        aliased=_undeclared(implementation, shared(returned, {n: one for n, one in given.items() if one is not None})),
        changes=tuple(record.changes),
        early=copied.early,
    )


@dataclass(frozen=True)
class _StageRecord:
    """What stages tell beside their results."""

    seconds: dict[str, float] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    early: dict[str, Tensor] = field(default_factory=dict)


def _undeclared(implementation: Implementation, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    declared = {frozenset(pair) for pair in implementation.aliases}
    return tuple(pair for pair in pairs if frozenset(pair) not in declared)


@dataclass(frozen=True, kw_only=True)
class _HostCopies:
    """Copies on the host: what was returned, early too, the memory of what was given, and the canaries."""

    results: Mapping[str, Tensor] = field(default_factory=dict)
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    canaries: Sequence[Tensor] = ()
    early: Mapping[str, Tensor] = field(default_factory=dict)


def _fetch_all(
    returned: Mapping[str, Tensor], placed: Placed, allocations: Allocations, early: Mapping[str, Tensor]
) -> _HostCopies:
    copies = iter(fetch([*returned.values(), *placed.memory.values(), *early.values(), *allocations.canaries()]))
    results, memory, before = ({name: next(copies) for name in one} for one in (returned, placed.memory, early))
    return _HostCopies(results=results, memory=memory, early=before, canaries=list(copies))


def _overrun(allocations: Allocations, canaries: Sequence[Tensor], returned: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Whose canaries changed: names of what was returned, and "scratch"."""
    if not canaries:
        return ()
    owners = {value.data_ptr(): name for name, value in returned.items()}
    return tuple(sorted({owners.get(address, "scratch") for address, _ in allocations.overrun(canaries)}))


def _failure(stage: str, error: BaseException) -> Failure:
    kind = type(error).__name__[:100]
    message = text_of(error)
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException:  # it formats the exception again, and what it has inside
        trace = message
    return Failure(stage=stage, type=kind, message=message[:_LONGEST], traceback=trace[-_LONGEST:])


_LONGEST = 20_000  # characters of what an exception says that are looked at


_FULL = 64  # less than that part of a GPU's memory is free where it is full
_NO_MEMORY = re.compile(r"out of memory|ALLOC_FAILED", re.IGNORECASE)


def _taken_by_others(error: BaseException) -> bool:
    """Whether `error` tells of a lack of memory on a GPU that is full, and less than half of it is this process's."""
    if not isinstance(error, torch.OutOfMemoryError) and not _NO_MEMORY.search(text_of(error)):
        return False
    try:
        free, whole = torch.cuda.mem_get_info()
    except RuntimeError:  # the device is lost: something else went wrong
        return False
    return free < whole / _FULL and torch.cuda.memory_reserved() < (whole - free) / 2


def _interrupted(error: BaseException) -> bool:
    """Whether a person ended the run by Ctrl-C: workers ignore it, so what they see comes from the implementation."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


_CHILD_LEFT = mmap.mmap(-1, 1)  # shared with forked children: not 0 once one has left the call that it was forked in
_CHILD_SECONDS = 0.2  # that a child gets to show whether it leaves the call
_forks: list[None] = []
os.register_at_fork(after_in_parent=lambda: _forks.append(None))


@contextmanager
def _one_process(where: str) -> Iterator[None]:
    """End a forked child that leaves the block: two processes would go on with one run, and both would report.

    Raises:
        ContractError: a child left the block.
    """
    own = os.getpid()
    _CHILD_LEFT[0] = 0
    _forks.clear()
    try:
        yield
    finally:
        if os.getpid() != own:
            _CHILD_LEFT[0] = 1
            os._exit(0)
    until = time.monotonic() + _CHILD_SECONDS
    while _forks and not _CHILD_LEFT[0] and time.monotonic() < until:
        time.sleep(0.005)
    if _CHILD_LEFT[0]:
        raise ContractError(f"{where} forked, and returned in the child as well")


def _run(
    implementation: Implementation,
    stage: str,
    arguments: Sequence[Tensor | None],
    specs: Sequence[TensorSpec],
    inputs: Inputs,
    stream: Stream | None,
    record: _StageRecord,
) -> Mapping[str, Tensor | None]:
    keywords = implementation.keywords(inputs.case.scalars, inputs.case.schedules.get(implementation.name))
    function: Callable[..., Any] = getattr(implementation, stage)
    early: Sequence[Tensor | None] = ()
    changes: list[Change] = []
    try:
        with float32_matmuls(inputs.device.type), unchanged(stage, inputs.device.type) as changes:
            start = time.perf_counter()
            with _one_process(f"{implementation.origin}: {implementation.name}.{stage}"):
                if stream is None:
                    returned = function(*arguments, **keywords)
                else:
                    returned, early = call_late(function, arguments, keywords, stream)
            if inputs.device.type == "cuda":
                torch.cuda.synchronize(inputs.device)
            record.seconds[stage] = time.perf_counter() - start
    finally:
        record.changes.extend(changes)
    results = check_returned(implementation, stage, returned, specs, inputs)
    record.early.update({spec.name: one for spec, one in zip(specs, early, strict=False) if one is not None})
    return results


def check_returned(
    implementation: Implementation, stage: str, returned: Any, specs: Sequence[TensorSpec], inputs: Inputs
) -> Mapping[str, Tensor | None]:
    """Name what a stage returned.

    Raises:
        ContractError: the number of values, or one's type, shape, dtype or device, is not what the interface promises.
    """
    where = f"{implementation.origin}: {implementation.name}.{stage}"
    names = ", ".join(spec.name for spec in specs)
    if not isinstance(returned, (tuple, list)):
        raise ContractError(f"{where} returned {type(returned).__name__}; expected {len(specs)} values: {names}")
    if len(returned) != len(specs):
        raise ContractError(f"{where} returned {len(returned)} values; expected {len(specs)}: {names}")
    case = inputs.case
    for spec, value in zip(specs, returned, strict=True):
        if value is None:
            if stage == "forward" and spec.name not in case.table.optional_outputs:
                raise ContractError(f"{where} returned None for {spec.name}, which every implementation must return")
            continue
        shape, dtype = spec.shape(case.sizes), spec.dtype(STORAGE_DTYPES[case.dtype])
        expected = f"expected [{', '.join(spec.symbols)}] = {shape}, {dtype}, on {inputs.device.type}"
        if not isinstance(value, Tensor):
            raise ContractError(f"{where} returned {type(value).__name__} for {spec.name}; {expected}")
        if value.layout is not torch.strided or value.is_quantized:
            was = "a quantised tensor" if value.is_quantized else f"a tensor of layout {value.layout}"
            raise ContractError(f"{where} returned {was} for {spec.name}; {expected}")
        if tuple(value.shape) != shape or value.dtype != dtype or value.device.type != inputs.device.type:
            was = f"{tuple(value.shape)}, {value.dtype}, on {value.device.type}"
            raise ContractError(f"{where} returned {spec.name} of shape {was}; {expected}")
    return {spec.name: _plain(value) for spec, value in zip(specs, returned, strict=True)}


def _plain(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()


def _metadata(tensor: Tensor) -> tuple[object, ...]:
    """All of a tensor but its elements: a kernel must not move, reshape or mark what it is given either."""
    where = tensor.data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
    return *where, tensor.requires_grad, tensor.grad is None


def _same_bits(a: Tensor, b: Tensor) -> bool:
    # an empty tensor may have strides that no view of bytes takes
    return a.numel() == 0 or torch.equal(a.view(torch.uint8), b.view(torch.uint8))
