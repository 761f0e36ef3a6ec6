"""A round in this process: what is drawn, told, shrunk and looked for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase

from mhc import Case, Implementation, default_case, load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.timing import Clock
from mhc.fuzz.findings.finding import fingerprint
from mhc.fuzz.worker import session
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Found, Message, Round, Running
from mhc.fuzz.worker.session import play, shorten, summarise
from oracles import refusal
from oracles.verdict import failed, not_applicable, passed
from strategies.regions import regions
from strategies.rounds import quiet
from tests.support.helpers import altered

MANUAL = replace(load("manual"), name="mine")
SMALL = 1 << 9


def wrong_from(width: int) -> Implementation:
    """h_post is wrong where D is at least that."""

    def edit(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        wide = arguments[0].shape[3] >= width
        return (out[0], out[1] + 1 if wide else out[1], *out[2:])

    return replace(altered(MANUAL, forward=edit), name="mine")


def played(implementation: Implementation, **fields: Any) -> tuple[list[Message], bool]:
    told: list[Message] = []
    fields = {"seed": 0, "count": 6, "max_elements": SMALL, **fields}
    alive = play(implementation, "cpu", Round(**fields), told.append)
    return told, alive


def of(kind: type, told: list[Message]) -> list[Any]:
    return [one for one in told if isinstance(one, kind)]


@pytest.mark.parametrize("ratio", [float("inf"), float("nan"), 1e300])
def test_an_infinite_error_in_a_guided_round_is_a_bug_like_any_other(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    """A wrong value where the bound is 0 has no finite ratio, and Hypothesis takes none but finite ones."""
    wrong = failed("bound", "h_in", "value", "h_in[0] = 1, float64 0, bound 0", ratio=ratio)
    monkeypatch.setattr(session, "check", lambda *_, **__: [wrong])
    told, _ = played(MANUAL, rare=frozenset({"n = 1"}), count=20)
    assert {one.failure.subject for one in of(Found, told)} == {"h_in"}
    assert isinstance(told[-1], Done)


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), ZeroDivisionError()])
def test_what_the_harness_raises_is_never_taken_for_a_flaky_test(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    calls = {"count": 0}

    def fails(*arguments: Any, **keywords: Any) -> Any:
        calls["count"] += 1
        if calls["count"] == 3:
            raise error
        return check(*arguments, **keywords).verdicts

    monkeypatch.setattr(session, "check", fails)
    with pytest.raises(type(error)):
        played(MANUAL)
    assert calls["count"] == 3


def test_each_case_is_begun_run_and_judged_in_its_turn() -> None:
    told, alive = played(MANUAL)
    assert alive
    begun = of(Begun, told)
    assert [one.number for one in begun] == list(range(6))
    assert [one.case for one in of(Checked, told)] == [one.case for one in begun]
    assert not [one for one in of(Checked, told) if one.probe or one.failures]
    for one in begun:
        at = told.index(one)
        assert told[at + 1] == Running(nth=1)
    assert len(of(Done, told)) == 1
    assert told[-1] == of(Done, told)[0]
    assert not told[-1].lost  # type: ignore[union-attr]
    assert 0 <= told[-1].drawing < 60  # type: ignore[union-attr]
    assert not of(Found, told)
    skipped, _ = played(MANUAL, skip=4)
    assert [(one.number, one.case) for one in of(Begun, skipped)] == [(one.number, one.case) for one in begun[4:]]
    other, _ = played(MANUAL, seed=1)
    assert [one.case for one in of(Begun, other)][1:] != [one.case for one in begun][1:]


def test_the_round_keeps_to_its_budget_and_to_the_case_it_is_to_be_like() -> None:
    like = default_case(n=2, D=3, dtype="float16")
    told, _ = played(MANUAL, count=8, like=like.json, max_elements=64)
    cases = [Case.from_json(one.case) for one in of(Begun, told)]
    assert {(case.n, case.D, case.dtype) for case in cases} == {(2, 3, "float16")}
    assert all(case.N * 8 <= 64 for case in cases)

    def forward(*arguments: Any, schedule: Any = None, **keywords: Any) -> Any:
        del schedule
        return MANUAL.forward(*arguments, **keywords)  # type: ignore[misc]

    space = replace(MANUAL, schedule={"BLOCK": (8, 16)}, forward=forward, backward=None)
    told, _ = played(space, count=10)
    assert {name for one in of(Begun, told) for name in Case.from_json(one.case).schedules} == {"mine"}


def test_a_bug_is_shrunk_and_told_once_and_a_known_one_is_not_raised() -> None:
    wrong = wrong_from(3)
    told, alive = played(wrong, count=30)
    assert alive
    (found,) = of(Found, told)
    case = Case.from_json(found.case)
    assert (case.B, case.S, case.n, case.D) == (1, 1, 1, 3)
    assert (found.failure.oracle, found.failure.subject, found.failure.symptom) == ("bound", "h_post", "value")
    numbers = [one.number for one in of(Begun, told)]
    first = numbers.index(-1)
    assert numbers[:first] == list(range(first))
    assert set(numbers[first:]) == {-1}, "what follows is shrinking"
    assert [one.probe for one in of(Checked, told)] == [number == -1 for number in numbers]
    assert all(not one.regions for one in of(Checked, told) if one.probe)
    id_ = fingerprint(wrong, case, found.failure).id
    told, _ = played(wrong, count=30, known=frozenset({id_}))
    assert not of(Found, told)
    assert [one.number for one in of(Begun, told)] == list(range(30))
    assert any(one.failures for one in of(Checked, told))
    told, _ = played(wrong, count=30, shrink=-1.0)
    assert [one.number for one in of(Begun, told)].count(-1) == 0, "no time to shrink"
    assert len(of(Found, told)) == 1


def test_a_lost_device_ends_the_round_at_once() -> None:
    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    told, alive = played(altered(MANUAL, forward=lost))
    assert not alive
    assert len(of(Begun, told)) == 1
    (found,) = of(Found, told)
    assert found.failure.symptom == "illegal address"
    assert told[-1].lost  # type: ignore[union-attr]


def test_a_guided_round_is_longer_and_looks_for_large_errors_and_rare_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, tuple[Phase, ...]]] = []
    targets: list[tuple[float, str]] = []

    def settings(count: int, *, phases: tuple[Phase, ...]) -> Any:
        asked.append((count, phases))
        return quiet(count, phases=phases)

    monkeypatch.setattr(session, "quiet", settings)
    monkeypatch.setattr(hypothesis, "target", lambda value, label: targets.append((value, label)))
    told, _ = played(MANUAL, count=7)
    assert asked.pop() == (7, (Phase.generate, Phase.shrink))
    assert not targets
    rare = frozenset({"dtype: float32", "streams: 1"})
    told, _ = played(MANUAL, count=7, rare=rare)
    assert asked.pop() == (50, (Phase.generate, Phase.target, Phase.shrink))
    checked = of(Checked, told)
    assert len(checked) == 7
    assert [value for value, label in targets if label == "rare regions"] == [len(one.regions & rare) for one in checked]
    assert [value for value, label in targets if label != "rare regions"] == [
        max(one.ratios.values()) for one in checked if one.ratios
    ]
    assert {label for _, label in targets} == {"rare regions", "largest error / bound"}
    played(MANUAL, count=60, rare=rare)
    assert asked.pop()[0] == 60


def test_a_guided_round_climbs() -> None:
    """With the phase that climbs, Hypothesis draws other cases than without it, once it knows a few."""
    plain, _ = played(replace(MANUAL, backward=None), count=50, max_elements=64)
    guided, _ = played(replace(MANUAL, backward=None), count=50, max_elements=64, rare=frozenset())
    one, other = ([each.case for each in of(Begun, told)] for told in (plain, guided))
    assert one[:5] == other[:5]
    assert one != other


def test_a_fault_of_the_harness_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(session, "check", fault)
    with pytest.raises(ZeroDivisionError, match="ours"):
        played(MANUAL)


def test_what_a_case_came_to() -> None:
    case = default_case(B=1, S=2, n=1, D=2)
    verdicts = [
        passed("bound", "dx", ratio=0.25),
        passed("algebra", "dx", ratio=0.5),
        passed("bound", "h_in", ratio=0.125),
        passed("memory", "inputs"),
        replace(passed("pair", "h_in", ratio=0.9), against="other"),
    ]
    clock = Clock(running=1.0, reference=2.0, checking=4.0, comparing=0.5)
    told = summarise(case, verdicts, (), clock, 0, probe=False)
    assert dict(told.ratios) == {"dx": 0.5, "h_in": 0.125}
    assert (told.case, told.refused, told.probe, told.compiled) == (case.json, False, False, 0)
    assert told.regions == regions(case)
    assert dict(told.seconds) == {"running": 1.0, "reference": 2.0, "checking": 4.0, "comparing": 0.5, "compiling": 0.0}
    again = summarise(case, [not_applicable(refusal.NAME, refusal.CASE, "odd")], (), clock, 3, probe=True)
    assert (again.refused, again.probe, again.regions, again.compiled) == (True, True, frozenset(), 3)
    assert again.seconds["compiling"] == 4.0


@pytest.mark.parametrize(("length", "kept"), [(2000, 2000), (2001, 2003)])
def test_long_messages_are_cut(length: int, kept: int) -> None:
    verdict = replace(failed("bound", "dx", "value", "m" * length), against="other")
    told = shorten(MANUAL, default_case(), verdict, ())
    assert len(told.message) == kept
    assert told.message.endswith("..." if kept > length else "m")
    assert (told.oracle, told.subject, told.symptom, told.against, told.outside) == ("bound", "dx", "value", "other", ())


@pytest.mark.parametrize(
    ("verdict", "broken"),
    [
        (failed("liveness", "forward", "illegal address", ""), True),
        (failed("liveness", "forward", "kernel crash", ""), True),
        (failed("liveness", "forward", "launch timeout", ""), True),
        (failed("liveness", "forward", "out of memory", ""), False),
        (replace(passed("liveness", "forward"), symptom="illegal address"), False),
    ],
)
def test_when_a_process_is_of_no_more_use(verdict: Any, broken: bool) -> None:
    assert session.broken([passed("bound", "dx"), verdict]) is broken


def test_constants_of_rounds() -> None:
    assert session.GUIDED == 50
    refused: Callable[..., Any] = refusal.refused
    assert refused([not_applicable("refusal", "case", "x")])
    assert not refused([not_applicable("refusal", "schedule", "x"), failed("refusal", "case", "no reason", "")])
    assert not refused([])


def test_drawing_is_what_is_left_beside_checking(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(implementation: Any, case: Case, device: str, depth: Any, clock: Clock, **_: Any) -> list[Any]:
        clock.checking += 1000.0
        return [passed("bound", "h_in")]

    monkeypatch.setattr(session, "check", slowly)
    told, _ = played(MANUAL)
    assert told[-1] == Done(drawing=0.0)
