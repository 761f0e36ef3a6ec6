"""`python -m mhc.bench detection`: what it counts, what it shows, and that no mutant stops it."""

import json
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from click.testing import CliRunner

from mhc import default_case, load
from mhc.bench import detection_picture, detection_report, suites
from mhc.bench.cli import main
from mhc.bench.detection import State, detect
from mhc.bench.detection_score import Score, score
from mhc.bench.hunt import Hunt, base_subject, draw, hunt, named, subject
from mhc.bench.suites import COMPARATORS
from oracles.mutants.catalogue import ALL, NEEDS_A_GPU

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
            on_first=["bound"],
            suites=everywhere,
        ),
        OTHER.name: Hunt(name=OTHER.name, cases=50, suites={**quiet(), DEFAULTS: ["dphi at B1"]}),
        VARIANT.name: Hunt(name=VARIANT.name, cases=50, worst=0.9, suites=quiet()),
    }
    return score([MUTANT, OTHER, VARIANT], hunts | changes)


def test_the_score_counts_kills_alarms_and_what_the_suites_find() -> None:
    result = some_score()
    assert [row.mutant.name for row in result.survivors] == [OTHER.name]
    assert (result.median_cases, result.median_seconds, result.checks, result.alarms) == (2, 0.5, 90, [])
    assert result.oracles == ["algebra", "bound"]
    assert (result.kills("bound"), result.alone("bound")) == (1, 0)
    # what fails on the unedited base too is no kill
    assert [result.by_suite(name) for name in COMPARATORS] == [1, 1, 1]
    assert [result.suite_alarms(name) for name in COMPARATORS] == [1, 0, 0]


def test_the_report_names_survivors_alarms_and_what_needs_a_gpu() -> None:
    flagged = Hunt(name=VARIANT.name, cases=50, first=7, fired={"bound": 7}, message="h_in: value (bound): h_in[0] = 1")
    result = some_score(**{VARIANT.name: flagged})
    text = detection_report.render(
        result, command="python -m mhc.bench detection", count=50, seed=3, after=2, elsewhere=NEEDS_A_GPU, picture="p.svg"
    )
    assert "**1 of 2 mutants killed** within 50 drawn cases each (1 of 2 manual)" in text
    assert "**1 false alarms in 90 clean" in text
    assert f"| {OTHER.name} | manual | dx all zero | 50 | not understood yet |" in text
    assert "case 7: h_in: value" in text
    assert "| **2** |" in text
    assert all(one.reason in text for one in NEEDS_A_GPU)
    long = [line for line in text.splitlines() if len(line) > 125 and not line.startswith(("|", "-"))]
    assert not [line for line in long if "B,S,n,D" not in line]


def test_the_picture_is_an_svg_with_a_line_for_each_suite() -> None:
    root = ET.fromstring(detection_picture.draw(some_score(), 50))
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
    found = suites.judge(load("oracles.mutants.load:res_transposed"), small)
    assert all(any(one.startswith("h_res at B2S4n2D32") for one in said) for said in found.values())
    raising = suites.judge(load("oracles.mutants.load:raises_for_few_tokens"), (suites.Fixed(1, 3, 1, 4, "float32"),))
    assert set(map(tuple, raising.values())) == {("raises AssertionError at B1S3n1D4 float32",)}


def test_cases_are_drawn_alike_and_carry_a_schedule_of_their_own() -> None:
    space = {"BLOCK": (16, 32)}
    drawn = draw(60, 5, space)
    assert len(drawn) == 60
    assert drawn[:30] == draw(30, 5, space)
    pinned = default_case(B=1, S=1, n=1, D=1, schedules={"": {"BLOCK": 32}})
    assert named(pinned, "mine").schedules == {"mine": {"BLOCK": 32}}
    assert not named(default_case(B=1, S=1, n=1, D=1), "mine").schedules


def test_a_hang_ends_one_hunt_and_no_other(tmp_path: Path) -> None:
    """In parallel, kept in a file, and not repeated."""
    subjects = [subject(ALL[name]) for name in ("hangs_without_tokens", "post_without_its_2")]
    path = tmp_path / "state.json"
    settings = {"cases": 80, "seed": 0}
    heard: list[str] = []
    hunts = detect(
        subjects,
        State(path, settings),
        count=80,
        seed=0,
        after=1,
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
    again = detect(subjects, State(path, settings), count=80, seed=0, after=1, limit=2.0, jobs=1)
    assert [asdict(one) for one in again] == [asdict(one) for one in hunts]
    assert State(path, {**settings, "seed": 1}).done == {}


def test_what_is_clean_may_get_more_cases() -> None:
    hunts = detect(
        [subject(MUTANT), base_subject("manual")], State(None, {}), count=4, clean=9, seed=0, after=0, limit=60.0, jobs=1
    )
    assert hunts[0].cases <= 4
    assert hunts[1].cases == 9


def test_a_clean_subject_is_checked_to_the_end() -> None:
    drawn = draw(12, 0, {})
    result = hunt(base_subject("manual"), drawn, after=0, limit=60.0)
    assert (result.cases, result.first, result.fault) == (12, None, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nobody"], "--only nobody: no such mutant; known are manual, triton, tilelang"),
        (["--cases", "0"], "range"),
    ],
)
def test_bad_usage_exits_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["detection", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_the_verb_writes_its_report_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(subjects: list[object], state: State, **_: object) -> list[Hunt]:
        return [
            Hunt(name="manual", cases=4, suites=quiet()),
            Hunt(name=MUTANT.name, cases=4, first=1, fired={"bound": 1}, suites=quiet()),
        ]

    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mhc.bench.detection_cli.detect", found)
    result = CliRunner().invoke(main, ["detection", "--only", MUTANT.name, "--cases", "4", "--write"])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "docs" / "results" / "detection.md").read_text(encoding="utf-8")
    assert f"python -m mhc.bench detection --only {MUTANT.name} --cases 4 --write" in text
    assert (tmp_path / "docs" / "results" / "detection.svg").exists()
