"""`python -m mhc.bench detection`: what it counts, what it shows, and that no mutant stops it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from click import UsageError
from click.testing import CliRunner

from mhc import Case, default_case, load
from mhc.bench.cli import main
from mhc.bench.detection import picture, report, suites
from mhc.bench.detection.cli import _choose
from mhc.bench.detection.detect import campaign, detect
from mhc.bench.detection.hunt import Hunt, Share, Subject, base_subject, draw, drawn_for, hunt, named, reach, subject
from mhc.bench.detection.score import Score, score
from mhc.bench.detection.sets import KNOWN, THRESHOLDS, set_of
from mhc.bench.detection.suites import COMPARATORS
from mhc.bench.state import Results
from mhc.fuzz.worker.client import WorkerClient
from mhc.implementation import Implementation
from mhc.oracles.mutants import thresholds
from mhc.oracles.mutants.catalogue import ALL, CLEAN, MUTANTS, NEEDS_A_GPU, SETS
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.true_size import FAR, TRUE_SIZE
from mhc.strategies.reach import Reach

DEFAULTS, ONE_PERCENT, TILELANG = COMPARATORS
MUTANT, OTHER, VARIANT = (ALL[name] for name in ("res_transposed", "dx_all_zero", "clean_gamma_folded"))


def quiet() -> dict[str, list[str]]:
    """Fixed suites that find nothing."""
    return {name: [] for name in COMPARATORS}


def some_score(**changes: Hunt) -> Score:
    """One mutant killed at once and found by every suite, one that survives, one clean variant; the base has an alarm."""
    everywhere = {name: ["h_res at B1", "dphi at B1"] for name in COMPARATORS}
    hunts = {
        "manual": Hunt(name="manual", cases=50, refused=10, suites={**quiet(), DEFAULTS: ["dphi at B1"]}),
        MUTANT.name: Hunt(
            name=MUTANT.name,
            cases=5,
            first=2,
            seconds=0.5,
            fired={"bound": 2, "algebra": 4},
            suites=everywhere,
        ),
        OTHER.name: Hunt(name=OTHER.name, cases=50, suites={**quiet(), DEFAULTS: ["dphi at B1"]}),
        VARIANT.name: Hunt(name=VARIANT.name, cases=50, worst=0.9, suites=quiet()),
    }
    return score([MUTANT, OTHER, VARIANT], hunts | changes)


def test_the_score_counts_kills_alarms_and_what_the_suites_find() -> None:
    result = some_score()
    assert [row.mutant.name for row in result.survivors] == [OTHER.name]
    assert (result.checks, result.alarms) == (90, [])
    assert result.oracles == {"algebra": 1, "bound": 1}
    # what fails on the unedited base too is no kill
    assert [row.suites for row in result.mutants] == [frozenset(COMPARATORS), frozenset()]
    assert [result.suite_alarms(name) for name in COMPARATORS] == [(1, 2), (0, 2), (0, 2)]


def test_the_report_names_survivors_alarms_and_what_needs_a_gpu() -> None:
    flagged = Hunt(name=VARIANT.name, cases=50, first=7, fired={"bound": 7}, message="h_in: value (bound): h_in[0] = 1")
    result = some_score(**{VARIANT.name: flagged})
    text = report.render(result, command="python -m mhc.bench detection", count=50, seed=3, picture="p.svg")
    assert "**1 of 2 mutants killed** within 50 drawn cases each (1 of 2 manual)" in text
    assert "2 cases and 0.5 s to the first kill, at most 2 cases" in text
    assert "| bound | 1 of 2 (50 %) | 0 |" in text
    assert "**1 false alarms in 90 clean" in text
    assert f"| {OTHER.name} | manual | dx all zero | 50 | not understood yet |" in text
    assert "case 7: h_in: value" in text
    assert "| **2** |" in text
    assert all(one.reason in text for one in NEEDS_A_GPU)
    long = [line for line in text.splitlines() if len(line) > 125 and not line.startswith(("|", "-"))]
    assert not [line for line in long if "bfloat16" not in line]


def test_the_picture_is_an_svg_with_a_line_for_each_suite() -> None:
    root = ET.fromstring(picture.draw(some_score(), 50))
    lines = [one for one in root.iter() if one.tag.endswith("polyline")]
    assert len(lines) == 1 + len(COMPARATORS)
    assert "drawn cases, these oracles: 50 %" in "".join(root.itertext())


def test_comparators_are_what_they_are_called() -> None:
    wanted = torch.ones(2000)
    one_off = wanted.clone()
    one_off[7] = 5.0
    assert [close(wanted, wanted) for close in COMPARATORS.values()] == [True, True, True]
    assert [close(one_off, wanted) for close in COMPARATORS.values()] == [False, False, True]
    assert [close(wanted * 1.005, wanted) for close in COMPARATORS.values()] == [False, True, True]
    assert [close(wanted * torch.nan, wanted) for close in COMPARATORS.values()] == [False, False, False]


def test_the_third_comparator_is_tilelang_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the function itself, where TileLang is installed."""
    tensor = pytest.importorskip("tilelang.utils.tensor")

    def theirs(got: torch.Tensor, wanted: torch.Tensor) -> bool:
        try:
            return bool(tensor.torch_assert_close(got, wanted))
        except AssertionError:
            return False

    generator = torch.Generator().manual_seed(1)
    for count in (1, 999, 1000, 2500):
        wanted = torch.randn(count, generator=generator)
        for wrong in range(4):
            for scale in (1.0, 1.005, 1.02):
                got = wanted * scale
                got[:wrong] = 9.0
                assert suites.tilelang_close(got, wanted) == theirs(got, wanted)


