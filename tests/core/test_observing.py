"""From a case to an observation, piece by piece: derived inputs, canaries, copies, and what a run is blamed for."""

import ctypes
import math
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from torch import Tensor

from mhc import Case, default_case, materialise, observation, observe, operator, reference
from mhc.case import with_sizes, with_tensor
from mhc.case_json import CaseError, decode, encode, parse
from mhc.implementation import Implementation, Refused
from mhc.inputs import Inputs, _strides, banded, derived, edited, front
from mhc.memory import BAND, FINITE_FILL, NAN_FILL, Allocations, place_written, poisoned
from mhc.observation import ContractError, DeviceFull, Observation, check_returned
from mhc.operator import register
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.placement import fetch, place
from mhc.recipe import Layout, Recipe
from mhc.reference import ON_HOST, judging_device, widen
from tests.support.helpers import altered, with_layout

CASE = default_case(B=2, S=3, n=2, D=5, dtype="float32")


def made(case: Case = CASE) -> Inputs:
    return materialise(case)


def tensor_of(inputs: Inputs, name: str) -> Tensor:
    found = inputs.tensors[name]
    assert found is not None
    return found


def seen(implementation: Implementation, case: Case = CASE, **options: Any) -> Observation:
    inputs = materialise(case)
    return observe(implementation, inputs, reference(inputs).saved, **options)


