"""Misbehaviour that Python sees: exceptions, invalid results, and refusals without a rule."""

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any, NoReturn

import hypothesis.errors
import torch
from torch import Tensor

from mhc.case import Case
from mhc.implementation import Refused
from mhc.oracles.mutants.misbehaving.record import Misbehaviour, Outputs, always, many_tokens, odd_width

NO_EXCEPTION = "raises what is not an `Exception`: SystemExit, GeneratorExit, KeyboardInterrupt, CancelledError, its own"
UNPRINTABLE = "raises an exception that cannot be printed, or whose message is huge or has control characters"
HYPOTHESIS = "raises an exception of Hypothesis"
NOW_AND_THEN = "raises in one run of two"
RESOURCES = "raises RecursionError or MemoryError"
NO_TENSORS = "returns sparse, quantised or meta tensors, a tensor that raises, too few, or no tensors"
ODD_TENSORS = "returns tensors that require grad, have stride 0 or lie in a huge storage"
WRONG = "returns wrong values, also where the bound is 0"
NANS = "returns NaN everywhere"
SUPPORTS = "`supports` raises, or returns neither True nor Refused"
UNSTEADY = "`supports` answers otherwise each time"


_CHANCE = random.Random()  # not the global one, which Hypothesis seeds


class _Own(BaseException):
    pass


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


class _NamelessType(type):
    def __repr__(cls) -> str:
        raise RuntimeError("no name for it")


class _Nameless(Exception, metaclass=_NamelessType):
    def __repr__(self) -> str:
        raise RuntimeError("no words for it")


class _Raising(Tensor):
    @classmethod
    def __torch_function__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise RuntimeError("a tensor that does nothing")


def _raising(
    kind: str, name: str, symptom: str, error: Callable[[], BaseException], when: Callable[[Tensor], bool] = many_tokens
) -> Misbehaviour:
    """Return an implementation that raises `error()`, which the liveness gate reports as `symptom`."""

    def act() -> None:
        raise error()

    return Misbehaviour(name=name, kind=kind, finds=(f"liveness: {symptom}",), act=act, when=when)


def _now_and_then() -> None:
    if _CHANCE.getrandbits(1):
        raise ValueError("now and then")


def _recurses() -> None:
    _recurses()


def _first(change: Callable[[Tensor], object]) -> Callable[[Outputs], object]:
    """Return a function that changes the first output, h_in."""
    return lambda outputs: (change(outputs[0]), *outputs[1:])


def _in_a_huge_storage(value: Tensor) -> Tensor:
    return torch.empty(1 << 24, dtype=value.dtype)[: value.numel()].view(value.shape).copy_(value)


def _without_stride(value: Tensor) -> Tensor:
    return value.as_strided(value.shape, (0, *value.stride()[1:]))  # right where B is at most 1


_ANSWERS: Iterator[bool | Refused] = cycle((True, Refused("not this time")))


def _in_turns(case: Case) -> bool | Refused:
    del case
    return next(_ANSWERS)


def _raises_at_random(case: Case) -> bool:
    del case
    _now_and_then()
    return True


def _supports(error: Callable[[], BaseException]) -> Callable[[Case], bool]:
    def supports(case: Case) -> bool:
        if case.sizes["S"] % 2:
            raise error()
        return True

    return supports


_no_tensors = partial(Misbehaviour, kind=NO_TENSORS, finds=("liveness: raises *",))
_odd_tensors = partial(Misbehaviour, kind=ODD_TENSORS)
_supporting = partial(Misbehaviour, kind=SUPPORTS)

_BY_VALUE = ("precision: *", "algebra: *", "exact: *", "sequence: *")
"""Findings of other gates on a wrong value; `sequence`: a case whose own value is in bounds, as where all of it is NaN."""