def test_the_suites_find_a_plain_mutant_and_pass_its_base() -> None:
    small = suites.FIXED[:4]
    assert not any(suites.judge(load("manual"), small).values())
    found = suites.judge(load("mhc.oracles.mutants.load:res_transposed"), small)
    assert all(any(one.startswith("h_res at B2S4n2D32") for one in said) for said in found.values())
    raising = suites.judge(load("mhc.oracles.mutants.load:raises_for_few_tokens"), (suites.Fixed(1, 3, 1, 4, "float32"),))
    assert set(map(tuple, raising.values())) == {("raises AssertionError at B1S3n1D4 float32",)}


def test_cases_are_drawn_alike_and_carry_a_schedule_of_their_own() -> None:
    space = {"BLOCK": (16, 32)}
    drawn = draw(60, 5, space)
    assert len(drawn) == 60
    assert drawn[:30] == draw(30, 5, space)
    pinned = default_case(B=1, S=1, n=1, D=1, schedules={"": {"BLOCK": 32}})
    assert named(pinned, "mine").schedules == {"mine": {"BLOCK": 32}}
    assert not named(default_case(B=1, S=1, n=1, D=1), "mine").schedules


def test_rounds_that_reach_further_are_drawn_at_a_campaign_s_rate() -> None:
    """Of ten rounds two are stretched and one is of model shapes, where the bench gives them a share."""
    reaches = [reach(number) for number in range(1, 21)]
    assert [reaches.count(one) for one in Reach] == [14, 4, 2]
    assert reaches[:10] == reaches[10:]
    shares = {Reach.STRETCHED: Share(4, 1 << 18), Reach.MODEL: Share(2, 1 << 20)}
    usual, wider = draw(100, 3, {}), draw(100, 3, {}, shares=shares)
    assert wider[:19] == usual[:19]  # the first two rounds
    assert wider[19:] != usual[19:]
    assert max(case.sizes["N"] for case in usual) <= 1025 < max(case.sizes["N"] for case in wider)
    assert max(case.sizes["D"] for case in usual) <= 1025 < max(case.sizes["D"] for case in wider)


def test_a_slow_base_has_few_elements_in_rounds_that_reach_further() -> None:
    drawn = drawn_for("triton", 120, 0)
    assert max(case.sizes["D"] for case in drawn) > 1025
    assert max(case.sizes["M"] * case.sizes["K"] for case in drawn) <= 1 << 16


def test_on_a_gpu_cases_have_the_elements_that_a_hunt_has_room_for() -> None:
    def largest(room: int | None) -> int:
        return max(case.sizes["N"] * case.sizes["K"] for case in drawn_for("manual", 120, 0, "cuda", room))

    assert largest(1 << 20) <= 1 << 20 < 1 << 22 < largest(None) <= 1 << 25


def test_every_mutant_is_of_one_set_and_of_each_it_is_said_what_was_known() -> None:
    assert {*SETS, THRESHOLDS} <= set(KNOWN)
    assert {set_of(mutant) for mutant in MUTANTS} == set(SETS)
    assert {set_of(mutant) for mutant in TRUE_SIZE} == {"true_size"}
    assert {set_of(mutant) for mutant in thresholds.drawn(3)} == {THRESHOLDS}


