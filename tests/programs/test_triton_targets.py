"""Triton's interpreter and its compiler: programs that they get right, bugs that they have, and those that are reported."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check, run
from mhc.fuzz.worker.program_session import Programs
from mhc.fuzz.worker.protocol import Checked, Message, Round
from mhc.oracles.verdict import Status
from mhc.programs.compile_error import CompileError, synchronise
from mhc.programs.known import Known, known
from mhc.programs.minimise import search
from mhc.programs.targets import TARGETS, ProgramTarget, target_named
from mhc.programs.triton import launched
from mhc.programs.triton.build import refused
from mhc.programs.triton.edits import rank
from mhc.programs.triton.evaluate import evaluate, inputs_of
from mhc.programs.triton.grammar import (
    Atomic,
    BlockLoad,
    BlockStore,
    Buffer,
    Call,
    Carry,
    Descriptor,
    For,
    Function,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.known import KNOWN
from mhc.programs.triton.memory import Memory
from mhc.programs.triton.text import render
from mhc.programs.triton.words import signature
from mhc.upstream.program_file import form_of
from tests.programs.conftest import Judge

INTERPRETER = TARGETS["triton-interpreter"]


def program(*body: Statement, dtype: str = "int32", size: int = 4, **fields: Any) -> TritonProgram:
    """Return a program that loads v1 from four elements of x, and stores v9."""
    buffers = Buffer("x", 4, dtype, least=-9, most=9), Buffer("y", size, dtype, written=True)
    indices = Op("v0", "arange", shape=(4,)), Op("v8", "arange", shape=(size,))
    return TritonProgram(buffers=buffers, body=(*indices, Load("v1", "x", "v0"), *body, Store("y", "v8", "v9")), **fields)


RIGHT = (
    program(Op("v9", "add", ("v1", "v0"))),
    program(Op("v9", "mul", ("v1", "v1")), dtype="int8", num_warps=1),
    program(
        Op("v2", "full", value=2),
        For("v3", 3, (Op("v4", "mul", ("c0", "v2")), Op("v5", "add", ("v4", "v1"))), carried=(Carry("c0", "v1", "v5"),)),
        Op("v6", "sum", ("c0",), axis=-1),
        Op("v7", "gt", ("v6", "v2")),
        If("v7", (Op("u0", "neg", ("c1",)),), (Carry("c1", "c0", "u0"),)),
        Op("v9", "associative_scan", ("c1",), combine="xor"),
    ),
    program(
        Op("v2", "full", value=3),
        Op("v3", "and", ("v1", "v2")),
        Op("v4", "lt", ("v1", "v0")),
        Op("v9", "histogram", ("v3", "v4"), value=4),
    ),
    program(
        Op("v2", "reshape", ("v1",), shape=(2, 2)),
        Op("v3", "permute", ("v2",), axes=(1, 0)),
        Op("v4", "join", ("v3", "v2")),
        Op("v5", "split", ("v4",), value=1),
        Op("v9", "ravel", ("v5",)),
        dtype="float16",
        grid=(2, 1),
    ),
)
ELSE = [
    program(
        Op("v2", "full", value=number, flag=True),
        Op("v3", "full", value=5),
        For("v4", 1, (Op("v5", "sub", ("v2", "c0")),), 7, -3, (Carry("c0", "v3", "v5"),), "while"),
        Op("v6", "gt", ("c0", "v3")),
        If(
            "v6",
            (Op("u1", "add", ("c1", "v2")),),
            (Carry("c1", "v1", "u1", "u2"), Carry("c2", "v1", "v1", "v0")),
            (Op("u2", "neg", ("c1",)),),
        ),
        Op("v9", "add", ("c1", "c2")),
    )
    for number in (1, 16, -7, 2**31 - 1)
]
NUMBERS = tuple(
    program(Op("v9", op, ("v1",), value=number, axis=axis, flag=True), dtype=dtype)
    for op, dtype, number, axis in (("add", "int8", 9, 0), ("sub", "int16", 200, 1), ("mul", "float32", 0.5, 1))
)
NONE = program(
    Op("v2", "expand_dims", ("v1",), axis=1, flag=True),
    Op("v3", "expand_dims", ("v0",), axis=0, flag=True),
    Op("v4", "sub", ("v2", "v3")),
    Op("v9", "ravel", ("v4",)),
    size=16,
)
LOOPS = [
    program(
        For("v2", end, (Op("v3", "sub", ("v2", "c0")),), begin, step, (Carry("c0", "v1", "v3"),), "tl.range"),
        Op("v9", "neg", ("c0",)),
    )
    for begin, end, step in ((0, 4, 3), (2, 2, 1), (1, 0, 1), (3, 0, -2))
]
STORES = program(
    For("v2", 3, (Store("z", "v2", "v2"), Op("v3", "neg", ("c0",))), carried=(Carry("c0", "v1", "v3"),)),
    Op("v4", "full", value=1),
    Op("v5", "eq", ("v4", "v4")),
    If("v5", (Op("v6", "add", ("v4", "v4")), Op("v7", "add", ("v6", "v4")), Store("z", "v7", "v6"))),
    Op("v9", "neg", ("c0",)),
)
STORES = replace(STORES, buffers=(*STORES.buffers, Buffer("z", 4, written=True)))
ATOMIC = TritonProgram(
    buffers=(Buffer("y", 2, written=True, zeroed=True),),
    body=(
        Op("v0", "arange", shape=(8,)),
        Op("v1", "full", value=1),
        Op("v2", "and", ("v0", "v1")),
        Atomic("add", "y", "v2", "v0"),
    ),
)
DESCRIBED = TritonProgram(
    buffers=(Buffer("x", 44, "int16", least=-9, most=9), Buffer("y", 40, "int16", written=True)),
    grid=(2,),
    body=(
        Op("r", "full", value=5),
        Op("c", "full", value=3),
        Op("m", "full", value=-1),
        Op("o", "full"),
        Descriptor("d", "x", ("r", "c"), (4, 8), 8),
        BlockLoad("v0", "d", ("m", "o")),
        Op("v1", "program_id"),
        Op("v3", "shl", ("v1",), value=2, flag=True),
        Descriptor("e", "y", ("r", "c"), (4, 8), 8),
        BlockStore("e", ("v3", "o"), "v0"),
    ),
)
EXCHANGED = TritonProgram(
    buffers=(Buffer("u", 8, most=3, written=True, updated=True), Buffer("y", 8, written=True)),
    body=(
        Op("v0", "arange", shape=(8,)),
        Load("v1", "u", "v0"),
        Op("v2", "full", shape=(8,), value=1),
        Op("v3", "maximum", ("v1", "v2")),
        Atomic("cas", "u", "v0", "v0", name="v4", compare="v3"),
        Op("v5", "add", ("v4", "v0")),
        Op("v6", "full", value=5),
        Op("v7", "lt", ("v0", "v6")),
        Atomic("xchg", "u", "v0", "v5", "v7"),
        Atomic("max", "u", "v0", "v1", name="v8"),
        Store("y", "v0", "v8"),
    ),
)
FLIP = program(Op("v2", "full", shape=(1,), value=3), Op("v9", "flip", ("v2",)), size=1)


MORE = If("n0", (Op("u0", "full_like", ("a0",), value=7), Op("u1", "add", ("a0", "u0"))), results=("u1", "a1"))
CALLS = program(
    Function("g_0", ("a0", "a1"), (MORE, Op("u2", "mul", ("a0", "a0")), Load("u3", "x", "a1")), ("u2", "u3"), "n0"),
    Op("v2", "full", dtype="int8", value=3),
    Op("v3", "full", value=1),
    Call(("v4", "v5"), "g_0", ("v2", "v3"), 1),
    Call(("v6", "v7"), "g_0", ("v1", "v0")),
    Op("u4", "add", ("v4", "v6")),
    Op("v9", "sub", ("u4", "v7")),
)


BRAIN = program(Op("v2", "cast", ("v1",), dtype="float32"), Op("v9", "cast", ("v2",), dtype="bfloat16"), dtype="bfloat16")


@pytest.mark.parametrize("one", [*RIGHT, *NUMBERS, NONE, *LOOPS, *ELSE, ATOMIC, CALLS, BRAIN], ids=lambda one: one.id)
def test_the_interpreter_gives_what_the_evaluator_gives(one: TritonProgram, interpreted: Judge) -> None:
    assert [(verdict.subject, verdict.status) for verdict in interpreted(one)] == [("y", Status.PASS)]


@pytest.mark.parametrize("entry", KNOWN, ids=lambda one: one.issue.rpartition("/")[2])
def test_a_reported_bug_is_still_there(entry: Known, interpreted: Judge, compiled: Judge) -> None:
    """An entry whose example passes is out of date: strike it, or say which release mended it. Wrong values need a GPU."""
    evaluate(entry.example)
    assert entry.holds(entry.example)
    kind = entry.kinds[0] if entry.kinds else "interpreted"
    assert known(entry.example, "3.7.1", kind, KNOWN) is entry
    assert known(entry.example, "3.9.0", kind, KNOWN) is (None if entry.before == "3.9.0" else entry)
    assert not any(entry.holds(one) for one in (RIGHT[0], RIGHT[2], LOOPS[0], BRAIN))
    judge = {"interpreted": interpreted, "compiled": compiled}.get(kind)
    if judge is not None and entry.is_in(version("triton"), kind):
        assert any(one.status is Status.FAIL for one in judge(entry.example))


def named(issue: str) -> Known:
    return next(one for one in KNOWN if one.issue.rpartition("/")[2] == issue)


def changed(program: TritonProgram, **ops: Op) -> TritonProgram:
    return replace(program, body=tuple(ops.get(getattr(one, "name", ""), one) for one in program.body))


def test_what_is_near_a_reported_bug_is_judged() -> None:
    halves, division = named("ptxas_integer_of_two_halves"), named("7749")
    wide, whole = Op("v2", "cast", ("v4",), dtype="float32"), Op("v4", "cast", ("v1",), dtype="float32")
    assert not any(halves.holds(changed(halves.example, **one)) for one in ({"v2": wide}, {"v4": whole}))
    assert not division.holds(changed(division.example, v5=Op("v5", "add", ("v3", "v4"))))
    assert not division.holds(changed(division.example, v5=Op("v5", "mul", ("v3",), value=-2, flag=True)))
    before = named("descriptor_store_below_0")
    assert not before.holds(changed(before.example, v1=Op("v1", "full", value=4)))
    later = (
        Op("v4", "program_id"),
        Op("v5", "sub", ("v4",), value=1, flag=True),
        Op("v1", "mul", ("v5",), value=4, flag=True),
    )
    blocks = replace(before.example, grid=(3,), body=(before.example.body[0], *later, *before.example.body[2:]))
    assert before.holds(blocks), "of three blocks the first"


@pytest.mark.parametrize("sides", [("v1", "v4"), ("v4", "v1")], ids=["a float second", "a float first"])
def test_a_bool_of_an_integer_and_a_float_is_one_of_floats(sides: tuple[str, str], interpreted: Judge) -> None:
    """The integer is cast first, so that the interpreter takes the bool for a float; one of two integers it does not."""
    entry = named("triton_spread_bool")
    one, spread = Op("v1", "full", value=1), Op("v6", "full", dtype="bool", shape=(1,))
    body = (one, spread, Op("v5", "lt", sides), Op("v7", "xor", ("v6", "v5")), Op("v9", "cast", ("v7",), dtype="int32"))
    store = Op("v8", "full", shape=(1,)), Store("y", "v8", "v9")
    buffers = (Buffer("y", 1, written=True),)
    for dtype, status in (("float64", Status.FAIL), ("int64", Status.PASS)):
        program = TritonProgram(buffers=buffers, body=(Op("v4", "full", dtype=dtype, value=2), *body, *store))
        assert [verdict.status for verdict in interpreted(program)] == [status]
        assert entry.holds(program) is (status is Status.FAIL)


@pytest.mark.parametrize("called", [False, True], ids=["in the kernel", "by a function"])
def test_bools_of_a_uint64_and_of_a_signed_integer_are_spread_as_these(called: bool, interpreted: Judge) -> None:
    """Which have no common integer dtype in NumPy, so that the interpreter combines them to a float or not at all."""
    entry, spread = named("triton_spread_bool"), Op("v5", "full", dtype="bool", shape=(1,))
    for dtype, status in (("uint64", Status.FAIL), ("uint32", Status.PASS)):
        numbers = Op("v1", "full", value=1), Op("v2", "full", dtype=dtype, value=1)
        bools: tuple[Statement, ...] = Op("v3", "ne", ("v1", "v1")), Op("v4", "ne", ("v2", "v2"))
        if called:
            function = Function("g_0", ("a0",), (Op("c0", "ne", ("a0", "a0")),), ("c0",))
            bools = function, Call(("v3",), "g_0", ("v1",)), Call(("v4",), "g_0", ("v2",))
        mixed = Op("v6", "xor", ("v3", "v5")), Op("v7", "xor", ("v6", "v4")), Op("v9", "cast", ("v7",), dtype="int32")
        store = Op("v8", "full", shape=(1,)), Store("y", "v8", "v9")
        program = TritonProgram(buffers=(Buffer("y", 1, written=True),), body=(*numbers, *bools, spread, *mixed, *store))
        assert [verdict.status for verdict in interpreted(program)] == [status]
        assert entry.holds(program) is (status is Status.FAIL)


@pytest.mark.parametrize("early", [False, True], ids=["at the end", "early"])
def test_a_reversed_scan_of_a_function_is_known_in_an_atomic_operation(early: bool) -> None:
    entry = named("programs.md")
    scan = Op("c0", "cumsum", ("a0",), flag=True)
    body = (scan, If("n0", (), results=("c0",))) if early else (scan,)
    function = Function("g_0", ("a0",), body, ("a0",) if early else ("c0",), "n0")
    call = Call(("v2",), "g_0", ("v1",), int(early))
    (first, load, _, atomic) = entry.example.body
    assert entry.holds(replace(entry.example, body=(function, first, load, call, atomic)))
    plain = replace(function, results=("a0",), body=(scan,))
    assert not entry.holds(replace(entry.example, body=(plain, first, load, call, atomic))), "what it gives is its argument"


@pytest.mark.parametrize("one", [DESCRIBED, EXCHANGED], ids=["descriptors", "exchanges"])
def test_the_interpreter_and_the_compiler_take_descriptors_and_exchanges(
    one: TritonProgram, interpreted: Judge, compiled: Judge
) -> None:
    assert {verdict.status for verdict in interpreted(one)} == {Status.PASS}
    assert {verdict.status for verdict in compiled(one)} == {Status.PASS}


def test_the_interpreter_stores_in_bodies_what_the_evaluator_stores(interpreted: Judge) -> None:
    assert {(verdict.subject, verdict.status) for verdict in interpreted(STORES)} == {(one, Status.PASS) for one in "yz"}


def test_an_earlier_value_is_stored_without_the_stores_in_bodies() -> None:
    small = search(STORES, lambda one: any(isinstance(node, Op) and node.op == "neg" for node in walk(one.body)))
    assert signature(small) == "neg"
    assert len(small.body) <= 4


def test_a_bug_of_the_interpreter_is_found(interpreted: Judge) -> None:
    (verdict,) = interpreted(FLIP)
    assert (verdict.status, verdict.oracle, verdict.subject) == (Status.FAIL, "compiler", "run")
    assert "numel" in verdict.message


def test_a_program_without_a_meaning_is_not_judged() -> None:
    (verdict,) = check(INTERPRETER, program(Op("v9", "floordiv", ("v1", "v0"))))
    assert verdict.status is Status.NOT_APPLICABLE
    assert "division by 0" in verdict.message


def test_programs_compile_ahead_for_a_chip_that_is_not_here(compiled: Judge) -> None:
    half = program(Op("v9", "add", ("v1", "v1")), dtype="bfloat16")
    assert [one.status for case in (RIGHT[2], *ELSE[:2], CALLS, half) for one in compiled(case)] == [Status.PASS] * 5
    topk, bits = Op("v2", "topk", ("v1",), value=2), Op("v9", "bitcast", ("v2",), dtype="uint8")
    one = program(topk, bits, dtype="int8", size=2)
    one = replace(one, buffers=(one.buffers[0], Buffer("y", 2, "uint8", written=True)))
    (verdict,) = compiled(one)  # `topk` gives int32
    assert (verdict.oracle, verdict.subject) == ("compiler", "compile")
    assert "Cannot bitcast data-type of size 32 to data-type of size 8" in verdict.message


def test_a_reason_without_a_message_is_its_line() -> None:
    try:
        assert not RIGHT
    except AssertionError as error:
        inner = error
    inner.args = ()
    outer = RuntimeError("the outer one")
    outer.__cause__ = inner
    assert str(refused("compile", outer)) == "compile: RuntimeError: the outer one\nAssertionError: assert not RIGHT"


def test_a_write_where_none_may_be_is_seen() -> None:
    one = program(Op("v9", "add", ("v1", "v0")), dtype="int16")
    for at, place, message in ((0, 0, "to the input x"), (1, 4, "outside y"), (1, -1, "outside y")):
        memory = Memory(one)
        tensor = memory.tensors("cpu")[at]
        tensor.as_strided((1,), (1,), tensor.storage_offset() + place).add_(1)
        with pytest.raises(CompileError, match=message):
            memory.outputs()


def test_bfloat16_lies_in_memory_as_the_upper_half_of_float32() -> None:
    one = program(Op("v9", "add", ("v1", "v1")), dtype="bfloat16")
    memory = Memory(one)
    x, y = memory.tensors("cpu")
    assert (str(x.dtype), x.float().tolist()) == ("torch.bfloat16", inputs_of(one)["x"].tolist())
    assert memory.outputs()["y"].tobytes() == inputs_of(one)["y"].tobytes()
    y.copy_(x)
    assert memory.outputs()["y"].tolist() == inputs_of(one)["x"].tolist()
    x[0] = 64
    with pytest.raises(CompileError, match="to the input x"):
        memory.outputs()


def test_a_launch_gives_the_kernel_its_buffers_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch with a kernel that stands for a compiled one, on the CPU."""
    launches: list[tuple[Any, dict[str, int]]] = []
    results = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 5]]

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(x: Any, y: Any, **options: int) -> None:
                assert options.pop("v2_") == 3
                launches.append((grid, options))
                y.copy_(y.new_tensor(results[len(launches) - 1]))

            return launch

    entered = 0

    class Built:
        def __init__(self, text: str) -> None:
            assert text == render(one)

        def __enter__(self) -> Kernel:
            nonlocal entered
            entered += 1
            return Kernel()

        def __exit__(self, *_: object) -> None:
            pass

    one = program(Op("v2", "full", value=3, flag=True), Op("v9", "add", ("v1", "v2")), grid=(2, 1), num_warps=8)
    monkeypatch.setattr(launched, "built", Built)
    monkeypatch.setattr(launched, "DEVICE", "cpu")
    monkeypatch.setattr(launched, "synchronise", lambda: None)
    (ready,) = launched.prepare([one], [render(one)], Path())
    assert not isinstance(ready, CompileError)
    assert ready(one)["y"].tolist() == [1, 2, 3, 4]
    assert launches == [((2, 1), {"num_warps": 8, "num_stages": 3})] * 2
    with pytest.raises(CompileError, match="two runs differ in y"):
        ready(one)
    assert entered == 1, "compiled once"


