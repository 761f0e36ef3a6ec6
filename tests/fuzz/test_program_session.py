"""A round over programs, on compilers that stand for real ones: they run the evaluator, and some are wrong on purpose."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mhc.fuzz.check.level import Level
from mhc.fuzz.check.program_check import check, with_other_inputs
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.findings.ordering import elements as size
from mhc.fuzz.worker import program_session
from mhc.fuzz.worker.found_programs import FoundPrograms, operations_of
from mhc.fuzz.worker.program_session import CHECKS, Programs
from mhc.fuzz.worker.protocol import Begun, Check, Checked, Done, Judged, Message, Observe, Round, Running
from mhc.oracles.verdict import Status, failed
from mhc.programs.compile_error import CompileError
from mhc.programs.evaluate import evaluate, inputs_of
from mhc.programs.grammar import Binary, Buffer, Const, Load, Program, Store, walk
from mhc.programs.known import known
from mhc.programs.minimise import search_in_groups
from mhc.programs.targets import TARGETS, ProgramTarget, target_named
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import signature
from mhc.registry import built_in

ROUNDS = [Round(seed=seed, count=10) for seed in range(4, 12)]

Run = Callable[[Program], dict[str, np.ndarray]]


def right(program: Program) -> dict[str, np.ndarray]:
    return evaluate(program)


def divides(program: Program) -> bool:
    return any(isinstance(one, Binary) and one.op == "%" for one in walk(program))


def wrong_remainder(program: Program) -> dict[str, np.ndarray]:
    """Compute wrong results where a remainder is taken."""
    return {name: ~one.astype(bool) if divides(program) else one for name, one in evaluate(program).items()}


def compiler(compute: Callable[[Program], dict[str, np.ndarray]], lower: Callable[[Program], str] = render) -> ProgramTarget:
    def prepare(programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True) -> list[Run]:
        assert [render(one) for one in programs] == list(sources)
        return [compute for _ in programs]

    return ProgramTarget(name="made", dsl="tilelang", release=lambda: "0.1.8", text=render, lower=lower, prepare=prepare)


def named(wrong_pass: str, _: Program) -> str:
    return wrong_pass


def answers(target: ProgramTarget, *requests: Round | Check) -> list[Message]:
    sent: list[Message] = []
    session = Programs("made", sent.append)
    for request in requests:
        session.answer(target, request)
    return sent


def checked(messages: Sequence[Message]) -> list[Checked]:
    return [one for one in messages if isinstance(one, Checked)]


def first_found(messages: Sequence[Message]) -> Checked:
    return next(one for one in checked(messages) if one.findings)


def test_a_right_compiler_has_no_finding_and_every_result_follows_its_begin() -> None:
    messages = answers(compiler(right), Round(seed=3, count=20))
    assert isinstance(messages[-1], Done)
    begun = ""
    for message in messages:
        if isinstance(message, Begun):
            begun = message.case
        elif isinstance(message, Checked):
            assert message.case == begun
    judged = checked(messages)
    assert 5 < len(judged) <= 20
    assert len(judged) + messages[-1].left_out == 20
    assert not any(one.findings for one in judged)
    assert all(set(one.outcomes.values()) == {"judged"} for one in judged)
    assert all(known(Program.from_json(one.case), "0.1.8", ends=True) is None for one in judged)


def test_what_may_show_a_reported_bug_is_judged_only_where_it_passes() -> None:
    def wrong_where_known(program: Program) -> dict[str, np.ndarray]:
        shown = known(program, "0.1.8") is not None
        return {name: ~one.astype(bool) if shown else one for name, one in evaluate(program).items()}

    def judged(compute: Callable[[Program], dict[str, np.ndarray]]) -> set[Program]:
        messages = answers(compiler(compute), *ROUNDS)
        assert not any(one.findings for one in checked(messages))
        assert len(checked(messages)) + sum(one.left_out for one in messages if isinstance(one, Done)) == 80
        return {Program.from_json(one.case) for one in checked(messages)}

    everything, unknown = judged(right), judged(wrong_where_known)
    assert unknown == {one for one in everything if known(one, "0.1.8") is None} < everything


def test_the_same_seed_draws_the_same_programs_and_skip_leaves_the_first_out() -> None:
    everything = answers(compiler(right), Round(seed=3, count=10))
    rest = answers(compiler(right), Round(seed=3, count=10, skip=4))
    numbered = {one.number: one.case for one in everything if isinstance(one, Begun)}
    again = {one.number: one.case for one in rest if isinstance(one, Begun)}
    assert again == {number: case for number, case in numbered.items() if number >= 4}
    rest = answers(compiler(right), Round(seed=3, count=10, skip=10, again=frozenset(numbered)))
    assert {one.number: one.case for one in rest if isinstance(one, Begun)} == numbered


def test_a_wrong_result_is_minimised_and_what_contains_it_is_mostly_left_out() -> None:
    messages = answers(compiler(wrong_remainder), *ROUNDS)
    findings = [one.findings[0] for one in checked(messages) if one.findings]
    small = findings[0].case
    assert isinstance(small, Program)
    assert findings[0].fingerprint.symptom == "wrong value"
    assert findings[0].fingerprint.subject == signature(small)
    assert len(list(walk(small))) <= 8
    assert divides(small)
    drawn = {one.case for one in messages if isinstance(one, Begun)}
    later = sum(divides(Program.from_json(one)) for one in drawn)
    all_right = answers(compiler(right), *ROUNDS)
    assert later < sum(divides(Program.from_json(one.case)) for one in checked(all_right)) / 2


def test_each_program_that_the_search_tries_has_the_time_of_a_call(searches: list[int]) -> None:
    """Without a message for so long, the process would count as hung."""
    messages = answers(compiler(wrong_remainder), *ROUNDS)
    end = messages.index(first_found(messages))
    last = max(at for at, one in enumerate(messages[:end]) if isinstance(one, Begun))
    within = messages[last + 1 : end]
    assert [one.nth for one in within if isinstance(one, Running)] == list(range(1, searches[0] + 3))


def test_candidates_are_compiled_several_at_a_time_where_a_compiler_takes_long_to_begin() -> None:
    one_by_one, groups = compiler(wrong_remainder), list[int]()

    def prepare(programs: Sequence[Program], *rest: Any, **options: Any) -> Sequence[Any]:
        groups.append(len(programs))
        return one_by_one.prepare(programs, *rest, **options)

    alone = first_found(answers(one_by_one, *ROUNDS)).findings[0]
    together = first_found(answers(replace(one_by_one, prepare=prepare, together=4), *ROUNDS)).findings[0]
    assert together.fingerprint == alone.fingerprint
    assert together.case == alone.case
    assert groups.count(4) > 2
    assert together.reduction is not None
    assert alone.reduction is not None
    assert alone.reduction.checks <= together.reduction.checks < 4 * alone.reduction.checks


def test_a_minimised_finding_says_how_it_was_made_smaller_and_is_not_confirmed_yet() -> None:
    first = next(one.findings[0] for one in checked(answers(compiler(wrong_remainder), *ROUNDS)) if one.findings)
    assert first.reduction is not None
    assert first.drawn is not None
    assert isinstance(first.drawn.case, Program)
    assert (first.reduction.runs, first.reduction.stable) == (0, False)
    assert str(first.reduction).startswith("not run again in a new process yet; ")
    assert first.reduction.elements == size(first.case) < first.reduction.elements_before == size(first.drawn.case)
    assert 1 < first.reduction.checks < CHECKS


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each search, how many programs it tried."""
    tried = list[int]()

    def counted(program: Program, first: Callable[[Sequence[Program]], Program | None], **limits: Any) -> Program:
        tried.append(0)

        def also(candidates: Sequence[Program]) -> Program | None:
            tried[-1] += len(candidates)
            return first(candidates)

        return search_in_groups(program, also, **limits)

    monkeypatch.setattr(program_session, "search_in_groups", counted)
    return tried


