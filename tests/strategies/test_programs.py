"""The strategies of programs: what they draw has a meaning, differs, and reaches what the grammar has."""

import itertools
from collections import Counter
from functools import partial
from typing import Any

import hypothesis
from hypothesis import find, given, strategies
from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.arithmetic import Invalid, has_meaning
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import ROUNDING, Binary, Buffer, Cast, Const, For, Load, Program, Select, Store, Unary, Var, walk
from mhc.programs.tile_edits import mapped
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import features
from mhc.strategies.programs.programs import ARITHMETIC, CPU, CPU_BEFORE_VECTORS, GPU, _Builder, _programs, programs
from mhc.strategies.programs.statements import Features
from mhc.strategies.programs.woven import DIVISIONS
from mhc.strategies.rounds import drawn as one_round
from mhc.strategies.rounds import quiet
from tests.support.drawn_programs import drawn, is_list, others

EMPTY = Program(buffers=(Buffer("y", (1,), "int32", written=True),), body=())


def divides_by_a_value(program: Program) -> bool:
    """Return whether a divisor is no constant: it may be 0 where a condition keeps the division from being evaluated."""
    return any(isinstance(one, Binary) and one.op in {"//", "%"} and not isinstance(one.b, Const) for one in walk(program))


def test_drawn_programs_have_a_meaning_and_reach_the_whole_grammar() -> None:
    found = drawn(400)
    for program in found:
        evaluate(program)
        compile(render(program), "text", "exec")
    seen = Counter(label for program in found for label in features(program))
    nodes = ("const", "var", "load", "binary", "unary", "cast", "bits", "select", "for", "store", "assign", "if", "copy")
    wanted = [f"node: {one}" for one in nodes]
    wanted += [f"dtype: {one}" for one in grammar.DTYPES]
    wanted += [f"loop: {one}" for one in (*CPU.loops, "with a step")] + [
        f"scope: {one}" for one in ("global", "local", "var", "shared")
    ]
    wanted += [f"operation: {one}" for one in ("+", "-", "*", "//", "%", "min", "max", "<", "==", "and", "or", "int32 cast")]
    assert [one for one in wanted if not seen[one]] == []
    assert any(map(divides_by_a_value, found))
    assert len({one.id for one in found}) > 220
    for kind in (is_list, has_blocks):
        assert len(found) / 10 < sum(map(kind, found)) < len(found) / 3
    plain = [one for one in found if not is_list(one) and not has_blocks(one)]
    assert sum(len(list(walk(one))) for one in plain) / len(plain) < 80


def has_blocks(program: Program) -> bool:
    """Return whether several outputs are set and read by many statements."""
    return sum(one.written for one in program.buffers) > 1 and len(program.body) > 6


def test_lists_of_values_have_many_of_what_a_simplifier_rewrites() -> None:
    found = [one for one in drawn(600, CPU_BEFORE_VECTORS) if is_list(one)]
    values = [one.value for program in found for one in walk(program) if isinstance(one, Store)]
    assert len(values) / len(found) > 15
    masked = [node for one in values for node in walk(one) if isinstance(node, Binary) and node.op in {"==", "!="}]
    assert any(isinstance(one.a, Binary) and one.a.op == "&" and one.a.b == one.b for one in masked)
    nodes = [node for one in values for node in walk(one)]
    assert any(isinstance(one, Binary) and one.op == "+" and all(map(is_truth, (one.a, one.b))) for one in nodes)
    assert any(isinstance(one, Binary) and one.op == "//" and isinstance(one.a, Unary) for one in nodes)


def is_truth(node: object) -> bool:
    return isinstance(node, Cast) and isinstance(node.a, Binary) and node.a.op in grammar.COMPARISONS


def test_only_what_a_target_has_is_drawn() -> None:
    few = Features(dtypes=("int32", "uint8"), loops=("serial",), scopes=("local",), copies=False)
    for program in drawn(60, few):
        seen = features(program)
        assert not {"node: copy", "scope: var", "loop: unroll", "dtype: float32"} & seen


