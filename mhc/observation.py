"""Observation: the results and effects of one run of an implementation on one case."""

import mmap
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from mhc.case import Case
from mhc.declaration import Autograd, Backward
from mhc.dense import equal_bits
from mhc.environment import Environment, environment
from mhc.global_state import Change, unchanged
from mhc.implementation import Implementation, Refused, place_of, text_of
from mhc.inputs import Inputs, reached
from mhc.memory import NAN_FILL, Allocations, place_written, poisoned
from mhc.operator import STAGES, STORAGE_DTYPES, TRAINING, TensorSpec
from mhc.overlap import shared
from mhc.placement import Placed, fetch, place, rewrite
from mhc.precision import float32_matmuls
from mhc.stream_order import Stream, call_late
from mhc.triton_interpreter import VARIABLE, prepared
from mhc.triton_lockstep import Order

SCRATCH = "scratch"
"""The name of allocations that are no result."""


class ContractError(TypeError):
    """Raised where an implementation breaks its interface; the message says what it returned and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception of an implementation, as text, since external exceptions may not be picklable.

    place: the file and the line in it where the implementation was when it was raised; empty if in no file of its own.
    """

    stage: str
    type: str
    message: str
    traceback: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """All data of a run that oracles may use.

    Attributes:
        outputs, gradients: host copies of the results by name; None where the implementation returned None. Empty for a
            stage that did not run or failed, and where the device was lost.
        returned: the returned tensors themselves, on their device, which later calls may have overwritten.
        refused: the reason why the implementation does not accept the case, or the device cannot run the pinned schedule.
        failure: the exception, if any; the first stage that fails ends the run.
        written: inputs whose memory, in front of it too, or metadata changed; of those that the operator mutates, memory
            beside their elements.
        overrun: outputs and gradients whose canaries changed; `SCRATCH` for other allocations.
        places: where each of those in `written` and `overrun` was written, in words.
        seconds: wall time by stage, device work included.
        aliased: (result, other) for each undeclared sharing of memory with an input, a saved tensor or another result.
        changes: changes of the global state, which were undone.
        order: in Triton's interpreter, in which order the programs ran of launches that had several; None where none had.
        early: after a run with late inputs (`mhc.stream_order`), host copies of the results as they were on the stream when
            the call returned; all other fields describe the final results.
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
    places: Mapping[str, str] = field(default_factory=dict)
    aliased: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()
    order: Order | None = None
    early: Mapping[str, Tensor] = field(default_factory=dict)


class DeviceFull(RuntimeError):
    """Raised where a kernel got no memory because other processes use the GPU: not a fault of the kernel."""


def observe(
    implementation: Implementation,
    inputs: Inputs,
    saved: Mapping[str, Tensor],
    *,
    stages: Sequence[str] = STAGES,
    fill: int = NAN_FILL,
    stream: Stream | None = None,
    autograd: Autograd | None = None,
    before: Mapping[str, Tensor] | None = None,
    order: Order | None = None,
) -> Observation:
    """Run forward and backward of `implementation` on device copies of `inputs`, and return the observation.

    An exception of the implementation is recorded, not raised.

    Raises:
        DeviceFull: the implementation got no memory because other processes use it.

    Args:
        saved: the values, on the host, that the backward receives for the forward's saved tensors.
        stages: the stages to run, if the implementation has them.
        fill: the byte that fills uninitialised allocations.
        stream: the current stream of the run, on which the inputs are written late; None for a plain run.
        autograd: in place of the stages, run forward and backward together, as it says; the implementation is one whose
            backward is autograd's.
        before: other allocations of `inputs` and `saved` by name, on the host. Each stage is called twice with the same
            tensors: they hold these values in the first call, and are rewritten in place. A forward that writes into no
            input is called with them once more, behind the call that counts. None for one call.
        order: in Triton's interpreter, of the programs of each launch (`mhc.triton_interpreter.prepared`).
    """
    case, table = inputs.case, inputs.case.table
    record = _StageRecord()
    results: dict[str, Tensor | None] = {}
    refused = failure = None
    placed = place(inputs, saved)
    given = placed.tensors
    views = {name: (one, _metadata(one)) for name, one in given.items() if one is not None}
    allocations = Allocations(fill)
    stage = "supports"
    try:
        refused = implementation.refusal(case, inputs.device.type)
        with poisoned(fill) as allocations:
            wanted = implementation.stages(stages) if autograd is None else [TRAINING]
            for stage in wanted if refused is None else ():
                names, specs = table.interface(stage)
                # what the forward may have written, the backward gets anew
                anew = place(inputs, saved) if table.mutates and results else placed
                where = {one: anew if one in table.mutates else placed for one in names}
                arguments = [where[one].tensors[one] for one in names]
                function = _function(implementation, stage, autograd)
                if before is not None:
                    memory = {one: where[one].memory[one] for one in names if one in before}
                    others_last = stage == STAGES[0] and not table.mutates
                    values = {**inputs.storages, **saved}
                    function = partial(_call_between, function, memory, before, values, others_last)
                results.update(_run(implementation, stage, function, arguments, specs, inputs, stream, record, order))
    except Refused as refusal:
        # only a pinned schedule may be refused this late: compilation may show that it is too large for the device
        if implementation.name in case.schedules:
            refused = refusal
        else:
            failure = _failure(stage, refusal)
    except BaseException as error:  # any exception of a kernel is a finding
        if _interrupted(error):
            raise
        if inputs.device.type == "cuda" and _taken_by_others(error):
            raise DeviceFull(f"other processes have the GPU's memory: {text_of(error)}") from error
        failure = _failure(stage, error)
    outputs, gradients = (
        {one.name: results[one.name] for one in specs if one.name in results} for specs in (table.outputs, table.gradients)
    )
    returned = {name: value for name, value in results.items() if value is not None}
    try:
        copied = _HostCopies() if stage == "supports" else _fetch_all(returned, placed, allocations, record.early)
    except Exception as error:  # the device is lost, or a tensor raises; an earlier exception is more precise
        failure = failure or _failure(stage, error)
        outputs, gradients, returned, copied = {}, {}, {}, _HostCopies()
    memory = {
        name: _but_elements(placed, name, one) if name in table.mutates else one for name, one in copied.memory.items()
    }
    written = {
        name: _place_written(name, placed, one)
        for name, one in memory.items()
        if (name in views and name not in table.mutates and _metadata(views[name][0]) != views[name][1])
        or not equal_bits(one, placed.before[name])
    }
    overrun = _overrun(allocations, copied.canaries, returned)
    return Observation(
        implementation=implementation.name,
        case=case,
        device=inputs.device,
        outputs={name: copied.results.get(name) for name in outputs},
        gradients={name: copied.results.get(name) for name in gradients},
        returned=returned,
        refused=None if refused is None else refused.reason,
        failure=failure,
        written=tuple(written),
        overrun=tuple(sorted(overrun)),
        places={**written, **overrun},
        seconds=record.seconds,
        environment=environment(),
        aliased=_undeclared(implementation, shared(returned, {n: one for n, one in given.items() if one is not None})),
        changes=tuple(record.changes),
        order=record.order,
        early=copied.early,
    )


@dataclass
class _StageRecord:
    """What stages record besides their results."""

    order: Order | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    early: dict[str, Tensor] = field(default_factory=dict)


def _undeclared(implementation: Implementation, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    declared, written = {frozenset(pair) for pair in implementation.aliases}, implementation.table.mutates
    return tuple(pair for pair in pairs if frozenset(pair) not in declared and not written & {*pair})


@dataclass(frozen=True, kw_only=True)
class _HostCopies:
    """Host copies of the results, the early results, the memory of the arguments, and the canaries."""

    results: Mapping[str, Tensor] = field(default_factory=dict)
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    canaries: Sequence[Tensor] = ()
    early: Mapping[str, Tensor] = field(default_factory=dict)


def _fetch_all(
    returned: Mapping[str, Tensor], placed: Placed, allocations: Allocations, early: Mapping[str, Tensor]
) -> _HostCopies:
    copies = fetch([*returned.values(), *early.values()], compared=[*placed.guarded.values(), *allocations.canaries()])
    left = iter(copies)
    results, before, memory = ({name: next(left) for name in one} for one in (returned, early, placed.guarded))
    return _HostCopies(results=results, memory=memory, early=before, canaries=list(left))


def _but_elements(placed: Placed, name: str, memory: Tensor) -> Tensor:
    """Return the memory of an input with the elements that it had, which the operator may write."""
    return torch.where(reached(memory, placed.view(name)), placed.before[name], memory)


def _place_written(name: str, placed: Placed, after: Tensor) -> str:
    """Return where an argument was written, in words."""
    if equal_bits(after, placed.before[name]):
        return f"{name}: its shape, strides or another property"
    return place_written(name, placed.view(name), placed.before[name], after)


def _overrun(allocations: Allocations, canaries: Sequence[Tensor], returned: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of results whose canaries changed, and `SCRATCH` for other allocations, each with the place."""
    places: dict[str, str] = {}
    if not canaries:
        return places
    owners = {value.data_ptr(): (name, value) for name, value in returned.items()}
    for one in allocations.overrun(canaries):
        made = one.allocation
        if made.address in owners:
            name, value = owners[made.address]
            fills = value.is_contiguous() and value.nbytes == made.size
            places[name] = one.words(name, value.shape if fills else None)
        else:
            what = f"a {str(made.dtype).removeprefix('torch.')} {tuple(made.shape)} that it allocated and does not return"
            places.setdefault(SCRATCH, f"{what}: {one.words(SCRATCH)}")
    return places