def test_what_another_worker_found_is_found_again_and_mostly_not_minimised(searches: list[int]) -> None:
    before = [one.findings[0] for one in checked(answers(compiler(wrong_remainder), *ROUNDS)) if one.findings]
    later = [replace(one, seed=one.seed + 1000) for one in ROUNDS]
    told = [replace(one, found=tuple(before)) for one in later]
    spent = list[tuple[int, int]]()
    for requests in (told, later):
        searches.clear()
        messages = answers(compiler(wrong_remainder), *requests)
        spent.append((len(searches), sum(isinstance(one, Begun) for one in messages)))
    (less, fewer), (more, all_of_them) = spent
    assert less < more
    assert fewer < all_of_them


def test_a_search_that_reaches_a_finding_of_before_ends_there(searches: list[int]) -> None:
    found = [one for one in checked(answers(compiler(wrong_remainder), *ROUNDS)) if one.findings]
    before, program = found[0].findings[0], Program.from_json(found[0].case)
    in_full = searches[0]
    session = Programs("made", lambda _: None)
    session._found.keep(before)
    made = compiler(wrong_remainder)
    (failure, *_) = [one for one in check(made, program) if one.status is Status.FAIL]
    assert session._minimised(made, program, failure, before) is before
    assert searches[-1] < in_full