def test_programs_for_a_gpu_reach_the_tile_operations_and_more_than_one_thread() -> None:
    seen: set[str] = set()
    for program in drawn(200, GPU):
        compile(render(program, f"threads={program.threads}"), "text", "exec")
        seen |= features(program)
    wanted = {
        "node: fill",
        "node: reduce",
        "node: scan",
        "node: gemm",
        "node: atomicadd",
        "scope: fragment",
        "loop: Pipelined",
    }
    assert wanted | {"threads: 1", "threads: 32", "threads: 128"} <= seen


def test_an_index_that_counts_down_is_drawn() -> None:
    def counts_down(program: Program) -> bool:
        return any(
            isinstance(one, Binary)
            and one.op == "%"
            and isinstance(one.a, Binary)
            and one.a.op == "-"
            and isinstance(one.a.a, Const)
            for one in walk(program)
        )

    assert any(counts_down(one) for one in drawn(300))


def ladder(one: object) -> bool:
    return isinstance(one, Select) and isinstance(one.b, Select)


def narrowed(one: object) -> bool:
    return isinstance(one, Cast) and isinstance(one.a, Binary) and one.a.op in {"min", "max"}


def in_rows(one: object) -> bool:
    """Return whether a sum with a multiple is divided by the factor, or a multiple or a part of it."""
    return (
        isinstance(one, Binary)
        and one.op in {"//", "%"}
        and isinstance(one.a, Binary)
        and one.a.op == "+"
        and times(one.a.a)
    )


def times(one: object) -> bool:
    return isinstance(one, Binary) and one.op == "*" and isinstance(one.b, Const)


def sum_compared(one: object) -> bool:
    return isinstance(one, Binary) and one.op in grammar.COMPARISONS and isinstance(one.a, Binary) and one.a.op == "+"


def rounded(one: object) -> bool:
    """Return whether a float with a fraction is cast to an integer."""
    return isinstance(one, Cast) and one.dtype in grammar.INTEGERS and isinstance(one.a, Binary) and one.a.op == "/"


def past_32_bits(one: object) -> bool:
    return times(one) and abs(one.b.value) > 1 << 32  # type: ignore[attr-defined]


def clamped(one: object) -> bool:
    """Return whether a value is the larger of a bound and the smaller of another, or the other way round."""
    return isinstance(one, Binary) and isinstance(one.a, Binary) and {one.op, one.a.op} == {"min", "max"}


def widened(one: object) -> bool:
    sides = (one.a, one.b) if isinstance(one, Binary) and one.op in {"*", "+", "-"} else ()
    return bool(sides) and all(isinstance(side, Cast) and side.dtype in {"int64", "uint64"} for side in sides)


def floored(one: object) -> bool:
    """Return whether a float is rounded to a whole one and cast to an integer."""
    return isinstance(one, Cast) and one.dtype in grammar.INTEGERS and isinstance(one.a, Unary) and one.a.op in ROUNDING


def factored(one: object) -> bool:
    """Return whether a sum, or the smaller or larger of two values, is multiplied by a negative number."""
    return times(one) and one.b.value < 0 and isinstance(one.a, Binary)  # type: ignore[attr-defined]


def less_the_rest(one: object) -> bool:
    return isinstance(one, Binary) and one.op == "-" and isinstance(one.b, Binary) and one.b.op == "%"


def bounded(one: object) -> bool:
    """Return whether an index, or a multiple of it, is compared with what is no constant."""
    if not isinstance(one, Binary) or one.op not in grammar.COMPARISONS:
        return False
    sides = (one.a, one.b), (one.b, one.a)
    return any((isinstance(a, Var) or times(a)) and isinstance(b, (Binary, Cast)) for a, b in sides)


def test_what_rewritings_look_for_is_drawn() -> None:
    found = [node for program in others(480) for node in walk(program)]
    more = (factored, 4), (less_the_rest, 5), (bounded, 20)
    assert [shape.__name__ for shape, least in more if sum(map(shape, found)) < least] == []
    wanted = (ladder, 10), (narrowed, 20), (in_rows, 30), (sum_compared, 10), (rounded, 10), (past_32_bits, 3)
    for shape, least in (*wanted, (clamped, 20), (widened, 10), (floored, 4)):
        assert sum(map(shape, found)) >= least, shape.__name__


