"""The table of a replay: what it measures, how it reads, and that campaigns measure nothing."""

import json
from dataclasses import replace

import pytest
import torch

from mhc import load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.replay_table import WIDTH, replay_lines, replay_table
from mhc.fuzz.report.words import details
from mhc.oracles.bound import measure
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.verdict import Errors, Status, failed, not_applicable, passed
from tests.support.helpers import altered, scaled_case

CASE = scaled_case(B=1, S=2, n=2, D=3, dtype="float32")
INF = float("inf")


def number(values: list[float], errors: list[float]) -> ErrorNumber:
    return ErrorNumber(
        torch.tensor(values, dtype=torch.float64), torch.tensor(errors, dtype=torch.float64), torch.float32, finite=False
    )


def test_the_errors_are_the_largest_the_mean_and_the_bound_at_the_worst_place() -> None:
    """The largest error is not the worst one: what counts is how much was allowed there."""
    wanted = number([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0625, 1.0])
    measured = measure(torch.tensor([1.5, 2.0, 3.25, 4.0]), wanted)
    assert measured == Errors(largest=0.5, mean=0.1875, bound=0.0625, judged=4, elements=4)


def test_the_mean_is_over_what_is_finite_in_both_and_the_bound_where_one_is_given() -> None:
    wanted = number([1.0, INF, 3.0, 4.0], [0.5, 0.25, INF, 0.125])
    got = torch.tensor([1.25, 7.0, 4.0, float("nan")])
    assert measure(got, wanted) == Errors(largest=1.0, mean=0.625, bound=0.5, judged=1, elements=4)
    nothing = Errors(largest=None, mean=None, bound=None, judged=0, elements=4)
    assert measure(torch.tensor([INF, INF, INF, INF]), wanted) == nothing
    assert measure(torch.empty(0), number([], [])) == replace(nothing, elements=0)


def test_every_output_has_its_row_and_every_other_gate_its_line() -> None:
    wrong = altered(load("manual"), backward=lambda returned, _: (returned[0] * 1.5, *returned[1:]))
    verdicts = check(wrong, CASE, "cpu", Level.FULL, measure=True).verdicts
    lines = replay_table(CASE, "altered", verdicts).splitlines()
    assert lines[0] == f"altered on {CASE.id}"
    wide = next(number for number, line in enumerate(lines) if line.startswith("  output"))
    fails = next(number for number, line in enumerate(lines) if line.startswith("  FAILS"))
    assert " ".join(line.strip() for line in lines[1:fails]) == details(CASE)
    assert lines[fails:wide] == ["  FAILS: dx: value (bound); may follow from it: gradient, precision, algebra, sequence"]
    assert lines[wide].split() == ["output", "max", "error", "mean", "error", "bound", "error/bound"]
    rows = {line.split()[0]: line.split() for line in lines[wide + 1 :] if " PASS" in line or " FAIL" in line}
    assert [len(rows[name]) for name in ("h_in", "h_post", "h_res", "dx", "dphi")] == [6] * 5
    for largest, mean, bound, ratio in (map(float, rows[name][1:5]) for name in ("h_in", "dx")):
        assert 0 < mean < largest
        assert ratio * bound <= largest * 1.02  # rounded to three digits
    assert rows["h_in"][5] == "PASS"
    assert rows["dx"][5] == "FAIL"
    assert lines[lines.index(next(line for line in lines if line.startswith("  dx "))) + 1].startswith("      dx[0, ")
    assert any(line.startswith("  algebra     dx: FAIL, may follow from value (bound): scaled x: dx[") for line in lines)
    assert "  determinism 11 pass" in lines


def test_the_row_of_an_output_that_another_gate_fails_does_not_pass() -> None:
    some = Errors(largest=0.0, mean=0.0, bound=0.0, judged=1, elements=3)
    verdicts = [
        failed("nonfinite", "dx", "class", "dx[1] = nan, float64 1"),
        replace(passed("bound", "dx", ratio=0.0), errors=some),
        failed("algebra", "dx", "scaled x", "dx[0] = 1"),
        failed("algebra", "dx", "permuted", "dx[0] = 1"),
        passed("bound", "dy", ratio=0.0),
        failed("determinism", "h", "differs", ""),
    ]
    lines = replay_table(CASE, "mine", verdicts).splitlines()
    (dx,) = (line for line in lines if line.startswith("  dx "))
    assert dx.endswith("FAIL (nonfinite, algebra), a bound for 1 of 3 elements")
    assert next(line for line in lines if line.startswith("  dy ")).endswith("  PASS")


def test_the_cause_is_named_first_and_what_may_follow_from_it() -> None:
    verdicts = [
        failed("bound", "y", "value", "y[0] = 2, float64 1, bound 0.1", ratio=10.0),
        failed("bound", "dx", "value", "dx[0] = 2, float64 1, bound 0.1", ratio=10.0),
        failed("gradient", "dx", "not linear", "dx[0] = 2"),
        failed("gradient", "dx", "not additive", "not additive: dx[0] = 2"),
        failed("determinism", "y", "differs", "y[0] = 2, and 3"),
        failed("isolation", "z", "leak", "z[0] = 2, and nan"),
        failed("exact", "y", "inexact", "inexact: y[0] = 2"),
        failed("algebra", "z", "permuted tokens", "permuted tokens: z[0] = 1"),
    ]
    lines = replay_table(CASE, "mine", verdicts).splitlines()
    assert [line for line in lines if "FAILS" in line] == [
        "  FAILS: y: value (bound), differs (determinism); may follow from value (bound): exact",
        "  FAILS: dx: value (bound), not linear (gradient); may follow from value (bound): gradient",
        "  FAILS: z: leak (isolation), permuted tokens (algebra)",
    ]
    assert [line for line in lines if ": FAIL" in line] == [
        "  gradient    dx: FAIL: dx[0] = 2",
        "  determinism y: FAIL: y[0] = 2, and 3",
        "  isolation   z: FAIL: z[0] = 2, and nan",
        "  algebra     z: FAIL: permuted tokens: z[0] = 1",
        "  gradient    dx: FAIL, may follow from value (bound): not additive: dx[0] = 2",
        "  exact       y: FAIL, may follow from value (bound): inexact: y[0] = 2",
    ]
    follows = [json.loads(line)["follows"] for line in replay_lines(CASE, "mine", verdicts).splitlines()]
    assert follows == ["", "", "", "dx: value (bound)", "", "", "y: value (bound)", ""]


