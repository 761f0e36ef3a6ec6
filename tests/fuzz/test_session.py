"""A round in this process: what is drawn, sent and looked for."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase

from mhc import Case, Implementation, default_case, load
from mhc.fuzz.check.check import Judgement, check
from mhc.fuzz.check.differential import Peer, PeerResult
from mhc.fuzz.check.timing import Timing
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.worker import peer, session
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Message, Round, Running
from mhc.fuzz.worker.session import run_session, summarise
from mhc.oracles import refusal
from mhc.oracles.verdict import failed, not_applicable, passed
from mhc.strategies.reach import Reach, token_class
from mhc.strategies.regions import labels, regions
from mhc.strategies.rounds import quiet
from tests.support.helpers import altered

MANUAL = replace(load("manual"), name="mine")
SMALL = 1 << 9


def wrong_from(width: int) -> Implementation:
    """h_post is wrong where D is at least that."""

    def edit(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        wide = arguments[0].shape[3] >= width
        return (out[0], out[1] + 1 if wide else out[1], *out[2:])

    return replace(altered(MANUAL, forward=edit), name="mine")


def sent(implementation: Implementation, **fields: Any) -> tuple[list[Message], bool]:
    told: list[Message] = []
    fields = {"seed": 0, "count": 6, "max_elements": SMALL, **fields}
    alive = run_session("mine.py:IMPL", implementation, "cpu", Round(**fields), told.append)
    return told, alive


@pytest.fixture
def collecting() -> Iterator[None]:
    """Garbage is collected again after the test."""
    yield
    gc.enable()


def of(kind: type, told: list[Message]) -> list[Any]:
    return [one for one in told if isinstance(one, kind)]


def test_cases_behind_the_small_ones_are_judged_by_a_rare_gate_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def judged(_: Implementation, case: Case, *rest: Any, rare: int, **others: Any) -> Judgement:
        asked.append(rare)
        return Judgement(case, [])

    monkeypatch.setattr(session, "check", judged)
    sent(MANUAL, count=8, skip=1, rare_gate=4)
    assert asked == [-1, -1, 4, 5, 6, 7, 8]
    asked.clear()
    sent(MANUAL, count=5)
    assert asked == [-1] * 5


@pytest.mark.parametrize("ratio", [float("inf"), float("nan"), 1e300])
def test_an_infinite_error_in_a_guided_round_is_a_finding(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    """A wrong value where the bound is 0 has no finite ratio, and Hypothesis takes none but finite ones."""
    wrong = failed("bound", "h_in", "value", "h_in[0] = 1, float64 0, bound 0", ratio=ratio)
    monkeypatch.setattr(session, "check", lambda _, case, *rest, **__: Judgement(case, [wrong]))
    told, _ = sent(MANUAL, rare=frozenset({"n = 1"}), count=20)
    assert len(of(Checked, told)) == 20
    assert {found.fingerprint.subject for one in of(Checked, told) for found in one.findings} == {"h_in"}
    assert isinstance(told[-1], Done)


def test_where_it_is_wrong_is_sent_a_few_times_in_each_process() -> None:
    located: Counter[tuple[str, ...]] = Counter()
    told: list[Message] = []
    for seed in (0, 1):
        request = Round(seed=seed, count=6, max_elements=SMALL)
        run_session("mine.py:IMPL", wrong_from(1), "cpu", request, told.append, located=located)
    found = [one for checked in of(Checked, told) for one in checked.findings if one.fingerprint.subject == "h_post"]
    found = [one for one in found if one.fingerprint == found[0].fingerprint]
    assert len(found) > session._LOCATED
    assert [one.errors is not None for one in found] == [at < session._LOCATED for at in range(len(found))]
    for one in found[: session._LOCATED]:
        assert one.errors is not None
        assert one.errors.shape == one.operator_case.table.result_specs["h_post"].shape(one.operator_case.sizes)
        assert one.errors.wrong > 0


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), ZeroDivisionError()])
def test_what_the_harness_raises_is_never_taken_for_a_flaky_test(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    calls = {"count": 0}

    def fails(*arguments: Any, **keywords: Any) -> Any:
        calls["count"] += 1
        if calls["count"] == 3:
            raise error
        return check(*arguments, **keywords)

    monkeypatch.setattr(session, "check", fails)
    with pytest.raises(type(error)):
        sent(MANUAL)
    assert calls["count"] == 3


def test_each_case_is_begun_run_and_judged_in_its_turn() -> None:
    told, alive = sent(MANUAL)
    assert alive
    begun = of(Begun, told)
    assert [one.number for one in begun] == list(range(6))
    assert [one.case for one in of(Checked, told)] == [one.case for one in begun]
    assert not [one for one in of(Checked, told) if one.findings]
    for one in begun:
        at = told.index(one)
        assert told[at + 1] == Running(nth=1)
    assert len(of(Done, told)) == 1
    assert told[-1] == of(Done, told)[0]
    assert not told[-1].lost  # type: ignore[union-attr]
    assert 0 <= told[-1].drawing < 60  # type: ignore[union-attr]
    skipped, _ = sent(MANUAL, skip=4)
    assert [(one.number, one.case) for one in of(Begun, skipped)] == [(one.number, one.case) for one in begun[4:]]
    other, _ = sent(MANUAL, seed=1)
    assert [one.case for one in of(Begun, other)][1:] != [one.case for one in begun][1:]


def test_the_round_keeps_to_its_budget_and_to_the_case_it_is_to_be_like() -> None:
    like = default_case(n=2, D=3, dtype="float16")
    told, _ = sent(MANUAL, count=8, like=like.json, max_elements=64)
    cases = [Case.from_json(one.case) for one in of(Begun, told)]
    assert {(case.sizes["n"], case.sizes["D"], case.dtype) for case in cases} == {(2, 3, "float16")}
    assert all(case.sizes["N"] * 8 <= 64 for case in cases)

    def forward(*arguments: Any, schedule: Any = None, **keywords: Any) -> Any:
        del schedule
        return MANUAL.forward(*arguments, **keywords)  # type: ignore[misc]

    space = replace(MANUAL, schedule={"BLOCK": (8, 16)}, forward=forward, backward=None)
    told, _ = sent(space, count=10)
    assert {name for one in of(Begun, told) for name in Case.from_json(one.case).schedules} == {"mine"}


def test_a_round_only_draws_and_a_failing_case_does_not_end_it() -> None:
    """A kernel that is wrong draws the cases of one that is right, each once, and every failure is a finding."""
    wrong = wrong_from(3)
    told, alive = sent(wrong, count=30)
    assert alive
    begun, checked = of(Begun, told), of(Checked, told)
    assert [one.number for one in begun] == list(range(30))
    assert [one.case for one in begun] == [one.case for one in checked]
    healthy, _ = sent(MANUAL, count=30)
    assert [one.case for one in of(Begun, healthy)] == [one.case for one in begun]
    wide = [one for one in checked if Case.from_json(one.case).sizes["D"] >= 3]
    assert 1 < len(wide) < 30
    assert [one for one in checked if one.findings] == [one for one in wide if one.outcomes["h_post"] == "judged"]
    for one in checked:
        for found in one.findings:
            assert (found.spec, found.case, found.against) == ("mine.py:IMPL", Case.from_json(one.case), None)
            assert found.fingerprint.implementation == "mine"
            assert found.fingerprint.subject == "h_post"
            assert found.reduction is None
    assert {found.fingerprint.symptom for one in checked for found in one.findings} == {"value"}
    assert told[-1] == of(Done, told)[0]
    rest, _ = sent(wrong, count=30, skip=25)
    assert [(one.number, one.case) for one in of(Begun, rest)] == [(one.number, one.case) for one in begun[25:]]


class Beside:
    """A peer in this process that answers with the results of an implementation."""

    def __init__(self, implementation: Implementation) -> None:
        self.peer = Peer.of("other.py:IMPL", implementation)
        self._implementation = implementation

    def run(self, case: Case) -> PeerResult:
        said: list[Message] = []
        peer.run(self._implementation, case.json, "cpu", said.append)
        (answer,) = [one for one in said if isinstance(one, PeerResult)]
        return answer


def test_a_difference_from_a_peer_is_a_finding_that_names_it() -> None:
    other = Beside(replace(wrong_from(1), name="other"))
    told: list[Message] = []
    request = Round(seed=0, count=4, max_elements=SMALL)
    assert run_session("mine.py:IMPL", MANUAL, "cpu", request, told.append, (other,))
    findings = [found for one in of(Checked, told) for found in one.findings]
    assert findings
    assert {(one.fingerprint.against, one.against, one.fingerprint.oracle) for one in findings} == {
        ("other", "other.py:IMPL", "pair")
    }


def test_what_large_cases_have_freed_is_given_back_with_the_end_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(session, "give_back", lambda: given.append("back"))
    sent(load("manual"), seed=0, count=1, max_elements=SMALL)
    assert not given, "a small one has freed little"
    sent(load("manual"), seed=0, count=1, max_elements=SMALL, reach=Reach.STRETCHED)
    assert given == ["back"]


@pytest.mark.usefixtures("collecting")
def test_a_lost_device_ends_the_round_at_once() -> None:
    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    told, alive = sent(altered(MANUAL, forward=lost))
    assert not alive
    assert len(of(Begun, told)) == 1
    (checked,) = of(Checked, told)
    assert [found.fingerprint.symptom for found in checked.findings] == ["illegal address"]
    assert told[-1].lost  # type: ignore[union-attr]
    assert not gc.isenabled(), "what lies on a lost device is not freed"


def test_a_guided_round_is_longer_and_looks_for_large_errors_and_rare_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, tuple[Phase, ...]]] = []
    targets: list[tuple[float, str]] = []

    def settings(count: int, *, phases: tuple[Phase, ...]) -> Any:
        asked.append((count, phases))
        return quiet(count, phases=phases)

    monkeypatch.setattr("mhc.strategies.rounds.quiet", settings)
    monkeypatch.setattr(hypothesis, "target", lambda value, label: targets.append((value, label)))
    told, _ = sent(MANUAL, count=7)
    assert asked.pop() == (7, (Phase.generate,))
    assert not targets
    rare = frozenset({"dtype: float32", "streams: 1"})
    told, _ = sent(MANUAL, count=7, rare=rare)
    assert asked.pop() == (50, (Phase.generate, Phase.target))
    checked = of(Checked, told)
    assert len(checked) == 7
    assert [value for value, label in targets if label == "rare regions"] == [len(one.regions & rare) for one in checked]
    assert [value for value, label in targets if label != "rare regions"] == [
        max(one.ratios.values()) for one in checked if one.ratios
    ]
    assert {label for _, label in targets} == {"rare regions", "largest error / bound"}
    sent(MANUAL, count=60, rare=rare)
    assert asked.pop()[0] == 60


def test_a_guided_round_climbs() -> None:
    """With the phase that climbs, Hypothesis draws other cases than without it, once it knows a few."""
    plain, _ = sent(replace(MANUAL, backward=None), count=50, max_elements=64)
    guided, _ = sent(replace(MANUAL, backward=None), count=50, max_elements=64, rare=frozenset())
    one, other = ([each.case for each in of(Begun, told)] for told in (plain, guided))
    assert one[:5] == other[:5]
    assert one != other


def test_a_fault_of_the_harness_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(session, "check", fault)
    with pytest.raises(ZeroDivisionError, match="ours"):
        sent(MANUAL)


def test_what_a_case_came_to() -> None:
    case = default_case(B=1, S=2, n=1, D=2)
    verdicts = [
        passed("bound", "dx", ratio=0.25),
        passed("algebra", "dx", ratio=0.5),
        passed("bound", "h_in", ratio=0.125),
        passed("memory", "inputs"),
        replace(passed("pair", "h_in", ratio=0.9), against="other"),
    ]
    clock = Timing(running=1.0, reference=2.0, checking=4.0, comparing=0.5)
    told = summarise("mine.py:IMPL", MANUAL, Judgement(case, verdicts), clock, 0)
    assert dict(told.ratios) == {"dx": 0.5, "h_in": 0.125}
    assert (told.case, told.refused, told.findings, told.compiled) == (case.json, "", (), 0)
    assert dict(told.sizes) == dict(case.sizes)
    assert told.regions == regions(case)
    assert dict(told.seconds) == {"running": 1.0, "reference": 2.0, "checking": 4.0, "comparing": 0.5, "compiling": 0.0}
    refused = Judgement(case, [not_applicable(refusal.NAME, refusal.CASE, "odd")])
    again = summarise("mine.py:IMPL", MANUAL, refused, clock, 3)
    assert (again.refused, dict(again.sizes), again.regions, again.compiled) == ("odd", {}, regions(case), 3)
    assert again.seconds["compiling"] == 4.0


@pytest.mark.parametrize(("length", "kept"), [(2000, 2000), (2001, 2003)])
def test_long_messages_are_cut(length: int, kept: int) -> None:
    verdict = replace(failed("bound", "dx", "value", "m" * length), against="other")
    made = finding("mine.py:IMPL", MANUAL, default_case(), verdict, "other.py:IMPL")
    assert len(made.message) == kept
    assert made.message.endswith("..." if kept > length else "m")
    assert made.fingerprint == Fingerprint.of(verdict, "mhc_pre", "mine")
    assert (made.fingerprint.against, made.against, made.case) == ("other", "other.py:IMPL", default_case())


@pytest.mark.parametrize(
    ("verdict", "lost"),
    [
        (failed("liveness", "forward", "illegal address", ""), True),
        (failed("liveness", "forward", "kernel crash", ""), True),
        (failed("liveness", "forward", "launch timeout", ""), True),
        (failed("liveness", "forward", "out of memory", ""), False),
        (replace(passed("liveness", "forward"), symptom="illegal address"), False),
    ],
)
def test_when_a_process_is_of_no_more_use(verdict: Any, lost: bool) -> None:
    assert session.device_lost([passed("bound", "dx"), verdict]) is lost


def test_constants_of_rounds() -> None:
    assert session.GUIDED == 50
    refused: Callable[..., Any] = refusal.refused
    assert refused([not_applicable("refusal", "case", "x")])
    assert not refused([not_applicable("refusal", "schedule", "x"), failed("refusal", "case", "no reason", "")])
    assert not refused([])


def test_drawing_is_what_is_left_beside_checking(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(implementation: Any, case: Case, device: str, depth: Any, clock: Timing, **_: Any) -> Judgement:
        clock.checking += 1000.0
        return Judgement(case, [passed("bound", "h_in")])

    monkeypatch.setattr(session, "check", slowly)
    told, _ = sent(MANUAL)
    assert told[-1] == Done(drawing=0.0)


def test_what_follows_so_many_cases_that_compile_is_not_judged() -> None:
    compiled = 0

    def forward(x: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal compiled
        compiled += x.numel() > 1
        assert MANUAL.forward is not None
        return MANUAL.forward(x, *arguments, **keywords)

    compiler = replace(MANUAL, forward=forward, compiles=lambda: compiled)
    for many in (1, 2):
        ended, _ = sent(compiler, until_compiled=many, count=20)
        counts = [one.compiled > 0 for one in of(Checked, ended)]
        assert counts[-1]
        assert sum(counts) == many
        assert len(counts) < 20
        assert isinstance(ended[-1], Done)
    assert len(of(Checked, sent(compiler, count=20)[0])) == 20
    assert len(of(Checked, sent(MANUAL, until_compiled=1, count=20)[0])) == 20


def test_the_cases_of_a_fresh_program_share_it_and_lie_beside_what_is_covered() -> None:
    def drawn(seed: int, covered: frozenset[str]) -> list[Case]:
        told, _ = sent(MANUAL, seed=seed, count=4, fresh=True, covered=covered)
        return [Case.from_json(one.case) for one in of(Checked, told)]

    every = frozenset(labels(MANUAL.table))
    for seed in range(4):
        cases = drawn(seed, every - {"dtype: float64"})
        assert {(case.sizes["n"], case.sizes["D"], case.dtype, case.has("gamma")) for case in cases} == {
            (cases[0].sizes["n"], cases[0].sizes["D"], "float64", cases[0].has("gamma"))
        }
        assert len({token_class(case.table, case.sizes) for case in cases}) == 1
        assert len({case.json for case in cases}) == 4
    widths = {drawn(seed, every)[0].sizes["D"] for seed in range(6)}
    assert len(widths) > 2, "not always the simplest, where all regions are covered"