def test_a_launch_allocates_memory_for_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    allocators: list[Callable[..., Any]] = []
    monkeypatch.setattr(launched, "triton", lambda: SimpleNamespace(set_allocator=allocators.append))
    monkeypatch.setattr(launched, "_once", lambda kernel, one: {})
    monkeypatch.setattr(launched, "DEVICE", "cpu")
    ran = [RIGHT[0], DESCRIBED]
    plain, described = launched.prepare(ran, list(map(render, ran)), Path())
    plain(RIGHT[0])  # type: ignore[operator]
    assert not allocators
    described(DESCRIBED)  # type: ignore[operator]
    (allocate,) = allocators
    assert allocate(256, 128, None).nbytes == 256
    text = form_of(TARGETS["triton-to-cuda"]).write("program", DESCRIBED, TARGETS["triton-to-cuda"])
    assert 'triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))' in text
    assert "set_allocator" not in form_of(INTERPRETER).write("program", DESCRIBED, INTERPRETER)


def test_an_error_of_the_driver_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    ended: list[bool] = []
    monkeypatch.setattr("torch.cuda.synchronize", lost)
    monkeypatch.setattr("os.abort", lambda: ended.append(True))
    synchronise()
    assert ended == [True]


# --- a compiler that is wrong on purpose


