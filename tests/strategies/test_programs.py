"""The strategies of programs: what they draw has a meaning, differs, and reaches what the grammar has."""

from collections import Counter

import hypothesis
from hypothesis import find, given

from mhc.programs import grammar
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import Binary, Const, Program, walk
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import features
from mhc.strategies.programs.programs import CPU, GPU, Features, programs
from mhc.strategies.rounds import ROUND, quiet


def drawn(count: int, features: Features = CPU) -> list[Program]:
    found: list[Program] = []

    def keep(program: Program) -> None:
        found.append(program)

    for seed in range(count // ROUND):
        hypothesis.seed(seed)(quiet(ROUND)(given(programs(features))(keep)))()
    return found


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
    wanted += [f"loop: {one}" for one in CPU.loops] + [f"scope: {one}" for one in ("global", "local", "var", "shared")]
    wanted += [f"operation: {one}" for one in ("+", "-", "*", "//", "%", "min", "max", "<", "==", "and", "or", "int32 cast")]
    assert [one for one in wanted if not seen[one]] == []
    assert any(map(divides_by_a_value, found))
    assert len({one.id for one in found}) > 220
    assert sum(len(list(walk(one))) for one in found) / len(found) < 80


def test_only_what_a_target_has_is_drawn() -> None:
    few = Features(dtypes=("int32", "uint8"), loops=("serial",), scopes=("local",), copies=False)
    for program in drawn(60, few):
        seen = features(program)
        assert not {"node: copy", "node: assign", "loop: unroll", "dtype: float32"} & seen


def test_programs_for_a_gpu_reach_the_tile_operations_and_more_than_one_thread() -> None:
    seen: set[str] = set()
    for program in drawn(150, GPU):
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


def test_the_simplest_program_is_small() -> None:
    small = find(programs(CPU), lambda _: True, settings=quiet(50))
    assert len(list(walk(small))) <= 6