def loops_alike(program: Program) -> bool:
    """Return whether two loops of as many iterations, of which the second reads what the first sets, follow each other."""
    return any(
        isinstance(a, For) and isinstance(b, For) and a.extent == b.extent and reads(b) & {"y"}
        for a, b in itertools.pairwise(program.body)
    )


def reads(node: For) -> set[str]:
    return {one.buffer for one in walk(replace(EMPTY, body=(node,))) if isinstance(one, Load)}


def test_loops_that_may_be_fused_follow_each_other() -> None:
    assert sum(map(loops_alike, others(400, CPU_BEFORE_VECTORS))) > 9


def test_loops_have_several_statements_that_meet_one_element() -> None:
    loops = [node for one in others(400, CPU_BEFORE_VECTORS) for node in walk(one) if isinstance(node, For)]
    several = [one for one in loops if sum(isinstance(below, Store) for below in one.body) > 1]
    assert sum(len({below.at for below in one.body if isinstance(below, Store)}) > 1 for one in several) > 9


def test_a_buffer_is_set_and_read_again_and_loops_may_have_no_iteration() -> None:
    found = others(400, CPU_BEFORE_VECTORS)
    again = [one for one in found if any(load.buffer == "y" for load in walk(one) if isinstance(load, Load))]
    counted = [node for one in found for node in walk(one) if isinstance(node, For) and node.count is not None]
    assert len(again) > 60
    assert len(counted) > 20
    none = [one for one in found if any_loop_is_empty(one)]
    assert len(none) > 5


def any_loop_is_empty(program: Program) -> bool:
    """Return whether a loop of a program without the others' statements has another result where it runs at least once."""

    def once(node: Any) -> Any:
        counted = isinstance(node, For) and node.count is not None
        return replace(node, count=Binary("max", node.count, Const(1))) if counted else node

    changed = replace(program, body=tuple(mapped(one, once) for one in program.body))
    try:
        return changed != program and any((evaluate(changed)[name] != one).any() for name, one in evaluate(program).items())
    except Invalid:
        return True


def test_loops_have_names_of_their_own_however_many_there_are() -> None:
    @hypothesis.settings(quiet(1))
    @given(strategies.data())
    def test(data: strategies.DataObject) -> None:
        builder = _Builder(data.draw, CPU)
        names = [builder._variable(0, 1) for _ in range(30)]
        assert len(set(names)) == 30
        assert not {one for one in names if one[0] in "vaxwyz"}

    test()


def test_temporary_buffers_that_live_at_once_are_often_alike() -> None:
    pairs = [
        [(one.scope, one.shape, one.dtype) for one in program.buffers if one.scope in {"local", "var"}]
        for program in others(400)
    ]
    assert sum(len(set(one)) < len(one) for one in pairs) > 12


def test_most_long_programs_have_a_meaning() -> None:
    """A name that is drawn twice, or an index out of bounds, would leave few of them."""
    made = [one for seed in range(12) for one in one_round(_programs(CPU), 10, seed) if has_blocks(one)]
    assert len(made) > 8
    assert sum(map(partial(has_meaning, evaluate), made)) > len(made) * 9 / 10


def test_the_simplest_program_is_small() -> None:
    small = find(programs(CPU), lambda _: True, settings=quiet(50))
    assert len(list(walk(small))) <= 6


def chosen(one: object) -> bool:
    """Return whether a value is chosen of one that 32 bits do not hold and one of 32 bits that is cast."""
    sides = (one.a, one.b) if isinstance(one, Select) else ()
    return any(past_sum(a) and isinstance(b, Cast) for a, b in itertools.permutations(sides, 2))


def past_sum(one: object) -> bool:
    return isinstance(one, Binary) and one.op == "+" and isinstance(one.b, Const) and one.b.value >= 1 << 32