def wrong_remainder(one: TritonProgram) -> dict[str, np.ndarray[Any, Any]]:
    """Compute wrong results where a remainder is taken."""
    return {name: ~array.astype(bool) if divides(one) else array for name, array in evaluate(one).items()}


def divides(one: TritonProgram) -> bool:
    return any(isinstance(node, Op) and node.op == "mod" for node in walk(one.body))


def made(compute: Callable[[TritonProgram], Any]) -> ProgramTarget:
    def prepare(programs: Sequence[TritonProgram], sources: Sequence[str], folder: Path, *, exact: bool = True) -> list[Any]:
        return [compute for _ in programs]

    return ProgramTarget(
        name="made", dsl="triton", release=lambda: "3.7.1", text=render, lower=render, prepare=prepare, kind="interpreted"
    )


def rounds(target: ProgramTarget, count: int) -> list[Checked]:
    sent: list[Message] = []
    session = Programs("made", sent.append)
    for seed in range(count):
        session.answer(target, Round(seed=seed, count=12))
    return [one for one in sent if isinstance(one, Checked)]


@pytest.mark.slow
def test_a_wrong_result_is_found_and_minimised() -> None:
    findings = [one.findings[0] for one in rounds(made(wrong_remainder), 20) if one.findings]
    assert findings
    assert {one.fingerprint.subject for one in findings} == {"mod"}
    small = findings[0].case
    assert isinstance(small, TritonProgram)
    assert signature(small) == "mod"
    assert len(small.body) <= 5
    assert (small.grid, small.num_warps, small.seed) == ((1,), 4, 0)
    assert [one.written for one in small.buffers] == [True]