def _failure(stage: str, error: BaseException) -> Failure:
    kind = type(error).__name__[:100]
    message = text_of(error)
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException:  # formatting calls the exception's own code
        trace = message
    return Failure(stage=stage, type=kind, message=message[:_LONGEST], traceback=trace[-_LONGEST:], place=place_of(error))


_LONGEST = 20_000  # characters of an exception's message and traceback that are kept


_FULL = 64  # a GPU is full where less than 1/_FULL of its memory is free
_NO_MEMORY = re.compile(r"out of memory|ALLOC_FAILED", re.IGNORECASE)


def _taken_by_others(error: BaseException) -> bool:
    """Return whether `error` reports lack of memory on a full GPU of which this process uses less than half."""
    if not isinstance(error, torch.OutOfMemoryError) and not _NO_MEMORY.search(text_of(error)):
        return False
    try:
        free, whole = torch.cuda.mem_get_info()
    except RuntimeError:  # the device is lost, which is another error
        return False
    return free < whole / _FULL and torch.cuda.memory_reserved() < (whole - free) / 2


def _interrupted(error: BaseException) -> bool:
    """Return whether the user may have pressed Ctrl-C; workers ignore SIGINT, so there the kernel raised it."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN and _interrupts != 0


_interrupts: int | None = None
"""How many SIGINT came in a block of `interrupts_noted`; None outside of one."""


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Note each SIGINT in the block, so that a KeyboardInterrupt without one is known as the implementation's own.

    It does nothing outside the main thread, where no handler of signals can be set.
    """
    global _interrupts  # noqa: PLW0603
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        global _interrupts  # noqa: PLW0603
        _interrupts = (_interrupts or 0) + 1
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    _interrupts = 0
    try:
        yield
    finally:
        _interrupts = None
        signal.signal(signal.SIGINT, before)