def test_bools_are_compared_and_numbers_of_64_bits_chosen_beside_those_of_32() -> None:
    found = [(program, node) for program in others(400) for node in walk(program)]
    compared = [(program, node.a) for program, node in found if isinstance(node, Binary) and node.op in grammar.COMPARISONS]
    assert sum(grammar.dtype_of(one, program) == "bool" for program, one in compared) > 5
    assert sum(chosen(node) for _, node in found) > 1


def related(one: object) -> bool:
    """Return whether two comparisons of the same operands are joined."""
    if not isinstance(one, Binary) or one.op not in grammar.LOGIC:
        return False
    sides = [side.a if isinstance(side, Unary) else side for side in (one.a, one.b)]
    compared = [{side.a, side.b} for side in sides if isinstance(side, Binary) and side.op in grammar.COMPARISONS]
    return len(compared) == 2 and compared[0] == compared[1]


def divided_by_a_value(one: object) -> bool:
    return isinstance(one, Binary) and one.op in {"//", "%", "truncdiv", "truncmod", "ceildiv"} and operated(one.b)


def shifted_by_a_value(one: object) -> bool:
    return isinstance(one, Binary) and one.op in {"<<", ">>"} and operated(one.b)


def operated(one: object) -> bool:
    return isinstance(one, (Binary, Cast, Select, Unary))


def cast_of_bool_of_a_number(one: object) -> bool:
    return isinstance(one, Cast) and isinstance(one.a, Cast) and one.a.dtype == "bool"


def both_operations(one: object) -> bool:
    return isinstance(one, Binary) and one.op in grammar.COMPARISONS and operated(one.a) and operated(one.b)


def equal_operands(one: object) -> bool:
    return isinstance(one, Binary) and one.a == one.b and operated(one.a)


def test_operands_are_of_every_kind() -> None:
    found = [node for program in others(400, CPU_BEFORE_VECTORS) for node in walk(program)]
    shapes = (related, 8), (divided_by_a_value, 20), (shifted_by_a_value, 5), (cast_of_bool_of_a_number, 20)
    for shape, least in (*shapes, (both_operations, 100), (equal_operands, 40)):
        assert sum(map(shape, found)) >= least, shape.__name__


def carries(one: object) -> bool:
    """Return whether a loop begins with a load, and then stores to the same buffer at another place."""
    if not isinstance(one, For) or not isinstance(one.body[0], (grammar.Assign, Store)):
        return False
    loaded = one.body[0].value
    stores = [below for below in one.body[1:] if isinstance(below, Store)]
    return isinstance(loaded, Load) and any(s.buffer == loaded.buffer and s.at != loaded.at for s in stores)


def retests(one: object) -> bool:
    """Return whether a branch sets the element that its condition compares, and then tests it again."""
    if not isinstance(one, grammar.If) or not isinstance(one.condition, Binary) or len(one.then) < 2:
        return False
    tested, (first, *rest) = one.condition.a, one.then
    sets = isinstance(first, Store) and isinstance(tested, Load) and (first.buffer, first.at) == (tested.buffer, tested.at)
    return sets and any(tested in walk(below) for below in rest)


def product_compared(one: object) -> bool:
    return isinstance(one, Binary) and one.op in grammar.COMPARISONS and times(one.a) and isinstance(one.b, Const)


def test_iterations_and_branches_depend_on_what_is_stored_before() -> None:
    found = [node for program in others(400, CPU_BEFORE_VECTORS) for node in walk(program)]
    for shape, least in ((carries, 8), (retests, 6), (product_compared, 20)):
        assert sum(map(shape, found)) >= least, shape.__name__


def guards_a_division(one: object) -> bool:
    """Return whether a choice tests a value that a side of it divides by."""
    if not isinstance(one, Select) or not isinstance(one.condition, Binary):
        return False
    quotients = [side for side in (one.a, one.b) if isinstance(side, Binary) and side.op in DIVISIONS]
    return one.condition.b in (Const(0), *(Const(0, of) for of in grammar.INTEGERS)) and any(
        side.b == one.condition.a for side in quotients
    )


