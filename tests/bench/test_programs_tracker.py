"""The tracker's bugs: what counts as one, and that a hunt finds those that drawn programs show."""

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from mhc.bench.cli import main
from mhc.bench.programs import tracker, tracker_report
from mhc.bench.programs.tracker import Found, Tracked, track
from mhc.bench.programs.tracker_bugs import REPORTED, C, Reported
from mhc.bench.programs.tracker_others import ELSEWHERE, OTHERS
from mhc.fuzz.check.program_check import WRONG, check
from mhc.oracles.verdict import Status
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import Binary, Buffer, Const, For, Program, Store, Unary, Var
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_words import signature
from mhc.strategies.programs.statements import Features
from tests.support.needs import needs_tilelang

I = Var("i")
PLUS = next(one for one in REPORTED if one.number == 2991)
NESTED = next(one for one in REPORTED if one.number == 2955)
RIGHT = Program(buffers=(Buffer("y", (4,), "int32", written=True),), body=(For("serial", "i", 4, (Store("y", (I,), I),)),))


def placed(at: Binary) -> Program:
    return Program(buffers=RIGHT.buffers, body=(For("serial", "i", 4, (Store("y", (at,), I),)),))


def by_number(number: int) -> Reported:
    return next(one for one in REPORTED if one.number == number)


@pytest.mark.parametrize("bug", REPORTED, ids=lambda one: one.name)
def test_an_example_has_a_meaning_and_only_what_its_issue_is_about(bug: Reported) -> None:
    evaluate(bug.example)
    assert bug.is_all(bug.example)
    assert not bug.holds(RIGHT)


@needs_tilelang
@pytest.mark.parametrize("bug", [one for one in REPORTED if one.target == C], ids=lambda one: one.name)
def test_an_example_shows_its_bug_in_the_pinned_release(bug: Reported) -> None:
    failed = [one for one in check(TARGETS[C], bug.example) if one.status is Status.FAIL]
    assert any(bug.is_told(one.symptom) for one in failed), [one.symptom for one in failed]


def test_an_issue_is_in_one_table_only() -> None:
    numbers = [one.number for one in REPORTED] + [one.number for one in OTHERS]
    assert len(set(numbers)) == len(numbers)
    assert numbers[: len(REPORTED)] == sorted(numbers[: len(REPORTED)])
    rest = [number for group in ELSEWHERE.values() for number in group]
    assert set(rest) & {one.number for one in REPORTED} == set()


def test_a_remainder_of_a_remainder_counts_only_where_the_divisor_does_not_divide() -> None:
    def nested(inner: int, outer: int) -> Program:
        return placed(Binary("%", Binary("%", I, Const(inner)), Const(outer)))

    assert NESTED.holds(nested(4, 3))
    assert not NESTED.holds(nested(4, 2))
    assert not NESTED.holds(nested(3, 4))
    assert not NESTED.holds(placed(Binary("%", Binary("%", Const(3), Const(4)), Const(3))))


def test_other_operations_and_other_symptoms_are_another_bug() -> None:
    counts_down = placed(Binary("%", Binary("%", Binary("-", Const(9), I), Const(4)), Const(3)))
    assert NESTED.holds(counts_down)
    assert not NESTED.is_all(counts_down)
    assert NESTED.is_told(WRONG)
    assert not NESTED.is_told("error: _ undeclared")
    exceeds = (
        "Check failed: value < NLL << (dtype.bits() - N) (N vs. N) : ValueError: Literal value N exceeds maximum of intN"
    )
    assert [one.number for one in REPORTED if one.is_told(exceeds)] == [2582, 3000, 3001, 3002]


def test_constants_are_added_past_the_largest_only_where_something_else_is_below() -> None:
    past = by_number(3002)
    large = Const(1_500_000_000)
    assert past.holds(placed(Binary("+", Binary("+", I, large), large)))
    assert not past.holds(placed(Binary("+", Binary("+", I, large), Const(1))))
    assert not past.holds(placed(Binary("+", Binary("-", I, large), large)))
    assert not past.holds(placed(Binary("+", large, large)))


@needs_tilelang
def test_a_hunt_finds_what_a_drawn_program_shows_and_survives_one_that_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shows = Program(
        buffers=RIGHT.buffers,
        body=(For("serial", "i", 4, (Store("y", (I,), Binary("*", Unary("+", I), Const(2))),)),),
    )
    outside = placed(Binary("*", I, Const(1)))
    judge = tracker._judge

    def judged(target: object, programs: Sequence[Program]) -> list[list[str]]:
        if outside in programs:
            raise SystemExit(3)
        return judge(target, programs)  # type: ignore[arg-type]

    def sample(features: Features, count: int, seed: int) -> list[Program]:
        return [RIGHT, outside, shows]

    monkeypatch.setattr(tracker, "sample", sample)
    monkeypatch.setattr(tracker, "_judge", judged)
    lines: list[str] = []
    tracked = track([PLUS], 0, 100.0, 1, lines.append)
    found = tracked.found[PLUS.number]
    assert (found.programs, tracked.programs, tracked.failures, tracked.lost) == (3, 3, 1, 1)
    assert len(lines) == 1
    small = Program.from_json(found.text)
    assert signature(small) == "unary +"


def test_the_page_says_what_was_found_and_what_was_not() -> None:
    found = Found(number=2991, programs=12, seconds=3.4, text=RIGHT.json)
    tracked = Tracked(found={2991: found}, programs=20, failures=3, seconds=9.0)
    has = {one.number: one.number in {2991, 2943} for one in REPORTED}
    text = tracker_report.render_page(tracked, {"0.1.8": has, "0.1.15": dict.fromkeys(has, False)}, 7, "command")
    assert f"**{len(REPORTED)} of the issues can be expressed in the grammar, and 0.1.8 has 2 of them. 1 were found" in text
    assert "`    y[i] = +i` | yes | no | 3 s | 12 |" in text
    assert "Not found:\n\n- [2943]" in text
    numbers = [one.number for one in REPORTED] + [one.number for one in OTHERS]
    assert all(f"/{number})" in text for number in numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "tracker", "--part", "faults"], "given alone"),
        (["--part", "tracker", "--target", "plain-c"], "it is tilelang-to-c"),
    ],
)
def test_bad_usage_exits_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["programs", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