def test_a_right_compiler_has_no_finding() -> None:
    checked = rounds(made(evaluate), 1)
    assert len(checked) >= 8
    assert not any(one.findings for one in checked)
    assert all(set(one.outcomes.values()) == {"judged"} for one in checked)


def test_the_search_never_goes_up_and_ends_at_a_store_of_a_constant() -> None:
    for one in (*RIGHT, *ELSE):
        seen = [one]

        def holds(candidate: TritonProgram, seen: list[TritonProgram] = seen) -> bool:
            assert rank(candidate) < rank(seen[-1])
            seen.append(candidate)
            return True

        small = search(one, holds)
        assert [type(node) for node in small.body] == [Op, Store]
        assert (small.grid, small.num_warps, small.buffers[0].size) == ((1,), 4, 1)


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (lambda node: isinstance(node, If) and bool(node.otherwise), "if else"),
        (lambda node: isinstance(node, Op) and node.op == "full" and node.flag, "an argument"),
        (lambda node: isinstance(node, For) and node.kind == "while", "while without an iteration"),
    ],
)
def test_a_body_an_argument_or_a_loop_is_alone_in_the_minimal_program(
    needed: Callable[[Statement], bool], words: str
) -> None:
    small = search(ELSE[2], lambda one: any(needed(node) for node in walk(one.body)))
    evaluate(small)
    assert signature(small) == words
    assert len(list(walk(small.body))) <= 7


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (lambda node: isinstance(node, For) and len(range(node.begin, node.end, node.step)) > 1, "for range"),
        (lambda node: isinstance(node, If), "if"),
        (lambda node: isinstance(node, Op) and node.op == "associative_scan", "associative_scan by add"),
    ],
)
def test_the_minimal_program_has_what_the_failure_needs(needed: Callable[[Statement], bool], words: str) -> None:
    small = search(RIGHT[2], lambda one: any(needed(node) for node in walk(one.body)))
    evaluate(small)
    assert words in signature(small).split(", ")
    assert len(list(walk(small.body))) <= 6


def test_a_release_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "triton-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 9.9\n", encoding="utf-8")
    other = target_named(f"triton-interpreter@{tmp_path}")
    assert other is not None
    assert (other.name, other.site, dict(other.env)) == ("triton-interpreter@9.9", tmp_path, {"TRITON_INTERPRET": "1"})
    monkeypatch.setitem(__import__("sys").modules, "triton", SimpleNamespace())
    with pytest.raises(RuntimeError, match="imported already"):
        other.enter()


def test_what_does_not_compile_is_a_verdict_on_its_stage() -> None:
    (verdict,) = run(RIGHT[0], CompileError("compile", "RuntimeError: PassManager::run failed"))
    assert (verdict.status, verdict.symptom) == (Status.FAIL, "RuntimeError: PassManager::run failed")
    (verdict,) = run(RIGHT[0], CompileError("compile", "OutOfResources: out of resource: shared memory"))
    assert verdict.status is Status.NOT_APPLICABLE