def difference_compared(program: Program, one: object) -> bool:
    """Return whether a difference that wraps around below 0 is compared."""
    sides = (one.a, one.b) if isinstance(one, Binary) and one.op in grammar.COMPARISONS else ()
    differences = [side for side in sides if isinstance(side, Binary) and side.op == "-"]
    return any(grammar.dtype_of(side, program) in {"uint32", "uint64"} for side in differences)


def widened_then(program: Program, one: object) -> bool:
    """Return whether an operation of 32 bits, which wraps around, is cast to 64."""
    of_two = isinstance(one, Cast) and one.dtype in {"int64", "uint64"} and isinstance(one.a, Binary)
    return of_two and one.a.op in {"+", "-", "*"} and grammar.dtype_of(one.a, program) == "uint32"  # type: ignore[attr-defined]


def test_what_wraps_around_and_what_divides_by_0_elsewhere_is_drawn() -> None:
    found = others(400, CPU_BEFORE_VECTORS)
    nodes = [(program, node) for program in found for node in walk(program)]
    assert sum(guards_a_division(node) for _, node in nodes) >= 8
    assert not any(guards_a_division(node) for program in drawn(100, ARITHMETIC) for node in walk(program))
    assert sum(difference_compared(program, node) for program, node in nodes) >= 10
    assert sum(widened_then(program, node) for program, node in nodes) >= 8
    inputs = [one for program in found for one in program.buffers if one.dtype in {"uint8", "uint16", "uint32"}]
    assert any(one.least == (1 << grammar.bits_of(one.dtype) - 1) - 20 for one in inputs)


def nested(one: object) -> bool:
    """Return whether a loop has nothing but another one, which stores what it reads of the same buffer elsewhere."""
    if not isinstance(one, For) or len(one.body) != 1 or not isinstance(one.body[0], For):
        return False
    stores = [below for below in one.body[0].body if isinstance(below, Store)]
    return any(
        isinstance(below, Load) and below.buffer == store.buffer and below.at != store.at
        for store in stores
        for below in walk(replace(EMPTY, body=(store,)))
    )


def test_dependent_loops_are_nested_and_elements_passed_on_to_other_buffers() -> None:
    nodes = [node for program in others(400, CPU_BEFORE_VECTORS) for node in walk(program)]
    assert sum(map(nested, nodes)) >= 3
    stores = [one for one in nodes if isinstance(one, Store) and isinstance(one.value, Load)]
    assert sum(one.buffer != one.value.buffer for one in stores if isinstance(one.value, Load)) >= 150


def begins_below_0(one: object) -> bool:
    return isinstance(one, For) and one.begin < 0 and one.extent % 2 == 1


def begins_with_a_constant(one: object) -> bool:
    return (
        isinstance(one, For)
        and len(one.body) > 1
        and isinstance(one.body[0], Store)
        and isinstance(one.body[0].value, Const)
    )


def test_loops_begin_below_0_and_fill_buffers_that_they_read() -> None:
    found = others(400, CPU_BEFORE_VECTORS)
    nodes = [node for program in found for node in walk(program)]
    assert sum(map(begins_below_0, nodes)) > 30
    assert sum(map(begins_with_a_constant, nodes)) > 25
    loops = [
        (one, {buffer.name for buffer in program.buffers if buffer.scope == "local"})
        for program in found
        for one in program.body
    ]
    filled = [
        one
        for one, local in loops
        if isinstance(one, For) and {s.buffer for s in one.body if isinstance(s, Store)} & local & reads(one)
    ]
    assert len(filled) > 8


def test_what_may_be_nan_is_compared_and_read_by_nothing_else() -> None:
    compared = 0
    for program in others(400):
        special = {one.name for one in program.buffers if one.special}
        assert ("NaN and infinities" in features(program)) == bool(special)
        read = [one for one in walk(program) if isinstance(one, Load) and one.buffer in special]
        operands = [
            side
            for one in walk(program)
            if isinstance(one, Binary) and one.op in grammar.COMPARISONS
            for side in (one.a, one.b)
            if isinstance(side, Load) and side.buffer in special
        ]
        assert len(read) == len(operands)
        compared += len(operands)
    assert compared > 20
