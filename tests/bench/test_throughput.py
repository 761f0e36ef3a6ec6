"""`python -m mhc.bench throughput`: the simulated fleet, the plain loop, the race, and what laps add up to."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner
from hypothesis import Phase, given, seed

from mhc import load
from mhc.bench.cli import main
from mhc.bench.detection.hunt import Subject, base_subject, subject
from mhc.bench.detection.sets import KNOWN
from mhc.bench.detection.suites import COMPARATORS, Fixed
from mhc.bench.throughput import cli
from mhc.bench.throughput.measure import PHASES, Lap, Team, in_turns, median_ratio, split, without_campaign
from mhc.bench.throughput.plain import apart, fixed, loop
from mhc.bench.throughput.race import Race, Score, race, scores, tables
from mhc.bench.throughput.simulated import Ceiling, Simulated, measure
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError, Process
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.record import Mutant
from mhc.oracles.mutants.thresholds import drawn
from mhc.oracles.mutants.true_size import TRUE_SIZE
from mhc.strategies.rounds import ROUND, quiet

ENDS = """
import os
from dataclasses import replace
from mhc import load

IMPL = replace(load("manual"), name="ends", forward=lambda *args, **kwargs: os._exit(7))
"""

TELLS = """
import os
from dataclasses import replace
from mhc import load

def forward(*args, **kwargs):
    with open("SEEN", "a") as file:
        print(os.environ["MHC_CACHE"], file=file)
    raise RuntimeError