@cache
def _left(process: int) -> mmap.mmap:
    """Return a byte that a process shares with the children that it forks: 1 once a child has left its call."""
    return mmap.mmap(-1, 1)


_CHILD_SECONDS = 0.2  # time given to a child to return from the call
_forks: list[None] = []
os.register_at_fork(after_in_parent=lambda: _forks.append(None))


@contextmanager
def _one_process(where: str) -> Iterator[None]:
    """End a forked child that leaves the block, since both processes would continue the run and report.

    Raises:
        ContractError: a child left the block.
    """
    own = os.getpid()
    if _forks:  # a child of an earlier call may be late
        _left.cache_clear()
        _forks.clear()
    left = _left(own)
    try:
        yield
    finally:
        if os.getpid() != own:
            left[0] = 1
            os._exit(0)
    until = time.monotonic() + _CHILD_SECONDS
    while _forks and not left[0] and time.monotonic() < until:
        time.sleep(0.005)
    if left[0]:
        raise ContractError(f"{where} forked, and returned in the child as well")


def _function(implementation: Implementation, stage: str, autograd: Autograd | None) -> Callable[..., Any]:
    if autograd is None:
        function: Callable[..., Any] = getattr(implementation, stage)
        return function
    assert isinstance(implementation.backward, Backward)
    return partial(implementation.backward.train, autograd)


