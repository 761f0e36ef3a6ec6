"""Drawn Triton programs: each has one meaning, and together they have most of what the grammar has."""

from collections import Counter
from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import Phase
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.triton.edits import tidy
from mhc.programs.triton.evaluate import evaluate
from mhc.programs.triton.grammar import For, If, Op, Statement, TritonProgram
from mhc.programs.triton.words import features
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.strategies.rounds import quiet


def drawn(seed: int, count: int, release: str = "3.7.1") -> list[TritonProgram]:
    found: list[TritonProgram] = []

    def test(program: TritonProgram) -> None:
        found.append(program)

    given = hypothesis.given(triton_programs(release))
    hypothesis.seed(seed)(quiet(count, phases=(Phase.generate,))(given(test)))()
    return found


@pytest.fixture(scope="module")
def programs() -> list[TritonProgram]:
    return [program for seed in range(8) for program in drawn(seed, 50)]  # programs of one seed resemble each other


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
    assert {"statement: for", "statement: if", "statement: atomic", "loop: tl.range", "loop: tl.static_range"} <= set(labels)
    assert {f"warps: {warps}" for warps in (1, 2, 4, 8)} <= set(labels)


def test_loops_end_before_their_end_run_backwards_or_not_at_all(programs: list[TritonProgram]) -> None:
    labels = {label for one in programs for label in features(one)}
    assert {"loop: with a rest", "loop: without an iteration", "loop: backwards"} <= labels


def differs(program: TritonProgram, other: TritonProgram) -> bool:
    """Return whether another program gives something else, or has no meaning."""
    try:
        return any(array.tobytes() != evaluate(other)[name].tobytes() for name, array in evaluate(program).items())
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
    assert sum(differs(one, replace(one, body=with_axes(one.body, op, axes))) for one in of_two) > 4


def test_an_operation_is_not_drawn_for_releases_that_lack_it() -> None:
    assert not any("operation: cat" in features(one) for one in drawn(1, 100, "3.6.0"))