def test_memory_that_holds_no_input_is_the_cause_of_a_wrong_value() -> None:
    verdicts = [
        failed("nonfinite", "y", "class", "y[0] = nan, float64 0"),
        failed("bound", "y", "value", "y[1] = 2", ratio=2.0),
        failed("memory", "y", "uninitialised", "y[0] = nan, and 0"),
        failed("memory", "y", "overrun", "wrote beside y"),
        failed("algebra", "y", "scaled x", "scaled x: y[0] = nan"),
    ]
    lines = replay_table(CASE, "mine", verdicts).splitlines()
    cause = "uninitialised (memory)"
    assert f"  FAILS: y: {cause}, overrun (memory); may follow from {cause}: nonfinite, bound, algebra" in lines
    assert f"  nonfinite   y: FAIL, may follow from {cause}: y[0] = nan, float64 0" in lines


def test_a_run_that_fails_again_by_itself_is_listed_with_the_first() -> None:
    wrote = failed("memory", "y", "overrun", "wrote beside y: 1 element")
    again = [replace(wrote, message=f"{wrote.message} (run: {run})", run=run) for run in ("repeat", "other poison")]
    other = failed("ordering", "y", "race", "race: y[0] = 1 together")
    lines = replay_table(CASE, "mine", [wrote, *again, other, replace(other, message="race: y[0] = 1 in turn")]).splitlines()
    at = lines.index("  memory      y: FAIL: wrote beside y: 1 element")
    assert lines[at + 1] == "      again in 2 further runs: repeat; other poison"
    assert sum("wrote beside" in line for line in lines) == 1
    assert sum("FAIL: race" in line for line in lines) == 2
    assert "  memory      3 fail" in lines
    late = replay_table(CASE, "mine", again).splitlines()
    assert "  memory      y: FAIL: wrote beside y: 1 element (run: repeat)" in late
    assert "      again in a further run: other poison" in late


def test_it_fits_a_terminal_whatever_a_kernel_says() -> None:
    long = "a kernel said\n" + "much " * 100
    tiny = Errors(largest=1e-300, mean=1e-300, bound=1e-300, judged=10**9, elements=10**10)
    verdicts = [
        replace(failed("bound", "dgamma", "value", long, ratio=1e-300), errors=tiny),
        not_applicable("bound", "h_mix", long),
        failed("liveness", "forward", "raises ValueError", long),
        passed("memory", "inputs"),
    ]
    lines = replay_table(CASE, "mine", verdicts).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(lines).count("much") == 300
    row = next(line for line in lines if line.startswith("  dgamma"))
    assert row.endswith("FAIL, a bound for 1000000000 of 10000000000 elements")
    assert next(line for line in lines if "h_mix" in line).split()[1:7] == ["-", "-", "-", "-", "NOT", "APPLICABLE:"]


def test_a_death_has_no_table_of_outputs() -> None:
    table = replay_table(CASE, "mine", [failed("liveness", "process", "SIGSEGV", "its process ended")])
    assert table.splitlines()[-2:] == ["  liveness    process: FAIL: its process ended", "  liveness    1 fail"]


def test_a_line_of_json_has_a_verdict_and_null_for_what_is_not_finite() -> None:
    tiny = Errors(largest=INF, mean=0.5, bound=None, judged=1, elements=2)
    verdicts = [replace(failed("bound", "dx", "value", "dx[0] = inf", ratio=INF), errors=tiny), passed("memory", "inputs")]
    first, second = map(json.loads, replay_lines(CASE, "mine", verdicts).splitlines())
    assert (first["implementation"], first["case"], first["oracle"]) == ("mine", CASE.id, "bound")
    assert (first["subject"], first["status"], first["symptom"], first["ratio"]) == ("dx", "fail", "value", None)
    assert first["errors"] == {"largest": None, "mean": 0.5, "bound": None, "judged": 1, "elements": 2}
    assert (second["status"], second["errors"]) == ("pass", None)


@pytest.mark.parametrize("depth", [Level.DRAWN, Level.FULL])
def test_nothing_is_measured_that_nobody_asked_for(depth: Level) -> None:
    verdicts = check(load("manual"), CASE, "cpu", depth).verdicts
    assert not [one for one in verdicts if one.errors is not None or one.status is Status.FAIL]


def test_a_number_right_below_a_rounder_one_is_shown_so() -> None:
    below, elements = 8 * (1 - 2.0**-24), (((0, 0, 0, 0), 2.0**-100), ((0, 0, 0, 1), INF))
    recipe = replace(CASE.tensors["x"], kind="constant", scale=below, literals=elements)
    text = details(replace(CASE, tensors={**CASE.tensors, "x": recipe}))
    assert "x: constant, scale 7.99999952, [0, 0, 0, 0] = 7.88861e-31, [0, 0, 0, 1] = inf;" in text