def test_bugs_of_two_passes_with_the_same_operations_are_both_kept(searches: list[int]) -> None:
    """Else each program with the bug met last would be minimised again."""
    found = [one for one in checked(answers(compiler(wrong_remainder), *ROUNDS)) if one.findings]
    program = next(one for one in map(Program.from_json, (one.case for one in found)) if "%" in operations_of(one))
    (failure, *_) = [one for one in check(compiler(wrong_remainder), program) if one.status is Status.FAIL]
    session = Programs("made", lambda _: None)
    passes = ("tl.Simplify", "tl.LayoutInference")
    made = [replace(compiler(wrong_remainder), wrong_pass=partial(named, name)) for name in passes]
    first = [session._minimised(one, program, failure) for one in made]
    assert [one.case for one in first] == [first[0].case] * 2
    searched = len(searches)
    assert [session._shown_again(one, program, failure) for one in made] == first
    assert len(searches) == searched


def test_a_compiler_that_refuses_is_a_finding_of_its_stage_minimised_once() -> None:
    def lower(program: Program) -> str:
        if divides(program):
            raise CompileError("lower", "InternalError: no remainder of 17 'x'")
        return render(program)

    messages = answers(compiler(right, lower), *ROUNDS[:4])
    findings = [one.findings[0] for one in checked(messages) if one.findings]
    assert {(one.fingerprint.oracle, one.fingerprint.subject, one.fingerprint.symptom) for one in findings} == {
        ("compiler", "lower", "InternalError: no remainder of N _")
    }
    assert len(list(walk(findings[0].case))) <= 8  # type: ignore[arg-type]


def test_what_the_c_compiler_refuses_is_minimised_with_the_headers_that_it_failed_with() -> None:
    asked = list[bool]()

    def prepare(programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True) -> list[Any]:
        asked.append(exact)
        error = CompileError("cc", "error: no vector")
        return [error if exact and divides(one) else right for one in programs]

    messages = answers(replace(compiler(right), prepare=prepare), *ROUNDS[:4])
    small = first_found(messages).findings[0].case
    assert isinstance(small, Program)
    assert len(list(walk(small))) <= 8
    assert asked.count(False) == 1, "whether the small header refuses the program too"


def test_what_a_small_header_refuses_too_is_minimised_with_that_header() -> None:
    asked = list[bool]()

    def prepare(programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True) -> list[Any]:
        asked.append(exact)
        error = CompileError("cc", "error: no vector" if exact else "error: unknown type")
        return [error if divides(one) else right for one in programs]

    messages = answers(replace(compiler(right), prepare=prepare), ROUNDS[0])
    found = first_found(messages).findings[0]
    assert found.fingerprint.symptom == "error: no vector"
    assert isinstance(found.case, Program)
    assert len(list(walk(found.case))) <= 8
    assert asked.count(True) <= 3, "the round, and the minimal program"


def test_what_the_front_end_refuses_is_minimised_without_the_passes() -> None:
    lowered = list[Program]()

    def build(program: Program) -> None:
        if divides(program):
            raise CompileError("build", "TypeError: no remainder")

    def lower(program: Program) -> str:
        build(program)
        lowered.append(program)
        return render(program)

    messages = answers(replace(compiler(right, lower), build=build), ROUNDS[0])
    small = first_found(messages).findings[0].case
    assert isinstance(small, Program)
    assert len(list(walk(small))) <= 8
    drawn = {one.case for one in messages if isinstance(one, Begun)}
    assert {one.json for one in lowered} <= drawn


def test_programs_with_the_operations_of_a_finding_that_few_of_them_show_are_judged() -> None:
    """A bug of a few programs hides no other one."""
    found = FoundPrograms()
    (program,) = [one.findings[0].case for one in checked(answers(compiler(wrong_remainder), *ROUNDS[:2])) if one.findings][
        :1
    ]
    assert isinstance(program, Program)
    found.keep(finding("made", compiler(right), program, failed("evaluator", "%", "wrong value", "y[0] = 1, evaluator 0")))
    left_out = [found.left_out(program) for _ in range(100)]
    assert sum(left_out) > 50
    for _ in range(100):
        found.judged(program, None)
    assert sum(found.left_out(program) for _ in range(100)) < 10
    for _ in range(1000):
        found.judged(program, ("evaluator", "wrong value"))
    assert sum(found.left_out(program) for _ in range(100)) > 90