def test_the_suites_count_with_few_tokens_and_with_real_token_counts_apart() -> None:
    real = suites.FULL_SIZE[0]
    only_there = Hunt(name=MUTANT.name, cases=9, suites={name: [f"dbias at {real}"] for name in COMPARATORS})
    (row,) = [row for row in some_score(**{MUTANT.name: only_there}).mutants if row.mutant is MUTANT]
    assert (row.suites, row.few) == (frozenset(COMPARATORS), frozenset())


def test_the_report_tells_sets_apart_and_shows_the_thresholds() -> None:
    mutants = thresholds.drawn(5)
    hunts = {mutant.name: Hunt(name=mutant.name, cases=5, first=3, suites=quiet()) for mutant in mutants[:4]}
    hunts |= {mutant.name: Hunt(name=mutant.name, cases=300, suites=quiet()) for mutant in mutants[4:]}
    own = {MUTANT.name: Hunt(name=MUTANT.name, cases=4, first=1, suites=quiet())}
    golden = Hunt(name="golden", cases=70, refused=2)
    result = score([MUTANT, *mutants], hunts | own, [golden])
    assert (result.checks, len(result.correct), result.suite_alarms(DEFAULTS)) == (68, 1, (0, 0))
    text = report.render(result, command="c", count=300, seed=0, picture="p.svg", thresholds=5)
    assert f"By set (what each is stands below): scaled: 1 of 1; thresholds: 4 of {len(mutants)}." in text
    assert "| killed | scaled, in-sample | thresholds, out-of-sample | all | hidden | clean variants flagged |" in text
    assert "`--thresholds 5`" in text
    for mutant in mutants:
        symbol, value = thresholds.threshold(mutant)
        assert f"| {symbol} {value} | {mutant.bug} | " in text
    assert all(f"- {mutant.name}: " in text for mutant in FAR)
    cuda = report.render(result, command="c", count=300, seed=0, picture="p.svg", device="cuda")
    assert not any(f"- {mutant.name}: " in cuda for mutant in FAR)


def test_what_runs_where() -> None:
    """On cuda what needs a GPU and what is clean; the rest where it is asked for; bases of other devices nowhere."""
    drawn = thresholds.drawn(1)
    chosen, builtin = _choose((), "cpu", drawn)
    assert {one.name for one in chosen} == {one.name for one in (*ALL.values(), *drawn)} - {
        one.name for one in ALL.values() if one.device == "cuda"
    }
    assert builtin == ["golden", "tir"]
    chosen, builtin = _choose((), "cuda", drawn)
    assert {*FAR} <= {*chosen}
    assert {one.name for one in chosen if one.clean} == {one.name for one in CLEAN if one.base == "manual"}
    assert all(one.device == "cuda" or one.clean for one in chosen)
    assert {"triton", "tilelang", "golden"} <= {*builtin}
    chosen, builtin = _choose(("true_size",), "cuda", drawn)
    assert (set(chosen), builtin) == ({one for one in TRUE_SIZE if one.base == "manual"}, [])
    assert _choose(("thresholds",), "cpu", drawn) == (list(drawn), [])
    assert _choose(("golden",), "cpu", drawn) == ([], ["golden"])