# ---- what a kernel raises and returns


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Stubborn(Tensor):
    """A tensor that cannot be copied."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") == "to":
            raise LookupError("stays where it is")
        return super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def raising(error: BaseException) -> Implementation:
    def forward(*arguments: Any, **keywords: Any) -> Any:
        raise error

    return replace(MANUAL, forward=forward, backward=None)


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), GeneratorExit(), StopTest(1), UnsatisfiedAssumption(), Unreadable()],
    ids=lambda one: type(one).__name__,
)
def test_whatever_a_kernel_raises_is_recorded(error: BaseException) -> None:
    failure = seen(raising(error)).failure
    assert failure is not None
    assert (failure.stage, failure.type) == ("forward", type(error).__name__)


def test_an_interrupt_is_a_persons_unless_it_is_ignored() -> None:
    with pytest.raises(KeyboardInterrupt):
        seen(raising(KeyboardInterrupt()))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        failure = seen(raising(KeyboardInterrupt())).failure
    finally:
        signal.signal(signal.SIGINT, before)
    assert failure is not None
    assert failure.type == "KeyboardInterrupt"


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("edit", "type_", "words"),
    [
        (lambda one: one.to_sparse(), "ContractError", "a tensor of layout torch.sparse_coo for h_in"),
        (lambda one: one.to("meta"), "ContractError", "on meta; expected"),
        (lambda one: torch.quantize_per_tensor(one, 0.1, 0, torch.quint8), "ContractError", "a quantised tensor for h_in"),
        (lambda one: one.as_subclass(Stubborn), "LookupError", "stays where it is"),
    ],
    ids=["sparse", "meta", "quantised", "stubborn"],
)
def test_a_tensor_that_is_none_of_memory_is_against_the_contract(edit: Any, type_: str, words: str) -> None:
    failure = seen(altered(MANUAL, forward=lambda out, _: (edit(out[0]), *out[1:]))).failure
    assert failure is not None
    assert failure.type == type_
    assert words in failure.message


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.set_(torch.zeros_like(x)),
        lambda x: setattr(x, "data", torch.zeros_like(x)),
        lambda x: x.transpose_(0, 1),
        lambda x: x.unsqueeze_(0),
        lambda x: x.requires_grad_(),
        lambda x: setattr(x, "grad", torch.zeros_like(x)),
    ],
    ids=["set", "data", "transpose", "unsqueeze", "requires_grad", "grad"],
)
def test_an_input_that_is_another_view_afterwards_was_written(move: Any) -> None:
    def edit(out: Any, arguments: Any) -> Any:
        move(arguments[0])
        return out

    assert seen(altered(MANUAL, forward=edit)).written == ("x",)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_that_returns_too_is_ended_and_told_of() -> None:
    own = os.getpid()

    def forks(out: Any, _: Any) -> Any:
        os.fork()
        return out

    failure = seen(altered(MANUAL, forward=forks)).failure
    assert os.getpid() == own
    assert failure is not None
    assert "forked, and returned in the child as well" in failure.message

    def forks_and_ends(out: Any, _: Any) -> Any:
        if os.fork() == 0:
            os._exit(0)
        return out

    assert seen(altered(MANUAL, forward=forks_and_ends)).failure is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_kernel_that_forks_in_one_worker_is_not_blamed_on_another() -> None:
    """Workers are forked from one server, and what the server mapped as shared memory they would all write to."""

    def forks(out: Any, _: Any) -> Any:
        os.fork()
        return out

    begun, begin = os.pipe()
    other = os.fork()
    if other == 0:
        os.read(begun, 1)
        told = seen(altered(MANUAL, forward=forks)).failure is not None
        os._exit(0 if told else 1)

    def waits(out: Any, _: Any) -> Any:
        os.write(begin, b"1")
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
        return out

    assert seen(altered(MANUAL, forward=waits)).failure is None


# ---- inputs


def test_an_allocation_has_room_behind_it_and_nothing_else() -> None:
    inputs = made()
    assert (tensor_of(inputs, "x").numel(), inputs.storages["x"].numel()) == (60, 60 + 1024)
    assert inputs.storages["x"][60:].isnan().all()
    laid = made(with_layout(CASE, "x", order=(3, 1, 2, 0), step=2, pad=3, offset=7))
    x = tensor_of(laid, "x")
    # dim 0 is the fastest, by 2; behind its two elements are 3 of padding, then come dims 2, 1 and 3
    assert x.stride() == (2, 14, 7, 42)
    reach = 7 + 1 + 1 * 2 + 2 * x.stride(1) + 1 * x.stride(2) + 4 * x.stride(3)
    assert laid.storages["x"].numel() == reach + 1024
    assert torch.equal(x, tensor_of(inputs, "x"))
    expanded = tensor_of(made(with_layout(CASE, "x", expand=(0, 3))), "x")
    assert expanded.stride() == (0, 2, 1, 0)
    literal = with_tensor(CASE, "x", layout=Layout(expand=(3,)), literals=(((1, 2, 1, 4), 9.0),))
    assert tensor_of(made(literal), "x")[1, 2, 1].tolist() == [9.0] * 5
    empty = made(default_case(B=0, S=3, n=2, D=5))
    assert empty.storages["x"].numel() == 1024


@pytest.mark.parametrize(
    ("strides", "count"), [((), 1024), ((0, 0), 1024), ((1024, 1), 1024), ((1, 1025), 2048), ((10**6, 1), 1 << 16)]
)
def test_index_minus_one_lies_in_front_of_an_allocation(strides: tuple[int, ...], count: int) -> None:
    for dtype in (torch.float32, torch.int64, torch.bool):
        ahead = front(torch.empty(1, dtype=dtype).as_strided([1] * len(strides), strides))
        assert (ahead.numel(), ahead.dtype) == (count, dtype)
    assert front(torch.empty(1, dtype=torch.int64)).eq(2**63 - 1).all()


def test_derived_inputs_have_their_own_memory_and_blank_recipes() -> None:
    inputs = made()
    moved = torch.arange(40.0).reshape(1, 4, 2, 5)
    after = derived(inputs, {"x": moved, "gamma": None}, lead=(1, 4), scalars={"norm_eps": 0.5, "hc_eps": 0.25})
    assert torch.equal(tensor_of(after, "x"), moved)
    assert after.storages["x"].numel() == 40 + 1024
    assert after.storages["x"][40:].isnan().all()
    assert tensor_of(after, "x").data_ptr() == after.storages["x"].data_ptr()
    assert after.tensors["gamma"] is None
    assert tensor_of(after, "phi") is tensor_of(inputs, "phi")
    assert (after.case.sizes["B"], after.case.sizes["S"], dict(after.case.scalars)) == (
        1,
        4,
        {"norm_eps": 0.5, "hc_eps": 0.25},
    )
    assert set(after.case.tensors) == set(inputs.case.tensors) - {"gamma"}
    assert set(after.case.tensors.values()) == {Recipe()}
    same = derived(inputs, {})
    assert (same.case.sizes["B"], same.case.sizes["S"], same.case.scalars) == (2, 3, CASE.scalars)
    assert set(same.storages) == set(inputs.storages)


def test_edited_inputs_keep_their_layout_and_leave_the_others_alone() -> None:
    inputs = made(with_layout(CASE, "x", step=2, offset=3))
    before = tensor_of(inputs, "x").clone()
    after = edited(inputs, {"x": lambda x: x.zero_()})
    x = tensor_of(after, "x")
    assert (x.stride(), x.storage_offset()) == (tensor_of(inputs, "x").stride(), 3)
    assert not x.any()
    assert torch.equal(tensor_of(inputs, "x"), before)
    assert after.storages["x"].data_ptr() != inputs.storages["x"].data_ptr()
    assert int(after.storages["x"].isnan().sum()) == after.storages["x"].numel() - 60
    assert tensor_of(after, "phi") is tensor_of(inputs, "phi")
    bare = made(default_case(B=1, S=1, n=1, D=1, absent=frozenset({"gamma"})))
    assert edited(bare, {"gamma": lambda _: pytest.fail("absent")}).tensors["gamma"] is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_bands_lie_on_both_sides_and_keep_the_layout(dtype: str) -> None:
    inputs = made(with_layout(replace(CASE, dtype=dtype), "x", step=2, offset=3))
    after = banded(inputs, 0x40)
    x, whole = tensor_of(after, "x"), after.storages["x"]
    size = x.element_size()
    assert torch.equal(x, tensor_of(inputs, "x"))
    assert (x.stride(), x.storage_offset()) == (tensor_of(inputs, "x").stride(), 8192 // size + 3)
    assert whole.numel() == inputs.storages["x"].numel() + 2 * 8192 // size
    octets = whole.view(torch.uint8)
    assert (octets[:8192] == 0x40).all()
    assert (octets[-8192:] == 0x40).all()
    reached = slice(3, 3 + 2 * x.numel(), 2)
    beside = torch.ones(whole.numel(), dtype=torch.bool)
    beside[8192 // size :][reached] = False
    assert (octets.view(-1, size)[beside] == 0x40).all(), "between the elements and in the tail too"
    assert torch.equal(whole[8192 // size :][reached], inputs.storages["x"][reached])


def test_bands_of_a_tensor_whose_rows_are_one_row() -> None:
    inputs = made(with_layout(CASE, "x", expand=(0,)))
    after = banded(inputs, 0x40)
    assert torch.equal(tensor_of(after, "x"), tensor_of(inputs, "x"))
    assert int((after.storages["x"].view(torch.uint8).view(-1, 4) != 0x40).any(1).sum()) == tensor_of(inputs, "x")[0].numel()


# ---- memory


FACTORIES: dict[str, Any] = {
    "empty": lambda like: torch.empty(3, 2),
    "empty_like": lambda like: torch.empty_like(like),  # noqa: PLW0108  what is patched is looked up late
    "empty_strided": lambda like: torch.empty_strided((3, 2), (2, 1)),
    "empty_permuted": lambda like: torch.empty_permuted((3, 2), (0, 1)),
    "new_empty": lambda like: like.new_empty(3, 2),
    "new_empty_strided": lambda like: like.new_empty_strided((3, 2), (2, 1)),
    "zeros": lambda like: torch.zeros(3, 2),
    "zeros_like": lambda like: torch.zeros_like(like),  # noqa: PLW0108
    "new_zeros": lambda like: like.new_zeros(3, 2),
}


def changed(allocations: Allocations) -> list[tuple[int, list[int]]]:
    """The address of each allocation beside which was written, and the numbers of the elements."""
    return [(one.allocation.address, [*one.elements]) for one in allocations.overrun(allocations.canaries())]


@pytest.mark.parametrize("name", FACTORIES)
def test_each_factory_is_poisoned_between_canaries(name: str) -> None:
    like = torch.ones(3, 2)
    with poisoned(NAN_FILL) as allocations:
        one = FACTORIES[name](like)
        assert len(allocations.made) == 1
        assert one.isnan().all() if "empty" in name else not one.any()
        assert (tuple(one.shape), one.stride(), one.dtype) == ((3, 2), (2, 1), torch.float32)
        (band,) = allocations.canaries()
        assert len(band) == 2 * 8192
        for at in (-1, -2048, 6, 6 + 2047):
            octet = one.as_strided((1,), (1,), one.storage_offset() + at)
            octet.zero_()
            assert changed(allocations) == [(one.data_ptr(), [at])]
            octet.fill_(math.nan).view(torch.uint8).fill_(0xFF)
        assert changed(allocations) == []
        for at in (-1, 6):
            one.as_strided((1,), (1,), one.storage_offset() + at).zero_()
        assert changed(allocations) == [(one.data_ptr(), [-1, 6])]
    assert FACTORIES[name](like).untyped_storage().nbytes() == 24


def test_odd_sizes_are_followed_at_once_by_their_canary() -> None:
    with poisoned(FINITE_FILL) as allocations:
        one = torch.empty(3, dtype=torch.uint8)
        two = torch.empty(5, dtype=torch.uint8)
        assert one.tolist() == [0x40] * 3
        (band,) = allocations.canaries()
        assert len(band) == 4 * 8192 + 5 + 3
        one.as_strided((1,), (1,), one.storage_offset() + 3).fill_(1)
        assert changed(allocations) == [(one.data_ptr(), [3])]
        assert two.data_ptr() % 8 == 0
    assert Allocations(NAN_FILL).canaries() == []
    assert (BAND, NAN_FILL, FINITE_FILL) == (8192, 255, 64)


def test_what_is_no_plain_allocation_is_left_alone() -> None:
    out = torch.zeros(2)

    class Mine(torch.Tensor):
        pass

    mine = torch.zeros(2).as_subclass(Mine)
    with poisoned(NAN_FILL) as allocations:
        assert torch.zeros(2, out=out) is out
        assert torch.empty(0, 3).shape == (0, 3)
        assert torch.empty(2, device="meta").is_meta
        assert torch.zeros(2, layout=torch.sparse_coo).layout == torch.sparse_coo
        assert isinstance(torch.empty_like(mine), Mine)
        assert not allocations.made
        assert torch.empty(2, requires_grad=True).requires_grad
        assert not torch.zeros(2).requires_grad
        assert len(allocations.made) == 2


# ---- copies


def test_what_is_placed_and_fetched_is_copied() -> None:
    inputs = made(with_layout(CASE, "x", step=2, offset=3))
    saved = reference(inputs).saved
    placed = place(inputs, saved)
    assert set(placed.memory) == {*inputs.storages, *saved}
    for name, one in {**inputs.tensors, **saved}.items():
        there = placed.tensors[name]
        assert there is not None
        assert one is not None
        assert (there.stride(), there.storage_offset()) == (one.stride(), one.storage_offset())
        assert there.data_ptr() != one.data_ptr()
        assert torch.equal(there, one)
        assert there.untyped_storage().data_ptr() == placed.memory[name].untyped_storage().data_ptr()
    ahead = placed.guarded["x"][: -placed.memory["x"].numel()]
    assert ahead.numel() == 1024
    assert ahead.isnan().all()
    assert ahead.data_ptr() + ahead.nbytes == placed.memory["x"].data_ptr()
    assert all(one.data_ptr() % 64 == 0 for one in placed.memory.values())
    assert torch.equal(placed.view("x"), tensor_of(inputs, "x"))
    without = place(made(default_case(B=1, S=1, n=1, D=1, absent=frozenset({"gamma"}))), {})
    assert without.tensors["gamma"] is None
    leaf = torch.ones(2, requires_grad=True)
    (back,) = fetch([leaf])
    assert back.data_ptr() != leaf.data_ptr()
    assert not back.requires_grad


def test_large_cases_are_judged_where_they_run() -> None:
    """From one element more than ON_HOST on, whichever tensor has them."""
    inputs = made()
    there = torch.device("cuda")
    for count, wanted in ((ON_HOST, "cpu"), (ON_HOST + 1, "cuda")):
        large = replace(inputs, device=there, tensors={**inputs.tensors, "phi": torch.empty(1).expand(count), "gamma": None})
        assert judging_device(large).type == wanted
    assert ON_HOST == 1048576
    assert judging_device(replace(inputs, device=there, tensors={})).type == "cpu"
    wide = widen(made(with_layout(replace(CASE, dtype="bfloat16"), "x", step=2, expand=(1,))))
    assert wide["x"] is not None
    assert (wide["x"].dtype, wide["x"].stride()) == (torch.float64, (30, 10, 5, 1))


# ---- observations


def writes(stage: str, at: int, *, past: int | None = None) -> Implementation:
    """An implementation that writes to one of its arguments."""

    def edit(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        one = arguments[at]
        ctypes.c_float.from_address(one.data_ptr() + 4 * (past or 0)).value = 77.0
        return out

    return altered(MANUAL, **{stage: edit})


def test_whatever_it_is_given_may_not_be_written() -> None:
    names = CASE.table.backward_arguments
    for at, name in enumerate(names):
        assert seen(writes("backward", at)).written == (name,), name
    for at, name in enumerate(CASE.table.forward_arguments):
        assert seen(writes("forward", at)).written == (name,)
    assert {"inv_rms", "h_mix", "h_pre", "h_post"} <= set(names), "the saved tensors too"
    observed = seen(writes("backward", 0, past=60 + 1023))
    assert observed.written == ("x",)
    assert observed.places == {"x": "beside x: 1024 elements after its last"}
    observed = seen(writes("forward", 0, past=-2))
    assert observed.places == {"x": "in front of x: 1 element, 2 before its first, where x[-1, 2, 1, 3] would be"}
    assert set(seen(writes("backward", names.index("inv_rms"), past=-1)).places) == {"inv_rms"}
    moved = altered(MANUAL, forward=lambda out, arguments: (arguments[0].requires_grad_(), out)[1])
    assert seen(moved).places == {"x": "x: its shape, strides or another property"}
    assert seen(MANUAL).written == ()


def test_stages_fill_and_failures() -> None:
    both = seen(MANUAL)
    assert (set(both.seconds), both.failure, both.refused, both.overrun) == ({"forward", "backward"}, None, None, ())
    assert all(seconds > 0 for seconds in both.seconds.values())
    only = seen(MANUAL, stages=("backward",))
    assert (dict(only.outputs), set(only.gradients), set(only.seconds)) == ({}, set(both.gradients), {"backward"})
    only = seen(MANUAL, stages=("forward",))
    assert (dict(only.gradients), set(only.outputs), set(only.seconds)) == ({}, set(both.outputs), {"forward"})
    assert (both.implementation, both.case, both.device.type) == ("manual", CASE, "cpu")
    assert set(both.returned) == {*both.outputs, *both.gradients}

    def fill(out: tuple[Tensor, ...], _: Any) -> tuple[Any, ...]:
        return (*out[:2], torch.empty_like(out[2]), *out[3:])

    assert seen(altered(MANUAL, forward=fill)).outputs["h_res"].isnan().all()  # type: ignore[union-attr]
    filled = seen(altered(MANUAL, forward=fill), fill=FINITE_FILL).outputs["h_res"]
    assert filled is not None
    assert float(filled.reshape(-1)[0]) == pytest.approx(3.004, abs=1e-3)

    def boom(*_: Any) -> Any:
        raise KeyError("no")

    broken = seen(altered(MANUAL, forward=boom))
    assert broken.failure is not None
    assert (broken.failure.stage, broken.failure.type, broken.failure.message) == ("forward", "KeyError", "'no'")
    assert "boom" in broken.failure.traceback
    assert (dict(broken.outputs), dict(broken.gradients)) == ({}, {}), "the first stage that fails ends the run"
    picky = seen(replace(MANUAL, supports=lambda case: Refused("odd D")))
    assert (picky.refused, picky.failure, dict(picky.outputs), dict(picky.seconds)) == ("odd D", None, {}, {})


def test_a_refusal_may_come_late_only_where_a_schedule_is_pinned() -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("too large")

    late = altered(MANUAL, backward=refuse)
    observation = seen(late)
    assert observation.refused is None
    assert observation.failure is not None
    assert (observation.failure.stage, observation.failure.type) == ("backward", "Refused")
    pinned = replace(CASE, schedules={"altered": {}})
    assert seen(late, pinned).refused == "too large"
    other = seen(late, replace(CASE, schedules={"other": {}}))
    assert other.refused is None


def test_an_overrun_is_told_with_its_owner() -> None:
    def past_scratch(out: tuple[Tensor, ...], _: Any) -> tuple[Any, ...]:
        scratch = torch.empty(4)
        scratch.as_strided((1,), (1,), scratch.storage_offset() + 4).zero_()
        dx = torch.empty_like(out[0]).copy_(out[0])
        dx.as_strided((1,), (1,), dx.storage_offset() - 1).zero_()
        return (dx, *out[1:])

    observed = seen(altered(MANUAL, backward=past_scratch))
    assert observed.overrun == ("dx", "scratch")
    assert observed.places == {
        "dx": "1 element, 1 before its first",
        "scratch": "a float32 (4,) that it allocated and does not return: 1 element, 1 after its last",
    }


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([6], "1 element, 1 after its last, where y[3, 0] would be"),
        ([9, 10], "2 elements, 4 to 5 after its last, where y[4, 1] would be"),
        ([-3, -1], "2 elements, 1 to 3 before its first"),
        ([-2, 7], "1 element, 2 before its first; 1 element, 2 after its last, where y[3, 1] would be"),
    ],
)
def test_the_place_of_an_overrun(elements: list[int], words: str) -> None:
    with poisoned(NAN_FILL) as allocations:
        one = torch.empty(3, 2)
        for at in elements:
            one.as_strided((1,), (1,), one.storage_offset() + at).zero_()
        (found,) = allocations.overrun(allocations.canaries())
    assert found.words("y", one.shape) == words
    assert found.words("y", (0, 0, 0)) == found.words("y") == words.partition(", where")[0]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (5, "x[1, 1] = 77, was 5"),
        (3, "beside x: 1 element after x[0, 1], in padding"),
        (4, "x[1, 0] = 77, was 4"),
        (0, "in front of x: 1 element, 1 before its first"),
        (10, "beside x: 2 elements after its last"),
    ],
)
def test_the_place_in_the_memory_of_an_input(at: int, words: str) -> None:
    before = torch.arange(12.0)
    after = before.clone()
    after[at] = 77.0
    assert place_written("x", before.as_strided((3, 2), (3, 1), 1), before, after) == words
    after[11] = 77.0
    and_more = f"{words}{';' if at == 0 else ''} and 1 more"
    assert place_written("x", before.as_strided((3, 2), (3, 1), 1), before, after) == and_more


def test_the_place_in_front_of_an_input() -> None:
    before = torch.arange(12.0)
    after = before.clone()
    after[1:3] = 77.0
    rows = "in front of x: 2 elements, 3 to 4 before its first, where x[-2, 0] would be"
    assert place_written("x", before[5:11].view(3, 2), before, after) == rows
    assert place_written("x", before[5:5].view(0, 2), before, after) == "beside x: it has no element and 1 more"


def test_an_output_that_requires_a_gradient_is_taken_without() -> None:
    grown = altered(MANUAL, forward=lambda out, _: (out[0].requires_grad_(), *out[1:]))
    returned = seen(grown).outputs["h_in"]
    assert returned is not None
    assert not returned.requires_grad


# ---- the case itself


def refused(**fields: Any) -> str:
    """The path that a case with these fields is refused by; "" where it is taken."""
    try:
        replace(CASE, **fields)
    except CaseError as error:
        return error.path
    return ""


def test_what_a_case_may_be() -> None:
    assert CASE.sizes["M"] == CASE.sizes["M"] == 2 * 2 + 2 * 2
    assert (CASE.sizes["N"], CASE.sizes["K"]) == (6, 10)
    plain = default_case()
    assert (plain.shape, plain.dtype, plain.operator) == ("B = 1, S = 1, n = 1, D = 1", "bfloat16", "mhc_pre")
    assert [recipe.seed for recipe in plain.tensors.values()] == list(range(len(plain.table.drawn)))
    assert plain.json.startswith('{"B":1,"D":1,"S":1,"dtype":"bfloat16","n":1,"operator":"mhc_pre","scalars":{')
    assert len(plain.id.rpartition("-")[2]) == 8
    assert "nogamma" not in plain.id
    assert "nogamma" in default_case(absent=frozenset({"gamma"})).id
    assert plain.to_json().startswith('{\n  "schema": 1,\n  "operator"')
    for dtype, short in (("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("float64", "fp64")):
        assert replace(plain, dtype=dtype).id.startswith(f"pre-B1S1n1D1-{short}-")
    assert CASE != 3
    assert not CASE.has("nothing")


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_limits_of_each_field() -> None:
    empty = default_case(B=0, S=0, n=16, D=1)
    assert (empty.token_count, empty.sizes["n"]) == (0, 16)
    for name, bad in (("B", -1), ("S", -1), ("n", 0), ("D", 0), ("B", True), ("D", 2.0)):
        with pytest.raises(CaseError) as caught:
            with_sizes(CASE, **{name: bad})  # type: ignore[arg-type]
        assert caught.value.path == name
    assert refused(scalars={"norm_eps": 0.0}) == ""
    for scalar in (-1e-9, math.inf, math.nan, 1, True):
        assert refused(scalars={"norm_eps": scalar}) == "scalars.norm_eps"
    for value in (1, "a", True):
        assert refused(schedules={"triton": {"block": value}}) == ""
    assert refused(schedules={"triton": {"block": None}}) == "schedules.triton.block"


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("path", "fits", "fails"),
    [
        ("seed", [0, 2**64 - 1], [-1, 2**64, 1.0, True]),
        ("scale", [0.0, -2.0, 1e300], [math.inf, math.nan, 1]),
        ("kind", ["sparse"], ["", 3, None]),
        (
            "literals",
            [(((1, 2, 1, 4), math.nan),), ()],
            [(((2, 0, 0, 0), 1.0),), (((0, 0, 0), 1.0),), (((0, 0, 0, -1), 1.0),)],
        ),
        ("literals", [(((0, 0, 0, 0), -0.0),)], [(((0, 0, 0, 0), 1),), (((0, 0, 0, 0, 0), 1.0),), (((0, 3, 0, 0), 1.0),)]),
        ("order", [(), (3, 2, 1, 0)], [(0, 1, 2), (1, 2, 3, 4), (0, 0, 1, 2)]),
        ("step", [1, 3], [0, True, 1.0]),
        ("pad", [0, 3], [-1, True]),
        ("offset", [0, 3], [-1, True]),
        ("expand", [(), (0, 3), (3,)], [(4,), (-1,), (1, 1), (True,)]),
    ],
)
def test_the_limits_of_a_recipe(path: str, fits: list[Any], fails: list[Any]) -> None:
    in_layout = path in {"order", "step", "pad", "offset", "expand"}

    def recipe(value: Any) -> Recipe:
        return Recipe(layout=Layout(**{path: value})) if in_layout else Recipe(**{path: value})

    for value in fits:
        assert refused(tensors={**CASE.tensors, "x": recipe(value)}) == "", value
    for value in fails:
        wanted = f"tensors.x.layout.{path}" if in_layout else f"tensors.x.{path}"
        assert refused(tensors={**CASE.tensors, "x": recipe(value)}).startswith(wanted), value
    assert refused(tensors={**CASE.tensors, "x": "recipe"}) == "tensors.x"
    assert refused(tensors={**CASE.tensors, "x": Recipe(layout="layout")}) == "tensors.x.layout"  # type: ignore[arg-type]


@operator(x="[T, D]")
def total_of_rows(x: Tensor) -> Tensor:
    return x.sum(-1)


def test_a_gap_between_matrices_is_that_of_a_slice() -> None:
    for dims, wanted in (((4, 3, 5), torch.empty(4, 7, 5)[:, :3]), ((2, 4, 3, 5), torch.empty(2, 4, 7, 5)[:, :, :3])):
        assert _strides(dims, Layout(gap=4)) == wanted.stride()
    assert _strides((3, 5), Layout(gap=4)) == (5, 1)
    assert _strides((4, 3, 5), Layout(gap=1, pad=2, step=2)) == (4 * 12, 12, 2)
    assert _strides((4, 3, 5), Layout(gap=2, expand=(1,))) == (5, 0, 1), "rows are 4 of 5, with nothing between matrices"
    case = replace(CASE, tensors={**CASE.tensors, "x": replace(CASE.tensors["x"], layout=Layout(gap=2))})
    assert Case.from_json(case.json) == case
    assert '"gap":2' in case.json
    assert "gap" not in CASE.json, "cases that were saved before keep their ids"


def test_a_case_as_json() -> None:
    layout = Layout(order=(1, 0, 2, 3), step=2, pad=3, offset=4, expand=(0,))
    x = Recipe(kind="sparse", seed=9, scale=0.5, literals=(((1, 2, 0, 3), math.inf), ((0, 0, 0, 0), 2.5)), layout=layout)
    case = replace(CASE, tensors={**CASE.tensors, "x": x}, schedules={"triton": {"block": 8}})
    document = encode(vars(case))
    assert {name: value for name, value in document.items() if name != "tensors"} == {
        "schema": 1,
        "operator": "mhc_pre",
        **{"B": 2, "S": 3, "n": 2, "D": 5},
        "dtype": "float32",
        "scalars": {"norm_eps": 1e-6, "hc_eps": 1e-6},
        "schedules": {"triton": {"block": 8}},
    }
    assert document["tensors"]["x"] == {
        "kind": "sparse",
        "seed": 9,
        "scale": 0.5,
        "literals": [[[1, 2, 0, 3], "inf"], [[0, 0, 0, 0], 2.5]],
        "layout": {"order": [1, 0, 2, 3], "step": 2, "pad": 3, "offset": 4, "expand": [0]},
    }
    assert Case.from_json(case.json) == case
    register(total_of_rows)
    other = encode(vars(default_case(operator=total_of_rows.name, T=3, D=5)))
    assert {name: other[name] for name in ("schema", "sizes")} == {"schema": 3, "sizes": {"T": 3, "D": 5}}
    assert "B" not in other
    assert decode(other)["operator"] == "total_of_rows"
    assert decode(other)["sizes"] == {"T": 3, "D": 5}
    assert decode(parse('{"schema": 1, "B": 4, "tensors": {"x": {}}}')) == {
        "sizes": {"B": 4},
        "tensors": {"x": Recipe()},
        "scalars": {},
        "schedules": {},
    }


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[]", "case"),
        ('{"schema": true}', "schema"),
        ('{"schema": 1, "tensors": {"x": {"scale": true}}}', "tensors.x.scale"),
        ('{"schema": 1, "tensors": {"x": {"scale": "big"}}}', "tensors.x.scale"),
        ('{"schema": 1, "tensors": {"x": {"scale": 1%s}}}' % ("0" * 400), "tensors.x.scale"),
        ('{"schema": 1, "tensors": {"x": {"literals": {}}}}', "tensors.x.literals"),
        ('{"schema": 1, "tensors": {"x": {"literals": [[[0], 1, 2]]}}}', "tensors.x.literals[0]"),
        ('{"schema": 1, "tensors": {"x": {"literals": [[[0], 1], [[true], 1]]}}}', "tensors.x.literals[1]"),
        ('{"schema": 1, "tensors": {"x": {"literals": [[[0.5], 1]]}}}', "tensors.x.literals[0]"),
        ('{"schema": 1, "tensors": {"x": {"layout": {"order": 3}}}}', "tensors.x.layout.order"),
        ('{"schema": 1, "tensors": {"x": {"layout": []}}}', "tensors.x.layout"),
        ('{"schema": 1, "tensors": {"x": {"layout": {"stride": 1}}}}', "tensors.x.layout.stride"),
        ('{"schema": 1, "scalars": {"norm_eps": null}}', "scalars.norm_eps"),
        ('{"schema": 1, "tensors": {"x": {"colour": 1}}}', "tensors.x.colour"),
        ('{"schema": 1, "schedules": []}', "schedules"),
        ('{"schema": 1, "shape": []}', "shape"),
    ],
)
def test_json_that_is_no_case_names_the_field(text: str, path: str) -> None:
    with pytest.raises(CaseError) as caught:
        decode(parse(text))
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("message", "free", "own", "others"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB", 1, 8, True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", 1, 8, True),
        ("CUDA out of memory. Tried to allocate 1048576.00 GiB", 60, 8, False),
        ("CUDA out of memory. Tried to allocate 1.00 GiB", 1, 90, False),
        ("CUDA error: an illegal memory access was encountered", 1, 8, False),
        ("CUDA out of memory", 1.999, 8, True),
        ("CUDA out of memory", 2, 8, False),  # a 64th
        ("CUDA out of memory", 1, 63.4, True),
        ("CUDA out of memory", 1, 63.6, False),  # more than half of the rest
    ],
)
def test_a_gpu_that_others_fill_is_no_fault_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, message: str, free: float, own: float, others: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(free * 2**30), 128 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: int(own * 2**30))
    assert observation._taken_by_others(RuntimeError(message)) is others


def test_a_run_on_a_gpu_that_others_fill_has_no_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = made()
    there, saved = replace(inputs, device=torch.device("cuda")), reference(inputs).saved
    monkeypatch.setattr(observation, "place", lambda _, saved: place(inputs, saved))
    monkeypatch.setattr(observation, "unchanged", lambda *_: nullcontext([]))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 8 << 30)
    full = raising(torch.OutOfMemoryError("CUDA out of memory"))
    for free, device, others in ((1, "cuda", True), (60, "cuda", False), (1, "cpu", False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free << 30, 128 << 30))
        if others:
            with pytest.raises(DeviceFull, match="other processes have the GPU's memory: CUDA out of memory"):
                observe(full, there, saved)
        else:
            failure = observe(full, there if device == "cuda" else inputs, saved).failure
            assert failure is not None
            assert (failure.stage, failure.type) == ("forward", "OutOfMemoryError")


def test_what_a_stage_must_return_is_said_with_names() -> None:
    inputs, specs = made(), CASE.table.outputs
    for some, wanted in ((specs[:1], "expected one: h_in"), (specs[:2], "expected 2 values: h_in, h_post")):
        with pytest.raises(ContractError, match=f"returned Tensor; {wanted}$"):
            check_returned(MANUAL, "forward", torch.ones(3), some, inputs)
        with pytest.raises(ContractError, match="returned 3 values; expected"):
            check_returned(MANUAL, "forward", (None, None, None), some, inputs)
    with pytest.raises(ContractError, match="returned None for h_in, which every implementation must return"):
        check_returned(MANUAL, "forward", [None], specs[:1], inputs)
    assert check_returned(MANUAL, "backward", [None], specs[:1], inputs) == {"h_in": None}
    right = torch.ones(specs[0].shape(CASE.sizes)).requires_grad_()
    assert not check_returned(MANUAL, "forward", [right], specs[:1], inputs)["h_in"].requires_grad  # type: ignore[union-attr]
    for wrong, was in (
        (
            right[:1],
            r"of shape \(1, 3, 5\), torch.float32, on cpu; expected \[B, S, D\] = \(2, 3, 5\), torch.float32, on cpu",
        ),
        (right.double(), r"of shape \(2, 3, 5\), torch.float64, on cpu"),
        (right.to("meta"), r"of shape \(2, 3, 5\), torch.float32, on meta"),
    ):
        with pytest.raises(ContractError, match=f"returned h_in {was}"):
            check_returned(MANUAL, "forward", [wrong], specs[:1], inputs)
    with pytest.raises(ContractError, match="returned int for h_in; expected"):
        check_returned(MANUAL, "forward", [3], specs[:1], inputs)


def test_a_lost_device_is_not_taken_for_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    assert not observation._taken_by_others(torch.OutOfMemoryError("CUDA out of memory"))