def _call_between(
    function: Callable[..., Any],
    memory: Mapping[str, Tensor],
    others: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    others_last: bool,
    *arguments: Tensor | None,
    **keywords: Any,
) -> Any:
    """Return the results of a call with `values` in the arguments' memory, after one with `others` in it.

    others_last: one with `others` follows too, as that of another layer comes between a forward and its backward.
    """

    def call_with_others() -> None:
        rewrite(memory, others)
        try:
            function(*arguments, **keywords)
        finally:  # after an exception too: what the memory holds is compared with the inputs
            rewrite(memory, values)

    call_with_others()
    returned = function(*arguments, **keywords)
    if others_last:
        call_with_others()
    return returned


def _run(
    implementation: Implementation,
    stage: str,
    function: Callable[..., Any],
    arguments: Sequence[Tensor | None],
    specs: Sequence[TensorSpec],
    inputs: Inputs,
    stream: Stream | None,
    record: _StageRecord,
    order: Order | None,
) -> Mapping[str, Tensor | None]:
    schedule = inputs.case.schedules.get(implementation.name)
    keywords = implementation.keywords(inputs.case.scalars, schedule)
    config, interpreted = implementation.config(schedule), implementation.env.get(VARIABLE) == "1"
    early: Sequence[Tensor | None] = ()
    changes: list[Change] = []
    try:
        ready = prepared(config, needed=interpreted, order=order)
        unchanging = unchanged(stage, inputs.device.type)
        with float32_matmuls(inputs.device.type), ready as launched, unchanging as changes:
            start = time.perf_counter()
            with _one_process(f"{implementation.place}{implementation.name}.{stage}"):
                if stream is None:
                    returned = function(*arguments, **keywords)
                else:
                    returned, early = call_late(function, arguments, keywords, stream)
            if inputs.device.type == "cuda":
                torch.cuda.synchronize(inputs.device)
            record.seconds[stage] = time.perf_counter() - start
        record.order = launched.order or record.order
    finally:
        record.changes.extend(changes)
    results = check_returned(implementation, stage, returned, specs, inputs)
    record.early.update({spec.name: one for spec, one in zip(specs, early, strict=False) if one is not None})
    return results


def check_returned(
    implementation: Implementation, stage: str, returned: Any, specs: Sequence[TensorSpec], inputs: Inputs
) -> Mapping[str, Tensor | None]:
    """Return the results of a stage by name.

    Raises:
        ContractError: the number of values, or a value's type, shape, dtype or device, breaks the interface.
    """
    where = f"{implementation.place}{implementation.name}.{stage}"
    names = ", ".join(spec.name for spec in specs)
    if not isinstance(returned, (tuple, list)):
        wanted = f"{len(specs)} values" if len(specs) != 1 else "one"
        raise ContractError(f"{where} returned {type(returned).__name__}; expected {wanted}: {names}")
    if len(returned) != len(specs):
        raise ContractError(f"{where} returned {len(returned)} values; expected {len(specs)}: {names}")
    case = inputs.case
    for spec, value in zip(specs, returned, strict=True):
        if value is None:
            if stage != STAGES[1] and spec in case.table.outputs and spec.name not in case.table.optional_outputs:
                raise ContractError(f"{where} returned None for {spec.name}, which every implementation must return")
            continue
        shape, dtype = spec.shape(case.sizes), spec.dtype(STORAGE_DTYPES[case.dtype])
        dense = isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized
        if dense and value.shape == shape and value.dtype == dtype and value.device.type == inputs.device.type:
            continue
        expected = f"expected [{', '.join(spec.symbols)}] = {shape}, {dtype}, on {inputs.device.type}"
        if not isinstance(value, Tensor):
            raise ContractError(f"{where} returned {type(value).__name__} for {spec.name}; {expected}")
        if value.layout is not torch.strided or value.is_quantized:
            was = "a quantised tensor" if value.is_quantized else f"a tensor of layout {value.layout}"
            raise ContractError(f"{where} returned {was} for {spec.name}; {expected}")
        was = f"{tuple(value.shape)}, {value.dtype}, on {value.device.type}"
        raise ContractError(f"{where} returned {spec.name} of shape {was}; {expected}")
    values = zip(specs, returned, strict=True)
    return {spec.name: None if value is None else value.detach() for spec, value in values}


def _metadata(tensor: Tensor) -> tuple[object, ...]:
    """Return a tensor's properties except its elements; a kernel must not change them either."""
    where = tensor.data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
    return *where, tensor.requires_grad, tensor.grad is None