RAISING = (
    _raising(NO_EXCEPTION, "raises_system_exit", "raises SystemExit", SystemExit, when=odd_width),
    _raising(NO_EXCEPTION, "raises_generator_exit", "raises GeneratorExit", GeneratorExit, when=odd_width),
    _raising(NO_EXCEPTION, "raises_keyboard_interrupt", "raises KeyboardInterrupt", KeyboardInterrupt),
    _raising(NO_EXCEPTION, "raises_cancelled", "raises CancelledError", asyncio.CancelledError),
    _raising(NO_EXCEPTION, "raises_its_own", "raises _Own", _Own),
    _raising(UNPRINTABLE, "raises_unprintable", "raises _Unprintable", _Unprintable, when=odd_width),
    _raising(UNPRINTABLE, "raises_nameless", "raises _Nameless", _Nameless),
    _raising(UNPRINTABLE, "raises_a_long_message", "raises ValueError", lambda: ValueError("x" * (1 << 25))),
    _raising(
        UNPRINTABLE, "raises_escapes", "raises ValueError", lambda: ValueError("\x1b]52;c;AAAA\x07\x1b[2J\u202e\r\0 escapes")
    ),
    _raising(HYPOTHESIS, "raises_stop_test", "raises StopTest", lambda: hypothesis.errors.StopTest(0), when=odd_width),
    _raising(HYPOTHESIS, "raises_unsatisfied", "raises UnsatisfiedAssumption", hypothesis.errors.UnsatisfiedAssumption),
    _raising(HYPOTHESIS, "raises_flaky", "raises Flaky", lambda: hypothesis.errors.Flaky("as if")),
    Misbehaviour(
        name="raises_now_and_then",
        kind=NOW_AND_THEN,
        finds=("liveness: raises ValueError",),
        act=_now_and_then,
    ),
    Misbehaviour(name="recurses", kind=RESOURCES, finds=("liveness: raises RecursionError",), act=_recurses),
    _raising(RESOURCES, "raises_memory_error", "out of memory", MemoryError),
)

RETURNING = (
    _no_tensors(name="returns_sparse", result=_first(Tensor.to_sparse), when=odd_width),
    _no_tensors(name="returns_meta", result=_first(lambda value: value.to("meta"))),
    _no_tensors(
        name="returns_quantised", result=_first(lambda value: torch.quantize_per_tensor(value.float(), 0.1, 0, torch.qint8))
    ),
    _no_tensors(name="returns_a_tensor_that_raises", result=_first(lambda value: value.as_subclass(_Raising))),
    _no_tensors(name="returns_too_few", result=lambda outputs: list(outputs[:2])),
    _no_tensors(name="returns_not_implemented", result=lambda outputs: NotImplemented),
    _odd_tensors(name="returns_leaves", result=_first(lambda value: value.clone().requires_grad_())),
    _odd_tensors(name="returns_without_stride", result=_first(_without_stride), when=lambda x: x.shape[0] <= 1),
    _odd_tensors(name="returns_in_a_huge_storage", result=_first(_in_a_huge_storage)),
    Misbehaviour(
        name="returns_one_more",
        kind=WRONG,
        finds=("bound: *", *_BY_VALUE),
        result=_first(lambda value: value + 1),
        when=always,
    ),
    Misbehaviour(
        name="returns_nan",
        kind=NANS,
        finds=("nonfinite: class", *_BY_VALUE),
        result=_first(lambda value: value.fill_(torch.nan)),
        when=always,
    ),
)

REFUSING = (
    _supporting(name="supports_raises", finds=("liveness: raises ValueError",), supports=_supports(ValueError)),
    _supporting(name="supports_exits", finds=("liveness: raises SystemExit",), supports=_supports(SystemExit)),
    _supporting(
        name="supports_says_perhaps",
        finds=("liveness: raises *",),
        supports=lambda case: "perhaps" if case.sizes["S"] % 2 else True,
    ),
    Misbehaviour(name="supports_in_turns", kind=UNSTEADY, finds=("refusal: unsteady",), supports=_in_turns),
    Misbehaviour(
        name="supports_raises_at_random",
        kind=UNSTEADY,
        finds=("refusal: unsteady", "liveness: raises ValueError"),
        supports=_raises_at_random,
    ),
)

CALLS = RAISING + RETURNING + REFUSING