@pytest.mark.parametrize(
    ("names", "device", "message"),
    [
        (("offsets_wrap_at_2_31",), "cpu", "--only offsets_wrap_at_2_31: no such mutant on cpu"),
        (("two_terms",), "cuda", "--only two_terms: no such mutant on cuda"),
        (("thresholds",), "cpu", "--only thresholds: no such mutant on cpu"),
        (("past_512_h_in_column",), "cpu", "--only past_512_h_in_column: no such mutant on cpu"),
    ],
)
def test_what_does_not_run_is_refused(names: tuple[str, ...], device: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _choose(names, device, ())


def test_a_hunt_runs_where_its_subject_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Watched(WorkerClient):
        def __init__(self, spec: str, implementation: Implementation, device: str, **others: Any) -> None:
            seen.append(device)
            super().__init__(spec, implementation, "cpu", **others)

    monkeypatch.setattr("mhc.bench.detection.hunt.WorkerClient", Watched)
    hunt(subject(MUTANT, "cuda"), draw(3, 0, {}))
    assert seen == ["cuda"]


def test_a_campaign_over_a_built_in_implementation_counts_its_cases() -> None:
    result = campaign("golden", "cpu", cases=20, seed=0, jobs=1)
    assert (result.name, result.cases, result.first, result.fault) == ("golden", 20, None, "")
    assert 0 < result.worst < 1


def test_a_campaign_s_first_finding_is_a_false_alarm() -> None:
    wrong = SPEC.format("post_without_its_2")
    result = campaign(wrong, "cpu", cases=20, seed=0, jobs=1)
    assert result.first is not None
    assert "h_post" in result.message


@pytest.fixture
def few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites of two small tests: those with real token counts take half a minute of a core."""
    monkeypatch.setattr(suites, "FIXED", suites.FIXED[:2])
    monkeypatch.setattr(suites, "FULL_SIZE", ())


@pytest.mark.slow
@pytest.mark.usefixtures("few_tests")
def test_a_hang_ends_one_hunt_and_no_other(tmp_path: Path) -> None:
    """In parallel, kept in a file, and not repeated."""
    subjects = [subject(ALL[name]) for name in ("hangs_without_tokens", "post_without_its_2")]
    path = tmp_path / "state.json"
    settings = {"cases": 80, "seed": 0}
    heard: list[str] = []
    hunts = detect(
        subjects,
        Results(Hunt, "hunts", path, **settings),
        count=80,
        seed=0,
        limit=2.0,
        jobs=2,
        on_hunt=lambda prey, _: heard.append(prey.name),
    )
    assert sorted(heard) == sorted(prey.name for prey in subjects)
    assert [one.name for one in hunts] == [prey.name for prey in subjects]
    assert hunts[0].fired == {"liveness": hunts[0].first}
    assert "hang" in hunts[0].message
    assert hunts[1].first is not None
    assert json.loads(path.read_text(encoding="utf-8"))["settings"] == settings
    again = detect(subjects, Results(Hunt, "hunts", path, **settings), count=80, seed=0, limit=2.0, jobs=1)
    assert [asdict(one) for one in again] == [asdict(one) for one in hunts]
    assert Results(Hunt, "hunts", path, cases=80, seed=1).done == {}


def test_mutants_with_drawn_thresholds_have_cases_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What kills one need not kill the next: shares of them are no share of one sample of cases."""
    seen: dict[str, str] = {}

    def hunted(prey: Subject, drawn: Sequence[Case], **_: object) -> Hunt:
        seen[prey.name] = "".join(case.json for case in drawn)
        return Hunt(name=prey.name, cases=len(drawn))

    monkeypatch.setattr("mhc.bench.detection.detect.hunt", hunted)
    monkeypatch.setattr("mhc.bench.detection.detect.judge_apart", lambda *_: quiet())
    mutants = [MUTANT, OTHER, *thresholds.drawn(5)[:2]]
    detect([subject(one) for one in mutants], Results(Hunt, "hunts"), count=12, seed=0, jobs=1)
    assert seen[MUTANT.name] == seen[OTHER.name]
    assert len(set(seen.values())) == 3


@pytest.mark.usefixtures("few_tests")
def test_what_is_clean_may_get_more_cases() -> None:
    hunts = detect([subject(MUTANT), base_subject("manual")], Results(Hunt, "hunts"), count=4, clean=9, seed=0, jobs=1)
    assert hunts[0].cases <= 4
    assert hunts[1].cases == 9


def test_a_clean_subject_is_checked_to_the_end() -> None:
    drawn = draw(12, 0, {})
    result = hunt(base_subject("manual"), drawn)
    assert (result.cases, result.first, result.fault) == (12, None, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--only", "nobody"],
            "--only nobody: no such mutant on cpu; known are manual, triton, tilelang, rms_norm, layer_norm",
        ),
        (["--cases", "0"], "range"),
    ],
)
def test_bad_usage_exits_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["detection", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_the_verb_writes_its_report_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(subjects: list[Subject], state: Results[Hunt], **_: object) -> list[Hunt]:
        assert [one.device for one in subjects] == ["cpu", "cpu"]
        return [
            Hunt(name="manual", cases=4, suites=quiet()),
            Hunt(name=MUTANT.name, cases=4, first=1, fired={"bound": 1}, suites=quiet()),
        ]

    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mhc.bench.detection.cli.detect", found)
    result = CliRunner().invoke(main, ["detection", "--only", MUTANT.name, "--cases", "4", "--write"])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "docs" / "results" / "detection.md").read_text(encoding="utf-8")
    assert f"python -m mhc.bench detection --only {MUTANT.name} --cases 4 --write" in text
    assert (tmp_path / "docs" / "results" / "detection.svg").exists()