def test_the_search_does_not_end_at_the_bug_of_another_finding() -> None:
    """Else a bug that a program has beside one that was found stays hidden behind that."""

    def wrong(program: Program) -> dict[str, np.ndarray]:
        shown = divides(program) or takes_least(program)
        return {name: ~one.astype(bool) if shown else one for name, one in evaluate(program).items()}

    def wrong_pass(program: Program) -> str:
        return "one" if takes_least(program) else "other"

    target = replace(compiler(wrong), wrong_pass=wrong_pass)
    session = Programs("made", lambda _: None)
    remainder, least = (Binary(op, Load("x", (Const(0),)), Const(3)) for op in ("%", "min"))
    x, y = Buffer("x", (1,), "int32", most=9), Buffer("y", (2,), "int32", written=True)
    stores = tuple(Store("y", (Const(at),), value) for at, value in enumerate((least, remainder)))
    for body, name in ((stores[1:], "%"), (stores, "min")):
        program = Program(buffers=(x, y), body=body)
        (failure,) = [one for one in check(target, program) if one.status is Status.FAIL][:1]
        assert session._finding(target, program, failure).fingerprint.subject == name


def test_where_minimising_takes_most_of_the_time_a_pass_with_a_finding_has_no_more(searches: list[int]) -> None:
    found = [one for one in checked(answers(compiler(wrong_remainder), *ROUNDS)) if one.findings]
    program = Program.from_json(found[0].case)
    session = Programs("made", lambda _: None)
    one, other = (
        replace(compiler(wrong_remainder), wrong_pass=partial(named, name)) for name in ("tl.Simplify", "tl.Other")
    )
    (failure, *_) = [one for one in check(one, program) if one.status is Status.FAIL]
    first = session._finding(one, program, failure)
    session._found._found = {frozenset({"min"}): dict(*session._found._found.values())}  # of other operations
    session._minimising = 1e6
    searches.clear()
    assert session._finding(one, program, failure) is first
    assert not searches
    assert session._finding(other, program, failure) is not first
    assert len(searches) == 1


def takes_least(program: Program) -> bool:
    return any(isinstance(one, Binary) and one.op == "min" for one in walk(program))


def test_a_program_is_run_on_several_inputs_and_a_finding_has_those_that_show_it() -> None:
    def compute(program: Program) -> dict[str, np.ndarray]:
        return (wrong_remainder if program.seed >= 2000 else right)(program)

    messages = answers(replace(compiler(compute), inputs=4), *ROUNDS)
    found = [one.findings[0].case for one in checked(messages) if one.findings]
    assert found
    assert all(isinstance(one, Program) and one.seed // 1000 == 2 for one in found)
    assert {Program.from_json(one.case).seed // 1000 for one in checked(messages) if not one.findings} == {0}
    begun = [Program.from_json(one.case).seed // 1000 for one in messages if isinstance(one, Begun)]
    assert begun.count(1) == begun.count(2) > begun.count(3) > 0


def test_inputs_on_which_a_program_is_not_valid_are_left_out() -> None:
    divisor, output = Buffer("x", (1,), "int32", most=1), Buffer("y", (1,), "int32", written=True)
    divided = Store("y", (Const(0),), Binary("//", Const(7), Load("x", (Const(0),))))
    valid = next(one for seed in range(9) if inputs_of(one := Program((divisor, output), (divided,), seed=seed))["x"].all())
    others = list(with_other_inputs(valid, 20))
    assert others[0] == valid
    assert 1 < len(others) < 20
    assert all(inputs_of(one)["x"].all() for one in others)
    assert {render(one) for one in others} == {render(valid)}


def test_a_check_gives_the_verdicts_on_one_program_and_there_are_no_peers() -> None:
    case = checked(answers(compiler(right), Round(seed=3, count=10)))[0].case
    judged = answers(compiler(right), Check(case=case, depth=Level.FULL))[-1]
    assert isinstance(judged, Judged)
    assert judged.case == case
    assert {one.status for one in judged.verdicts} == {Status.PASS}
    with pytest.raises(TypeError, match="peer"):
        Programs("made", lambda _: None).answer(compiler(right), Observe(case=case))


def test_a_target_whose_name_is_no_language_checks_a_program_too() -> None:
    case = checked(answers(compiler(right), Round(seed=3, count=10)))[0].case
    judged = answers(replace(compiler(right), dsl="plain C"), Check(case=case, depth=Level.FULL))[-1]
    assert isinstance(judged, Judged)
    assert {one.status for one in judged.verdicts} == {Status.PASS}


def test_a_target_is_named_alone_or_with_the_folder_of_a_release(tmp_path: Path) -> None:
    assert target_named("tilelang-to-c") == TARGETS["tilelang-to-c"]
    assert target_named("golden") is None
    assert not set(TARGETS) & set(built_in()), "--impl NAME is an implementation"
    with pytest.raises(ValueError, match="no tilelang in"):
        target_named(f"tilelang-to-c@{tmp_path}")
    about = tmp_path / "tilelang-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tilelang\nVersion: 9.9\n", encoding="utf-8")
    other = target_named(f"tilelang-to-c@{tmp_path}")
    assert other == replace(TARGETS["tilelang-to-c"], name="tilelang-to-c@9.9", site=tmp_path)
