"""Drawn Triton programs: each has one meaning, and together they have most of what the grammar has."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import UNSIGNED, range_of
from mhc.programs.triton import evaluate as evaluator
from mhc.programs.triton.cuts import seen
from mhc.programs.triton.edits import tidy
from mhc.programs.triton.evaluate import Machine, evaluate
from mhc.programs.triton.grammar import (
    COMPARISONS,
    FLOATS,
    Atomic,
    BlockLoad,
    BlockStore,
    For,
    If,
    Load,
    Op,
    Pointer,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.known import KNOWN
from mhc.programs.triton.operation import Operation
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.values import NUMPY, Described, Value
from mhc.programs.triton.words import features, signature
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.strategies.rounds import quiet
from tests.support.own_constants import no_constants_of_modules


def drawn(seed: int, count: int, release: str = "3.7.1", *, interpreted: bool = False) -> list[TritonProgram]:
    found: list[TritonProgram] = []

    def test(program: TritonProgram) -> None:
        found.append(program)

    given = hypothesis.given(triton_programs(release, interpreted=interpreted))
    hypothesis.seed(seed)(quiet(count, phases=(Phase.generate,))(given(test)))()
    return found


@pytest.fixture(scope="module")
def programs() -> list[TritonProgram]:
    with no_constants_of_modules():
        return [program for seed in range(2300, 2335) for program in drawn(seed, 12)]  # programs of one seed are alike


def test_every_drawn_program_has_one_meaning_and_nothing_unused(programs: list[TritonProgram]) -> None:
    for program in programs:
        evaluate(program)
        assert tidy(program) == program
        assert TritonProgram.from_json(program.json) == program


def test_the_same_seed_draws_the_same_programs() -> None:
    assert drawn(5, 10) == drawn(5, 10)


def test_programs_have_most_of_the_grammar(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert len({label for label in labels if label.startswith("operation")}) > 35
    assert len({label for label in labels if label.startswith("dtype")}) > 8
    assert labels["dtype: bfloat16"] > len(programs) / 40
    assert {"statement: for", "statement: if", "statement: atomic", "loop: tl.range", "loop: tl.static_range"} <= set(labels)
    assert {f"warps: {warps}" for warps in (1, 2, 4, 8)} <= set(labels)


def test_loops_end_before_their_end_run_backwards_or_not_at_all(programs: list[TritonProgram]) -> None:
    labels = {label for one in programs for label in features(one)}
    assert {"loop: with a rest", "loop: without an iteration", "loop: backwards"} <= labels


def test_pairs_elements_in_place_and_loops_far_from_0_are_drawn(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert min(labels[one] for one in ("operation: of pairs", "buffer: updated", "loop: int64")) > 4
    changes = Counter(change for one in programs for change in changes_in_place(one))
    found = [
        changes[one] for one in ("loop", "branch of a loop", "another place", "masked store", "same mask", "other mask")
    ]
    assert min(found) > len(programs) / 40, changes


def changes_in_place(program: TritonProgram) -> set[str]:
    """Return where a program stores elements that it loads, and how it loads again what it stored under a mask."""
    held, found = {one.name for one in program.buffers if one.updated}, set()

    def accesses(body: tuple[Statement, ...]) -> list[Load | Store]:
        return [one for one in walk(body) if isinstance(one, (Load, Store)) and one.buffer in held]

    for loop in (one for one in walk(program.body) if isinstance(one, For)):
        loaded, stored = ({one.index for one in accesses(loop.body) if isinstance(one, kind)} for kind in (Load, Store))
        found |= {"loop"} if loaded & stored else set()
        found |= {"another place"} if loaded and stored and loaded ^ stored else set()
        found |= {"branch of a loop" for one in walk(loop.body) if isinstance(one, If) and accesses(one.body)}
    for one, after in pairwise(accesses(program.body)):
        if isinstance(one, Store) and isinstance(after, Load) and one.index == after.index and one.mask is not None:
            found.add("masked store" if after.mask is None else "same mask" if after.mask == one.mask else "other mask")
    return found


def test_a_load_that_is_moved_out_of_a_loop_with_its_store_is_seen(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_constants_of_modules():  # as many again: of those of the fixture too few have such a loop for a share
        more = [program for seed in range(2335, 2370) for program in drawn(seed, 12)]
    having = [one for one in (*programs, *more) if "loop" in changes_in_place(one)]
    rights = [right(one) for one in having]
    load, first = Machine._load, dict[tuple[int, str, bytes], Value]()

    def moved(self: Machine, node: Load, env: Any, block: int) -> Value:
        result = load(self, node, env, block)
        return first.setdefault((block, node.name, env[node.index].data.tobytes()), result)

    monkeypatch.setattr(Machine, "_load", moved)
    wrong = 0
    for one, given in zip(having, rights, strict=True):
        first.clear()
        wrong += _gives_else(one, given)
    assert wrong > len(having) / 5


def test_arguments_while_loops_else_and_three_axes_are_drawn(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert min(labels[one] for one in ("operand: argument", "loop: while", "branch: else", "grid: 3 axes")) > 9


def test_descriptors_and_exchanges_are_drawn(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert min(labels[f"statement: block{one}"] for one in ("load", "store")) > 20
    assert min(labels[one] for one in ("atomic: xchg", "atomic: cas", "descriptor: one axis")) > 4


def test_blocks_of_descriptors_reach_over_both_ends(programs: list[TritonProgram]) -> None:
    words = Counter(word for one in programs for word in signature(one).split(", "))
    reaching = Counter(word.split()[1] for word in words if "partly outside" in word)
    assert min(reaching["load"], reaching["store"]) > 4


@pytest.mark.parametrize("kind", [BlockLoad, BlockStore])
@pytest.mark.parametrize("below", [True, False])
def test_a_block_that_is_lost_where_it_reaches_over_an_end_is_seen(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch, kind: type[Any], below: bool
) -> None:
    right = Machine._block

    def lost(machine: Machine, node: BlockLoad | BlockStore, env: dict[str, Value]) -> tuple[Any, ...]:
        buffer, places, inside = right(machine, node, env)
        one = env[node.descriptor]
        assert isinstance(one, Described)
        begins = np.array([int(env[name].data) for name in node.offsets])
        over = (begins < 0).any() if below else (begins + one.block > one.data).any()
        return buffer, places, inside & (not (over and isinstance(node, kind)))

    monkeypatch.setattr(Machine, "_block", lost)
    having = [one for one in programs if f"statement: {kind.__name__.lower()}" in features(one)]
    wrong = [evaluate(one) for one in having]
    monkeypatch.undo()
    assert (
        sum(
            any(array.tobytes() != other[name].tobytes() for name, array in evaluate(one).items())
            for one, other in zip(having, wrong, strict=True)
        )
        > 0
    )


@functools.cache
def values_of(program: TritonProgram) -> Mapping[str, Value]:
    """Return a value of each name; called before anything is patched."""
    return seen(program)


def matrix_indices(program: TritonProgram) -> set[str]:
    """Return in which orders a program loads and stores blocks of two axes, and whether both axes have a mask."""
    values, found = values_of(program), set()
    for one in walk(program.body):
        if isinstance(one, (Load, Store)) and len(values[one.index].shape) == 2 and min(values[one.index].shape) > 1:
            down, right = (np.diff(values[one.index].data.astype(np.int64), axis=axis) for axis in range(2))
            found |= {"rows"} if (right == 1).all() else {"columns"} if (down == 1).all() else set()
            if one.mask is not None:
                held = np.broadcast_to(values[one.mask].data, values[one.index].shape)
                rows, columns = np.any(held, axis=1), np.any(held, axis=0)
                if (held == np.outer(rows, columns)).all() and not rows.all() and not columns.all() and rows.any():
                    found.add("masks of both axes")
    return found


def test_matrices_are_loaded_by_rows_and_by_columns_with_masks_of_both_axes(programs: list[TritonProgram]) -> None:
    found = Counter(one for program in programs for one in matrix_indices(program))
    assert min(found[one] for one in ("rows", "columns", "masks of both axes")) > 4, found


def test_functions_are_called_again_with_other_constants_and_return_early(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert labels["statement: call"] > len(programs) / 20
    assert min(labels[f"call: {one}"] for one in ("again", "constant", "early return", "several results")) > 4
    assert labels["call: in a function"] > 1


def test_random_numbers_and_ceilings_are_drawn(programs: list[TritonProgram]) -> None:
    labels = Counter(label for one in programs for label in features(one))
    assert min(labels[f"operation: {one}"] for one in ("randint", "randint4x", "philox", "cdiv")) > 2


def test_loops_and_branches_store_in_their_bodies(programs: list[TritonProgram]) -> None:
    assert {"store: in for", "store: in if"} <= {label for one in programs for label in features(one)}


def test_numbers_and_none_are_written_as_people_write_them(programs: list[TritonProgram]) -> None:
    assert {"operand: number", "index: None"} <= {label for one in programs for label in features(one)}


def test_masks_leave_other_values_and_indices_are_of_other_dtypes(programs: list[TritonProgram]) -> None:
    varied, narrow = 0, 0
    for program in programs:
        values = values_of(program)
        for one in walk(program.body):
            if isinstance(one, Load):
                varied += one.other is not None and len(np.unique(values[one.other].data)) > 1
            if isinstance(one, (Load, Store, Atomic)):
                narrow += values[one.index].dtype == "int8"
    assert varied > 9
    assert narrow > 9


def test_what_an_atomic_operation_finds_is_stored(programs: list[TritonProgram]) -> None:
    assert sum("atomic: what was there" in features(one) for one in programs) > 4


def differs(program: TritonProgram, other: TritonProgram) -> bool:
    """Return whether another program gives something else, or has no meaning."""
    try:
        found = evaluate(other)
    except Invalid:
        return True
    return any(array.tobytes() != found[name].tobytes() for name, array in right(program).items())


@functools.cache
def right(program: TritonProgram) -> Mapping[str, Any]:
    """Return what a program gives; called before anything is patched."""
    return evaluate(program)


def caught(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch, table: Mapping[str, Operation], most: int = 3
) -> int:
    """Return how many programs give something else where the operations are these; no more are tried than give so many."""
    rights = [right(one) for one in programs]
    monkeypatch.setattr(evaluator, "TABLE", table)
    wrong = (one for one, given in zip(programs, rights, strict=True) if _gives_else(one, given))
    return len(list(islice(wrong, most)))


def _gives_else(program: TritonProgram, given: Mapping[str, Any]) -> bool:
    try:
        return any(array.tobytes() != given[name].tobytes() for name, array in evaluate(program).items())
    except Invalid:
        return True


def with_axes(body: tuple[Statement, ...], op: str, axes: Sequence[int]) -> tuple[Statement, ...]:
    """Return statements in which an operation is of another axis of the grid."""
    return tuple(
        replace(one, axis=axes[one.axis])
        if isinstance(one, Op) and one.op == op
        else replace(one, body=with_axes(one.body, op, axes))
        if isinstance(one, (For, If))
        else one
        for one in body
    )


@pytest.mark.parametrize(("op", "axes"), [("program_id", (1, 0)), ("num_programs", (0, 0)), ("num_programs", (1, 1))])
def test_axes_of_the_grid_that_are_mistaken_are_seen(programs: list[TritonProgram], op: str, axes: Sequence[int]) -> None:
    of_two = [one for one in programs if len(one.grid) == 2]
    wrong = (one for one in of_two if differs(one, replace(one, body=with_axes(one.body, op, axes))))
    assert len(list(islice(wrong, 5))) > 4


def as_signed(compute: Callable[..., Value], dtypes: Sequence[str]) -> Callable[..., Value]:
    """Return an operation that takes unsigned operands of these dtypes as signed ones."""

    def run(node: Op, *args: Value) -> Value:
        if args[0].dtype not in dtypes:
            return compute(node, *args)
        result = compute(node, *(Value(one.dtype[1:], one.data.view(one.dtype[1:])) for one in args))
        return result if result.dtype == "bool" else Value(args[0].dtype, result.data.view(args[0].dtype))

    return run


def wrapped(node: Op, a: Value) -> Value:
    """Sum up small integers in their own dtype."""
    result = TABLE["sum"].compute(node, a)
    return Value(result.dtype, result.data.astype(NUMPY[a.dtype]).astype(NUMPY[result.dtype]))


def truncated(node: Op, a: Value) -> Value:
    """Cast a float to bool by its integer."""
    whole = Value(a.dtype, np.trunc(a.data)) if node.dtype == "bool" and a.dtype in FLOATS else a
    return TABLE["cast"].compute(node, whole)


def along_rows(node: Op, a: Value, index: Value) -> Value:
    """Gather along the last axis of a square."""
    square = len(a.shape) > 1 and len(set(a.shape)) == 1
    return TABLE["gather"].compute(replace(node, axis=len(a.shape) - 1) if square else node, a, index)


def whole_groups(node: Op, i: Value, j: Value) -> Value:
    """Count the places of the last group as if it had all its rows."""
    rows, columns, group = node.shape
    return TABLE["swizzle2d"].compute(replace(node, shape=(rows + group, columns, group)), i, j)


def one_order(node: Op, a: Value) -> Value:
    """Go wrong where the block is halved more than once."""
    k = int(node.value)
    result = TABLE["topk"].compute(node, a)
    return Value(a.dtype, result.data[..., ::-1].copy()) if 1 < k <= a.shape[-1] // 4 else result


def as_the_first(compute: Callable[..., Value]) -> Callable[..., Value]:
    """Return an operation of two integers that takes the unsigned one, if it is the second, as a signed one."""

    def run(node: Op, *args: Value) -> Value:
        if len(args) < 2 or args[1].dtype != f"u{args[0].dtype}":
            return compute(node, *args)
        return compute(node, args[0], Value(args[0].dtype, args[1].data.view(args[0].dtype)))

    return run


WRONG: tuple[tuple[str, Callable[..., Value]], ...] = (
    *((op, as_signed(TABLE[op].compute, UNSIGNED)) for op in ("sort", "shr")),
    ("sum", wrapped),
    ("cast", truncated),
    ("gather", along_rows),
    ("histogram", lambda node, a, *mask: TABLE["histogram"].compute(node, a)),
    ("swizzle2d", whole_groups),
    ("topk", one_order),
)


@pytest.mark.parametrize(("op", "compute"), WRONG, ids=lambda one: one if isinstance(one, str) else "")
def test_what_goes_wrong_in_few_dtypes_or_shapes_is_seen(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch, op: str, compute: Callable[..., Value]
) -> None:
    having = [one for one in programs if f"operation: {op}" in features(one)]
    assert caught(having, monkeypatch, {**TABLE, op: Operation(compute, TABLE[op].text)}) > 0


def test_operands_of_two_dtypes_that_are_computed_in_the_wrong_one_are_seen(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = (*COMPARISONS[:4], "minimum", "maximum")
    wrong = {op: Operation(as_the_first(TABLE[op].compute), TABLE[op].text) for op in ops}
    assert caught(programs, monkeypatch, {**TABLE, **wrong}) > 2


def test_a_line_that_is_taken_for_a_column_of_a_square_is_seen(
    programs: list[TritonProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned(compute: Callable[..., Value]) -> Callable[..., Value]:
        def run(node: Op, a: Value, *rest: Value) -> Value:
            is_line = [len(a.shape) == 2 and one.shape == a.shape[:1] for one in rest]
            columns = (Value(one.dtype, one.data[..., None]) for one in rest)
            return compute(node, a, *(new if line else old for new, old, line in zip(columns, rest, is_line, strict=True)))

        return run

    wrong = {op: Operation(turned(TABLE[op].compute), TABLE[op].text) for op in ("add", "sub", "maximum", "lt", "le")}
    assert caught(programs, monkeypatch, {**TABLE, **wrong}) > 2


def test_unsigned_inputs_have_numbers_above_those_of_signed_ones(programs: list[TritonProgram]) -> None:
    buffers = [
        one for program in programs for one in program.buffers if one.dtype in {"uint32", "uint64"} and not one.written
    ]
    high = [one.name for one in buffers if one.most > range_of(one.dtype)[1] // 2]
    assert len(high) > len(buffers) / 5
    assert any(one.most >= 2**63 for one in buffers)


def test_an_operation_is_not_drawn_for_releases_that_lack_it() -> None:
    assert not any("operation: cat" in features(one) for one in drawn(1, 100, "3.6.0"))


def test_fewer_programs_for_the_interpreter_compute_in_bfloat16() -> None:
    judged = next(one for one in KNOWN if "debugging" in one.issue)
    found = [program for seed in range(30, 38) for program in drawn(seed, 12, interpreted=True)]
    with_bfloat16 = [one for one in found if "bfloat16" in one.json]
    assert with_bfloat16
    assert sum(map(judged.holds, with_bfloat16)) < len(with_bfloat16) / 5


def test_rules_of_passes_find_their_forms(programs: list[TritonProgram]) -> None:
    """Among others loops carry pointers and swap values, and products are added after they are made."""
    labels = Counter(label for one in programs for label in features(one))
    assert min(labels[one] for one in ("statement: pointer", "load: then a choice")) > len(programs) / 20
    options = Counter(word for label in labels for word in label.split() if label.startswith("loop:"))
    assert min(options[one] for one in ("unrolled", "flatten", "disable_licm")) > 1
    found: Counter[str] = Counter()
    for program in programs:
        made = made_by(program)
        for one in walk(program.body):
            if isinstance(one, For):
                names = {carry.name for carry in one.carried}
                found["swapped"] += any(carry.after in names - {carry.name} for carry in one.carried)
                found["pointer"] += any(isinstance(node, Pointer) and node.start in names for node in one.body)
                found["from a value"] += one.first is not None
            if isinstance(one, Op):
                before = [made.get(name) for name in one.args]
                found["added product"] += one.op == "add" and "dot" in before
                found["halves"] += one.op in {"join", "interleave", "xor"} and before == ["split", "split"]
                found["permuted again"] += one.op == "permute" and "permute" in before
            if isinstance(one, Atomic):
                found["masked and found"] += one.name is not None and one.mask is not None
    assert min(found.values()) > 4, found


def made_by(program: TritonProgram) -> dict[str, str]:
    """Return the operation that makes each value."""
    return {one.name: one.op for one in walk(program.body) if isinstance(one, Op)}


def test_operands_are_of_many_kinds(programs: list[TritonProgram]) -> None:
    """Among others ranges, numbers of the block, comparisons and blocks that are spread are operands."""
    found: dict[str, Counter[str]] = {}
    for program in programs:
        made = made_by(program)
        for one in walk(program.body):
            if isinstance(one, Op):
                found.setdefault(one.op, Counter()).update(made[name] for name in one.args if name in made)
    assert {"arange", "cast", "broadcast_to", "reshape", "lt", "where", "full"} <= {*found["where"]}
    assert {"arange", "broadcast_to", "sub", "cast"} <= {*found["floordiv"]}
    assert found["xor"]["program_id"] + found["eq"]["program_id"] + found["minimum"]["program_id"] > 0
    assert sum(len(all_) for all_ in found.values()) > 700


def test_bools_and_narrow_integers_are_summed_up_divided_and_shifted(programs: list[TritonProgram]) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for program in programs:
        values = values_of(program)
        ops = (one for one in walk(program.body) if isinstance(one, Op) and one.args)
        found.update((one.op, values[one.args[0]].dtype) for one in ops)
    assert sum(found[op, "bool"] for op in ("sum", "max", "cumsum", "xor_sum", "associative_scan", "gather")) > 9
    assert sum(found[op, dtype] for op in ("floordiv", "mod", "shr") for dtype in ("int8", "int16", "uint8", "uint16")) > 9


def test_products_are_added_to_products_and_masks_are_rows(programs: list[TritonProgram]) -> None:
    chained, spread = 0, 0
    for program in programs:
        made, values = made_by(program), values_of(program)
        for one in walk(program.body):
            chained += isinstance(one, Op) and one.op == "dot" and made.get(one.args[2]) == "dot"
            if isinstance(one, (Load, Store, Atomic)) and one.mask is not None:
                spread += values[one.mask].shape != values[one.index].shape
    assert min(chained, spread) > 4