IMPL = replace(load("manual"), name="tells", forward=forward)
"""

RACE = Race(name="a", base="manual", clean=False, campaign=2.0, plain={}, cases=3)


def test_a_simulated_fleet_tells_each_bug_once(tmp_path: Path) -> None:
    seen = measure(tmp_path, lambda specs: Simulated(specs, 16), seconds=1, sleep=0.0)
    assert seen.right, seen
    assert seen.workers == 16
    assert 0 < seen.met <= seen.bugs <= seen.reports
    assert seen.reports > seen.reported  # the same bug out of several workers
    assert seen.cases > 100


def test_a_ceiling_that_is_wrong_or_low_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Ceiling(workers=2, seconds=1.0, cases=3000, cpu=0.3, reports=9, bugs=4, met=4, reported=4, kept=4)
    for seen, sleep, status in (
        (fine, 0, 0),
        (replace(fine, reported=5), 0, 1),
        (replace(fine, kept=3), 0, 1),
        (replace(fine, cases=1000), 0, 1),
        (replace(fine, cases=1000), 0.1, 0),
        (replace(fine, cases=1000, cpu=2.5), 0.1, 1),
    ):
        monkeypatch.setattr(cli, "simulate", lambda *_, seen=seen, **__: seen)
        done = CliRunner().invoke(main, ["throughput", "--simulated", "2", "--sleep", str(sleep)])
        assert done.exit_code == status, (seen, done.output)
    assert "2.500 ms of CPU time a case, so at most 400 cases/s" in done.output


def test_the_plain_loop_finds_what_the_correct_implementation_passes() -> None:
    bad = SPEC.format("dx_all_zero")
    manual, wrong = load("manual"), load(bad)
    found = loop(wrong, seconds=30, correct="manual")
    assert set(found.kills) == set(COMPARATORS)
    assert found.cases < 10
    same = loop(manual, seconds=30, cases=12, correct="manual")
    assert (same.kills, same.cases) == ({}, 12)
    assert loop(wrong, seconds=30, cases=12).kills == {}  # nobody says what is right
    assert loop(wrong, seconds=30, cases=5, correct=bad).kills == {}  # and here it fails too


def test_the_plain_loop_judges_operators_beside_mhc_pre() -> None:
    mutant = ALL["swiglu_da_without_b"]
    correct = base_subject(mutant.base).spec
    assert set(loop(load(subject(mutant).spec), seconds=60, cases=20, correct=correct).kills) == set(COMPARATORS)
    assert not loop(load(correct), seconds=60, cases=20, correct="swiglu.golden").kills.keys() - {"assert_close defaults"}


def test_a_bug_that_ends_the_plain_loop_is_found(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(
        "import os\nfrom dataclasses import replace\nfrom mhc import load\n"
        "IMPL = replace(load('manual'), name='exits', forward=lambda *args, **kwargs: os._exit(7))\n",
        encoding="utf-8",
    )
    found = apart(f"{path}:IMPL", seconds=60, correct="manual")
    assert found.ended == "ends the process"
    assert set(found.kills) == set(COMPARATORS)
    assert max(found.kills.values()) < 60


def test_survivors_count_with_all_their_seconds_and_clean_variants_apart() -> None:
    name = next(iter(COMPARATORS))
    races = [
        RACE,
        replace(RACE, name="b", campaign=None, plain={name: 4.0}),
        replace(RACE, name="c", clean=True, campaign=None, plain={name: 1.0}),
    ]
    found = scores(races, limit=30)
    assert found["campaign"] == Score(kills=1, seconds=32.0, flagged=0)
    assert found[f"plain loop, {name}"] == Score(kills=1, seconds=34.0, flagged=1)
    assert found["campaign"].per_minute == 60 / 32
    shorter = scores(races, limit=3)  # as if each had had three seconds
    assert shorter["campaign"] == Score(kills=1, seconds=5.0, flagged=0)
    assert shorter[f"plain loop, {name}"] == Score(kills=0, seconds=6.0, flagged=1)


def test_contenders_of_a_race_have_a_cache_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "caches"
    file = tmp_path / "tells.py"
    file.write_text(TELLS.replace("SEEN", str(seen)), encoding="utf-8")
    monkeypatch.setenv("MHC_CACHE", str(tmp_path / "shared"))
    prey = Subject(name="tells", spec=f"{file}:IMPL", base="manual", clean=False)
    monkeypatch.setattr("mhc.bench.throughput.race.subject", lambda mutant: prey)
    mutant = next(one for one in ALL.values() if one.base == "manual" and not one.clean)
    done = race(mutant, limit=20, seed=0)
    assert (done.fault, done.cases) == ("", 1)
    assert re.fullmatch(r".+: \{.*\}", done.found)
    caches = seen.read_text(encoding="utf-8").split()
    assert len({*caches}) == 2
    assert str(tmp_path / "shared") not in caches


@pytest.mark.slow
def test_what_the_correct_implementation_fails_too_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tells.py"
    file.write_text(TELLS.replace("SEEN", str(tmp_path / "caches")), encoding="utf-8")
    prey = Subject(name="tells", spec=f"{file}:IMPL", base="manual", clean=False)
    for one in ("subject", "base_subject"):
        monkeypatch.setattr(f"mhc.bench.throughput.race.{one}", lambda _: prey)
    mutant = next(one for one in ALL.values() if one.base == "manual" and not one.clean)
    done = race(mutant, limit=3, seed=0)
    assert (done.fault, done.campaign, done.found, done.plain) == ("", None, "", {})
    assert done.cases > 0


def test_a_race_tells_what_the_campaign_found_in_what_is_clean() -> None:
    mutants = [next(one for one in ALL.values() if one.clean is clean) for clean in (False, True)]
    told = replace(RACE, found="dx is 0: {}")
    races = [replace(told, name=one.name, clean=one.clean) for one in mutants]
    assert [*tables(mutants, races, 60.0)][-1] == f"{mutants[1].name}, which is clean: dx is 0: {{}}"


def test_a_race_over_what_is_not_known_is_refused() -> None:
    done = CliRunner().invoke(main, ["throughput", "--race", "--only", "nobody"])
    assert done.exit_code == 2
    assert "--only nobody: no such mutant" in done.output


def test_what_is_raced() -> None:
    """What needs a GPU is not, nor what is equivalent; what a seed drew is raced whole."""
    generated = drawn(2)
    everything = cli._chosen((), generated, every=True)
    assert {one.name for one in everything} == {
        one.name for one in (*ALL.values(), *generated) if one.device == "cpu" and not one.equivalent
    }
    some = cli._chosen((), generated, every=False)
    assert len(some) < len(everything) / 4
    assert set(generated) < set(some)
    assert {one.name for one in cli._chosen(("true_size",), (), every=False)} == {
        one.name for one in TRUE_SIZE if one.device == "cpu"
    }
    assert cli._chosen(("thresholds",), generated, every=False) == list(generated)
    with pytest.raises(UsageError, match="--only offsets_wrap_at_2_31: no such mutant on cpu"):
        cli._chosen(("offsets_wrap_at_2_31",), (), every=False)


def test_a_race_tells_each_set_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def raced(mutant: Mutant, *_: object) -> Race:
        return replace(RACE, name=mutant.name, campaign=1.0 if mutant.name == "res_transposed" else None)

    monkeypatch.setattr(cli, "race", raced)
    names = [part for name in ("res_transposed", "wide_h_in_column", "dx_all_zero") for part in ("--only", name)]
    done = CliRunner().invoke(main, ["throughput", "--race", *names])
    assert done.exit_code == 0, done.output
    titles = [line for line in done.output.splitlines() if line.startswith(("All", "scaled.", "true_size."))]
    assert titles == ["All", f"scaled. {KNOWN['scaled']}", f"true_size. {KNOWN['true_size']}"]
    assert [line.split("|")[3].strip() for line in done.output.splitlines() if "| campaign |" in line][3::4] == [
        "1 of 3",
        "1 of 2",
        "0 of 1",
    ]


def test_the_plain_loop_has_large_examples_too() -> None:
    seen: list[Fixed] = []

    def collect(example: Fixed) -> None:
        seen.append(example)

    for number in range(40):  # rounds, as the loop has them
        seed(number)(quiet(ROUND, phases=(Phase.generate,))(given(fixed())(collect)))()
    large = [one for one in seen if one.D > 1025 or one.S > 1025]
    assert 0.03 < len(large) / len(seen) < 0.3
    assert max(one.B * one.S * one.n * one.D for one in seen) <= 1 << 18


def test_laps_in_which_not_all_workers_would_work_are_refused() -> None:
    done = CliRunner().invoke(main, ["throughput", "--impl", "manual", "--workers", "3", "--workers", "1", "--cases", "50"])
    assert done.exit_code == 2
    assert "with 3 workers at work a lap takes 60 or more" in done.output


def test_laps_are_in_turns_each_with_the_seed_of_its_turn() -> None:
    seeds: list[tuple[str, int]] = []

    def lap(name: str, seed: int) -> Lap:
        seeds.append((name, seed))
        return Lap(cases=10 * len(seeds), seconds=2.0, counts={})

    found = list(in_turns({name: partial(lap, name) for name in "ab"}, 3, 7))
    assert seeds == [("a", 7), ("b", 7), ("a", 1007), ("b", 1007), ("a", 2007), ("b", 2007)]
    ours, others = ([lap for name, lap in found if name == which] for which in "ab")
    assert [lap.rate for lap in ours] == [5.0, 15.0, 25.0]
    assert median_ratio(others, ours) == pytest.approx(4 / 3)  # of 2, 4/3 and 6/5


@pytest.mark.slow
def test_cases_without_a_campaign_are_the_same_cases_in_as_many_processes() -> None:
    specs = {"manual": ("manual", load("manual"))}
    lap = without_campaign(specs, "cpu", processes=2, gpus=0, cases=80, seed=3)
    assert (lap.cases, lap.workers) == (60, 2)  # of four rounds in each, the first is not measured
    assert lap.busy == 1.0


def test_a_process_that_ends_where_nobody_watches_it_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "ends.py"
    file.write_text(ENDS, encoding="utf-8")
    spec = f"{file}:IMPL"
    with pytest.raises(HarnessError, match=r"ends\.py:IMPL ended with 7"):
        without_campaign({"ends": (spec, load(spec))}, "cpu", processes=1, gpus=0, cases=10, seed=0)


@pytest.mark.slow
def test_workers_are_busy_with_cases_most_of_a_lap() -> None:
    specs = {"manual": ("manual", load("manual"))}
    started: list[int] = []

    class Counted(LocalExecutor):
        def start(self, slot: int, name: str) -> Process:
            started.append(slot)
            return super().start(slot, name)

    team = Team(specs, partial(Counted, specs, "cpu", 2, Limits()))
    try:
        for workers in (1, 2, 1):
            lap = team.lap(workers, workers=workers, cases=80)
            assert lap.workers == workers
            assert 40 <= lap.cases <= 80
            assert 0.5 < lap.busy <= 1.1  # a round's drawing is counted when it ends
            assert sum(words["checked"] + words.get("refused", 0) for words in lap.counts.values()) == 80
    finally:
        team.close()
    assert started == [0, 1]  # later laps find them


def test_the_phases_of_a_case_add_up() -> None:
    words = {
        "checked": 3.0,
        "refused": 1.0,
        "drawing": 0.4,
        "running": 0.8,
        "reference": 0.2,
        "checking": 2.0,
        "comparing": 0.2,
    }
    lap = Lap(cases=4, seconds=1.0, cpu=0.004, counts={"manual": words})
    found = split(lap, materialising=0.1)["manual"]
    assert found == pytest.approx(
        {
            "drawing": 100,
            "materialising": 100,
            "running": 200,
            "reference": 50,
            "judging": 100,
            "storing": 1,
            "compiling": 0,
        }
    )
    assert sum(found[phase] for phase in PHASES) + 50 == pytest.approx(1000 * (2.0 + 0.4 + 0.004) / 4)
