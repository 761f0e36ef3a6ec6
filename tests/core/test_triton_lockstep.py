"""Programs of a launch that run together in Triton's interpreter: the same results, what parts them, and races."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# kernels are in Triton's language

import importlib
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from mhc import Implementation, default_case, operator, triton_lockstep
from mhc.fuzz.check import check as check_module
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.oracles.verdict import Status
from mhc.programs.compile_error import CompileError
from mhc.programs.triton.evaluate import evaluate
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.interpreted import prepare
from mhc.programs.triton.text import render
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.triton_interpreter import prepared
from mhc.triton_lockstep import Order

ROWS, WIDTH = 11, 8
Groups = list[tuple[int, bool]]


@pytest.fixture(autouse=True)
def interpreter() -> Any:
    if not triton.knobs.runtime.interpret:
        pytest.skip("Triton compiles in this process: --device cuda")
    return importlib.import_module("triton.runtime.interpreter")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """How many programs each group had that ran, and whether they ran together."""
    found: Groups = []
    original = triton_lockstep._Together._run_group

    def run_group(self: Any, kernel: Callable[[], Any], programs: Any) -> Any:
        counts = []

        def counted() -> None:
            counts.append(self.count)
            kernel()

        parts = original(self, counted, programs)
        if not parts:
            found.append((len(programs), counts == [len(programs)] and len(programs) > 1))
        return parts

    monkeypatch.setattr(triton_lockstep._Together, "_run_group", run_group)
    return found


def result(program: TritonProgram, order: Order) -> dict[str, bytes] | str:
    (run,) = prepare([program], [render(program)], None)  # type: ignore[arg-type]
    assert not isinstance(run, CompileError)
    try:
        with prepared(order=order):
            return {name: one.tobytes() for name, one in run(program).items()}
    except CompileError as error:
        return f"{error.stage}: {error}"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(triton_programs(version("triton")))
def test_a_drawn_program_gives_what_it_means(program: TritonProgram) -> None:
    """Where the interpreter is wrong one program after the other, it may be right here (docs/results/programs.md)."""
    means = {name: one.tobytes() for name, one in evaluate(program).items()}
    for order in (Order.TOGETHER, Order.REVERSED):
        assert result(program, order) in (means, result(program, Order.IN_TURN))


@triton.jit
def add_and_largest(a, b, c, d):
    return a + c, tl.maximum(b, d)


@triton.jit
def every_operation(x, y, z, WIDTH: tl.constexpr):
    row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    at = tl.arange(0, WIDTH)
    v = tl.load(x + row * WIDTH + at)
    block = tl.reshape(v, (2, WIDTH // 2))
    left, right = tl.split(tl.reshape(v, (WIDTH // 2, 2)))
    total, most = tl.reduce((v, v), 0, add_and_largest)
    turned = tl.trans(block)
    out = tl.cumsum(v, 0) + tl.flip(v, 0) * total + tl.sort(v)
    out += tl.interleave(left, right) + tl.cat(left, right, can_reorder=True)
    out += tl.gather(v, (at + row) % WIDTH, 0) + tl.max(v) + tl.argmin(v, 0) + most
    out += tl.reshape(
        tl.dot(turned, block) + tl.sum(block, 1, keep_dims=True).broadcast_to(2, WIDTH // 2).sum(), (16,)
    ).sum()
    out += tl.where(row % 2 == 0, v, -v) + tl.histogram(tl.abs(v).to(tl.int32) % 4, WIDTH).to(tl.float32)
    pointer = tl.make_block_ptr(x, (ROWS_HERE, WIDTH), (WIDTH, 1), (row, 1), (1, WIDTH), (1, 0))
    shifted = tl.load(pointer, boundary_check=(0, 1), padding_option="zero")
    out += tl.reshape(shifted, (WIDTH,)) + tl.load(tl.advance(pointer, (1, 0)), boundary_check=(0, 1)).reshape(WIDTH)
    described = tl.make_tensor_descriptor(x, (ROWS_HERE, WIDTH), (WIDTH, 1), (1, WIDTH))
    out += described.load([row + 1, 0]).reshape(WIDTH)
    out += tl.associative_scan(v, 0, larger, reverse=True) + block.T.sum(0).max()
    tl.store(y + row * WIDTH + at, out, mask=at < WIDTH - 1)
    tl.atomic_add(z + at, 1 + row)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


ROWS_HERE = tl.constexpr(ROWS * 2)


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_operations_of_all_programs_at_once(groups: Groups) -> None:
    x = torch.randint(-9, 9, (2 * ROWS, WIDTH), generator=torch.Generator().manual_seed(3)).float()

    def run(order: Order) -> tuple[Tensor, Tensor]:
        y, z = torch.full_like(x, 7.0), torch.zeros(WIDTH, dtype=torch.int32)
        with prepared(order=order):
            every_operation[(2, ROWS)](x, y, z, WIDTH=WIDTH)
        return y, z

    wanted = run(Order.IN_TURN)
    for order in (Order.TOGETHER, Order.REVERSED):
        assert all(torch.equal(one, other) for one, other in zip(run(order), wanted, strict=True))
    assert groups == [(8, True), (14, True)] * 2


@triton.jit
def branches(x, y):
    row = tl.program_id(0)
    v = tl.load(x + row)
    tl.store(y + row, v)
    if v > 2:
        tl.store(y + row, v * 10)
    else:
        if row == 0:
            return
        tl.atomic_add(y + row, 1)


@triton.jit
def loops(x, y):
    row = tl.program_id(0)
    total = row * 0
    for step in range(tl.load(x + row)):
        total += step
        tl.atomic_add(y + row, 1)
    while total > 3:
        total -= 2
    tl.atomic_add(y + row, 100 * total)


@triton.jit
def strided(x, y):
    """Each program takes every third element, the first two one more; their indices are numbers of their own."""
    row = tl.program_id(0)
    for at in range(row, 11, tl.num_programs(0)):
        tl.store(y + at, tl.load(x + at) * 10 + at % 2)
    for at in tl.range(row, row + 2):
        tl.atomic_add(y + 11 + at, 1)


@triton.jit
def last_adds_up(x, y):
    """Each program adds its number, and the last one to come copies the sum."""
    row = tl.program_id(0)
    tl.atomic_add(y, tl.load(x + row))
    before = tl.atomic_add(y + 1, 1)
    if before == tl.num_programs(0) - 1:
        tl.store(y + 2, tl.load(y))


@triton.jit
def locked(x, y):
    """A sum without atomic additions, behind a lock."""
    row = tl.program_id(0)
    while tl.atomic_cas(y + 1, 0, 1) == 1:
        pass
    tl.store(y, tl.load(y) + tl.load(x + row))
    tl.atomic_xchg(y + 1, 0)


@triton.jit
def printed(x, y):
    row = tl.program_id(0)
    tl.store(y + row, tl.load(x + row))
    tl.device_print("row", row)


@pytest.mark.parametrize(
    ("kernel", "ran"),
    [
        (branches, [(3, True), (5, True), (2, True), (1, False)]),
        (loops, [(1, False), (2, True), *[(1, False)] * 3, (2, True), *[(1, False)] * 3]),
        (last_adds_up, [(8, True), (2, True), (1, False)]),
        (locked, [(1, False)] * ROWS),
        (printed, [(8, False), (3, False)]),
    ],
)
def test_programs_that_part(kernel: Any, ran: Groups, groups: Groups) -> None:
    """Each program runs once to its end: additions are made once, whatever was undone before."""
    x = torch.tensor([3, 0, 4, 1, 5, 2, 2, 0, 3, 1, 5], dtype=torch.int32)

    def run(order: Order) -> list[int]:
        y = torch.zeros(ROWS, dtype=torch.int32)
        with prepared(order=order):
            kernel[(ROWS,)](x, y)
        return y.tolist()

    assert run(Order.TOGETHER) == run(Order.IN_TURN)
    assert groups == ran
    assert run(Order.REVERSED) == run(Order.IN_TURN)


def test_loops_that_run_equally_often_run_together(groups: Groups) -> None:
    x, y = torch.arange(11, dtype=torch.int32), torch.zeros(15, dtype=torch.int32)
    for order in (Order.IN_TURN, Order.TOGETHER, Order.REVERSED):
        y.zero_()
        with prepared(order=order):
            strided[(3,)](x, y)
        assert y.tolist() == [*(10 * one + one % 2 for one in range(11)), 1, 2, 2, 1]
    assert groups == [(2, True), (1, False), (1, False), (2, True)]
    assert "range" not in strided.fn.__globals__


@triton.jit
def shares(x, y):
    """A sum of every fourth element in each program, added up without atomic additions."""
    total = 0.0
    for at in range(tl.program_id(0), 8, 4):
        total += tl.load(x + at)
    tl.store(y, tl.load(y) + total)


def test_a_race_behind_a_loop_with_other_bounds_in_each_program_shows() -> None:
    x = torch.arange(8.0)
    found = []
    for order in (Order.IN_TURN, Order.TOGETHER):
        y = torch.zeros(1)
        with prepared(order=order):
            shares[(4,)](x, y)
        found.append(y.item())
    assert found[0] == 28
    assert found[1] != 28


def test_what_a_large_group_writes_is_undone_in_halves(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_lockstep, "_UNDONE", 20)
    x, y = torch.arange(ROWS, dtype=torch.int32), torch.zeros(ROWS, dtype=torch.int32)
    with prepared(order=Order.TOGETHER):
        loops[(ROWS,)](x * 0 + 6, y)
    assert y.tolist() == [6 + 300] * ROWS
    assert all(count <= 2 for count, _ in groups)


def test_programs_of_a_release_that_was_not_read_run_one_by_one(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_lockstep, "_READ", frozenset())
    x, y = torch.ones(ROWS, dtype=torch.int32), torch.zeros(ROWS, dtype=torch.int32)
    with prepared(order=Order.TOGETHER) as launched:
        branches[(ROWS,)](x, y)
    assert y.tolist() == [1, *[2] * (ROWS - 1)]
    assert groups == []
    assert launched.order is None


def test_an_error_is_that_of_one_program() -> None:
    x = torch.zeros(ROWS, dtype=torch.int32)

    @triton.jit
    def wrong(x):
        row = tl.program_id(0)
        tl.static_assert(row < 3, "row")
        tl.store(x + row, 1)

    messages = []
    for order in (Order.IN_TURN, Order.TOGETHER):
        with pytest.raises(Exception, match="row") as caught, prepared(order=order):
            wrong[(ROWS,)](x)
        messages.append(f"{type(caught.value).__name__} {caught.value}")
    assert messages[0] == messages[1]


@triton.jit
def add_rows(x, y, D, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * D + at, mask=at < D, other=0.0)
    if ATOMIC:
        tl.atomic_add(y + at, v, mask=at < D)
    else:
        tl.store(y + at, tl.load(y + at, mask=at < D) + v, mask=at < D)


@operator(x="[T, D] float32", T=(1, 64), D=(1, 64))
def sum_of_rows(x: Tensor) -> Tensor:
    return x.sum(0)


def implementation(*, atomic: bool, zeroed: bool = True) -> Implementation:
    def forward(x: Tensor) -> Tensor:
        y = torch.zeros(x.shape[1]) if zeroed else torch.ones(x.shape[1])
        add_rows[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), ATOMIC=atomic)
        return y

    env = {"TRITON_INTERPRET": "1"}
    return Implementation(name="sum", operator=sum_of_rows, forward=forward, env=env, dtypes=("float32",))


RIGHT, RACY, WRONG = implementation(atomic=True), implementation(atomic=False), implementation(atomic=True, zeroed=False)
CASE = default_case(operator=sum_of_rows.name, T=5, D=3, dtype="float32")


def found(verdicts: list[Any]) -> set[tuple[str, str, str]]:
    return {(one.oracle, one.subject, one.symptom) for one in verdicts if one.status is Status.FAIL}


@pytest.mark.parametrize(("depth", "orders"), [(Level.DRAWN, {1}), (Level.FULL, {1, 2})])
def test_a_sum_without_atomic_additions_is_a_race(depth: Level, orders: set[int]) -> None:
    """Every gate runs the right kernel in all orders; otherwise the first run is in lockstep."""
    right, wrong = (check(one, replace(CASE, sizes={"T": 6, "D": 3}), "cpu", depth).verdicts for one in (RIGHT, RACY))
    assert found(right) == set()
    assert sum(one.status is Status.PASS for one in right if one.oracle == "ordering" and one.subject == "y") in orders
    assert found(wrong) == {("ordering", "y", "race")}
    message = next(one.message for one in wrong if one.status is Status.FAIL)
    assert message.startswith("race: y[")
    assert message.endswith("with programs together; a GPU promises no order")


def test_a_wrong_value_is_no_race_where_every_order_returns_its_bits() -> None:
    verdicts = check(WRONG, replace(CASE, sizes={"T": 6, "D": 3}), "cpu", Level.FULL).verdicts
    assert ("bound", "y", "value") in found(verdicts)
    assert not {("ordering", "y", "race"), ("sequence", "y", "stale inputs")} & found(verdicts)
    both = replace(implementation(atomic=False, zeroed=False), name="both")
    verdicts = check(both, replace(CASE, sizes={"T": 6, "D": 3}), "cpu", Level.FULL).verdicts
    assert {("bound", "y", "value"), ("ordering", "y", "race")} <= found(verdicts), "a race beside a wrong value stays"


@triton.jit
def last_finishes(x, parts, y, D, SPLITS: tl.constexpr, BLOCK: tl.constexpr, WAITS: tl.constexpr, ARRIVED: tl.constexpr):
    """The sum of a row in parts, which one of them adds up: the last by its number, or the last to come."""
    row, part, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * D + part * BLOCK + at, mask=part * BLOCK + at < D, other=0.0))
    tl.store(parts + row * SPLITS + part, total)
    come = tl.atomic_add(parts + tl.num_programs(0) * SPLITS + row, 1.0)
    if WAITS:
        while come < part:
            come = tl.load(parts + tl.num_programs(0) * SPLITS + row) - 1
    if (come if ARRIVED else part) == SPLITS - 1:
        tl.store(y + row, tl.sum(tl.load(parts + row * SPLITS + tl.arange(0, SPLITS))))


@operator(x="[T, D] float32", T=(1, 8), D=(1, 32))
def row_sums(x: Tensor) -> Tensor:
    return x.sum(1)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"WAITS": False, "ARRIVED": True}, set()),
        ({"WAITS": False, "ARRIVED": False}, {("ordering", "y", "race")}),
        ({"WAITS": True, "ARRIVED": False}, set()),
    ],
    ids=["the last to come", "the last by its number", "the last by its number, which waits for the others"],
)
def test_from_the_last_program_to_the_first(options: dict[str, bool], wrong: set[tuple[str, str, str]]) -> None:
    """A kernel that needs the programs with smaller numbers to have begun is not judged in that order."""

    def forward(x: Tensor) -> Tensor:
        parts, y = torch.zeros(5 * x.shape[0]), torch.empty(x.shape[0])
        last_finishes[(x.shape[0], 4)](x.contiguous(), parts, y, x.shape[1], SPLITS=4, BLOCK=8, **options)
        return y

    env = {"TRITON_INTERPRET": "1"}
    parted = Implementation(name="parted", operator=row_sums, forward=forward, env=env, dtypes=("float32",))
    verdicts = check(parted, default_case(operator=row_sums.name, T=2, D=29, dtype="float32"), "cpu", Level.FULL).verdicts
    assert found(verdicts) == wrong
    reasons = [one.message for one in verdicts if one.oracle == "ordering" and one.subject == "programs"]
    assert any("Waits" in one for one in reasons) == options["WAITS"]


def test_one_program_has_no_order() -> None:
    verdicts = check(RACY, replace(CASE, sizes={"T": 1, "D": 3}), "cpu").verdicts
    assert {one.status for one in verdicts if one.oracle == "ordering"} == {Status.NOT_APPLICABLE}


def test_what_fails_in_lockstep_is_judged_again(monkeypatch: pytest.MonkeyPatch, groups: Groups) -> None:
    def judged(one: Implementation) -> list[Any]:
        groups.clear()
        return check(one, CASE, "cpu", Level.DRAWN).verdicts

    assert found(judged(RIGHT)) == set()
    assert groups
    assert set(groups) == {(5, True)}
    assert found(judged(RACY)) == {("ordering", "y", "race")}
    monkeypatch.setattr(check_module, "IN_TURN", 4)
    for once in (5, 4):
        monkeypatch.setattr(check_module, "IN_TURN_ONCE", once)
        assert found(judged(RACY)) == {("ordering", "y", "race")}, "too many for every gate; the order still shows"
        assert found(judged(WRONG)) == {("bound", "y", "value")}, "other orders round otherwise"
    monkeypatch.setattr(np, "broadcast_to", None)  # whatever fails in lockstep only: programs run one by one
    assert found(judged(RIGHT)) == set()
    assert set(groups) == {(5, False)}
