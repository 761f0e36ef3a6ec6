"""Not returned is not passed: what was not judged is told by every report, and nothing judged at all is status 2."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from mhc import default_case
from mhc.case import with_sizes
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.main import main
from mhc.fuzz.report import markdown, read
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.page import page
from mhc.fuzz.report.stored_run import Run
from mhc.fuzz.report.unjudged import by_sampling, nothing_judged, refusals, summary, unjudged, why_nothing
from mhc.fuzz.worker.protocol import Checked
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.judge import outcomes
from mhc.oracles.verdict import failed
from tests.fuzz.test_minimise import found
from tests.support.helpers import altered

CASE = default_case(B=1, S=2, n=2, D=3, dtype="float32")
EVERY = [spec.name for spec in (*CASE.table.outputs, *CASE.table.gradients)]


def told(implementation: Any, case: Any = CASE) -> dict[str, str]:
    return outcomes(check(implementation, case, "cpu", Level.PLAIN).verdicts)


def test_what_becomes_of_each_output() -> None:
    assert told(MANUAL) == dict.fromkeys(EVERY, "judged")
    assert told(altered(MANUAL, backward=lambda out, _: (out[0], None, *out[2:])))["dphi"] == "not returned"
    forward_only = told(replace(MANUAL, backward=None))
    assert {forward_only[spec.name] for spec in CASE.table.gradients} == {"not returned"}
    assert {forward_only[spec.name] for spec in CASE.table.outputs} == {"judged"}


def test_what_must_be_none_or_was_not_run_is_not_told_of() -> None:
    bare = default_case(B=1, S=1, n=1, D=2, absent=frozenset({"gamma"}))
    assert set(told(MANUAL, bare)) == {*EVERY} - {"dgamma"}

    def boom(*_: Any, **__: Any) -> Any:
        raise RuntimeError

    assert told(replace(MANUAL, forward=boom)) == {}


def test_what_was_returned_to_no_use() -> None:
    empty = told(MANUAL, with_sizes(CASE, S=0))
    assert empty["h_in"] == "nothing to judge"
    assert empty["dphi"] == "judged"


COUNTS = {
    **{"checked": 812, "judged: dx": 812},
    **{"not returned: dphi": 812, "not returned: dbias": 812},
    **{"not returned: dalpha": 2, "judged: dalpha": 810},
    "nothing to judge: h_in": 5,
    **{"nothing to judge: h_post": 5, "judged: h_post": 1},
}


def test_in_words() -> None:
    assert summary(unjudged(COUNTS)) == (
        "h_in: returned in 5 cases, and there was nothing to judge in any; dphi, dbias: not returned in 812 of 812 cases;"
        " dalpha: not returned in 2 of 812 cases"
    )
    assert summary(unjudged({"judged: dx": 3})) == ""


@pytest.mark.parametrize(
    ("counts", "nothing"),
    [
        ({}, True),
        ({"refused": 4}, True),
        ({"checked": 4, "not returned: dx": 4}, True),
        ({"checked": 4, "nothing to judge: dx": 4}, True),
        ({"checked": 4, "not returned: dx": 4, "failing": 1}, False),
        ({"checked": 4, "not returned: dx": 4, "judged: h_in": 1}, False),
        ({"checked": 4}, False),  # of an older version
    ],
)
def test_when_nothing_was_judged(counts: Mapping[str, float], nothing: bool) -> None:
    assert nothing_judged(counts) == nothing


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({}, "no case ran"),
        ({"refused": 1234}, "1,234 of 1,234 cases refused"),
        ({"refused": 3, "refused because odd D": 3}, "3 of 3 cases refused: odd D (3 cases)"),
        ({"checked": 4, "refused": 2}, "no case ran to its end"),
        ({"checked": 4, "refused": 2, "not returned: dx": 4}, "dx: not returned in 4 of 4 cases"),
    ],
)
def test_why_nothing_was_judged(counts: Mapping[str, float], why: str) -> None:
    assert why_nothing(counts) == why


def test_the_most_frequent_reasons_of_refusals_are_listed() -> None:
    assert refusals({"checked": 4}) == ""
    counts = {f"refused because {reason}": n for reason, n in {"a": 1, "b": 1200, "c": 7, "d": 1, "e": 0}.items()}
    assert refusals(counts) == "b (1,200 cases); c (7 cases); a (1 case); 1 other reason"


def test_outputs_that_no_operator_has_are_told_of_last() -> None:
    counts = {f"not returned: {name}": 1 for name in ("zeta", "alpha", "dphi", "h_in")}
    assert [one.subject for one in unjudged(counts)] == ["h_in", "dphi", "alpha", "zeta"]
    assert [
        (one.missing, one.cases) for one in unjudged({**COUNTS, "judged by sampling: dalpha": 3}) if one.missing == 2
    ] == [(2, 815)]


def test_a_count_of_zero_is_no_count() -> None:
    assert nothing_judged({"checked": 1, "nothing to judge: y": 1, "judged: y": 0})
    assert by_sampling({"judged by sampling: y": 0, "judged: y": 3}) == ""
    assert by_sampling({"judged by sampling: y": 1500.0}) == "y in 1,500 of 1,500 cases"


def campaign(folder: Path, outcomes_: Mapping[str, Mapping[str, str]], *, chosen: bool, failing: str = "") -> Run:
    """A run of some implementations, one case each; without outcomes it was refused."""
    store = Store.create(folder / FILE)
    store.set_meta(implementations=[{"name": name, "spec": name} for name in outcomes_], chosen=chosen)
    wrong = found(failed("bound", "dx", "value", ""))
    for name, told_of in outcomes_.items():
        findings = (wrong,) if name == failing else ()
        store.end(
            0, name, Checked(case=CASE.json, refused="" if told_of else "odd D", outcomes=told_of, findings=findings), 0.5
        )
    store.tell_leg(store.begin_leg(0.0), 1.0, "budget spent")
    run = read(folder, store)
    store.close()
    return run


DX, NONE = {"dx": "judged", "dphi": "not returned"}, {"dx": "not returned"}


@pytest.mark.parametrize(
    ("told_of", "chosen", "status", "empty"),
    [
        ({"a": DX, "b": DX}, True, 0, []),
        ({"a": DX, "b": NONE}, True, 2, ["b"]),
        ({"a": DX, "b": {}}, True, 2, ["b"]),
        ({"a": DX, "b": {}}, False, 0, ["b"]),
        ({"a": NONE, "b": {}}, False, 2, ["a", "b"]),
    ],
    ids=["something of each", "none returned", "all refused", "not asked for by name", "nothing at all"],
)
def test_the_status(tmp_path: Path, told_of: Any, chosen: bool, status: int, empty: list[str]) -> None:
    run = campaign(tmp_path, told_of, chosen=chosen)
    assert (run.status, run.empty) == (status, empty)
    result = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert result.exit_code == status
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == empty


def test_the_headline_says_where_most_cases_were_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)
    store.set_meta(implementations=[{"name": "mine", "spec": "mine"}], chosen=True)
    for at, refused in enumerate(("", "odd D", "odd D")):
        judged = {} if refused else {"dx": "judged"}
        store.end(at, "mine", Checked(case=CASE.json, refused=refused, outcomes=judged, findings=()), 0.5)
    store.tell_leg(store.begin_leg(0.0), 1.0, "budget spent")
    run = read(tmp_path, store)
    store.close()
    assert run.outcome == ("partly", "No findings in 3 cases in 1 s; most cases of mine were refused")


def test_every_report_says_what_was_not_judged(tmp_path: Path) -> None:
    run = campaign(tmp_path, {"mine": DX, "other": {}}, chosen=False)
    assert run.outcome == ("partly", "No findings in 2 cases in 1 s; not everything was judged")
    line = "dphi: not returned in 1 of 1 cases"
    assert markdown(run).splitlines()[-2:] == [
        f"Not judged: mine: {line}.",
        "Not judged: other: nothing was judged: 1 of 1 cases refused: odd D (1 case).",
    ]
    assert line in page(run)
    assert "nothing was judged: 1 of 1 cases refused" in page(run)
    root = ET.fromstring(junit(run).partition("\n")[2])
    (test,) = [one for one in root.iter("testcase") if one.get("name") == "dphi was judged"]
    assert test.get("classname") == "mhc.fuzz.mine"
    assert {one.get("name"): one.get("value") for one in test.iter("property")} == {"not returned": "1", "cases": "1"}
    skipped = test.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == line
    assert root.get("skipped") == "2"


def test_where_everything_was_judged_nothing_is_said(tmp_path: Path) -> None:
    run = campaign(tmp_path, {"mine": {"dx": "judged"}}, chosen=True)
    assert run.outcome == ("clean", "No findings in 1 case in 1 s")
    assert "ot judged" not in markdown(run) + page(run) + junit(run)


KERNELS = """
from dataclasses import replace
from mhc import Refused
from mhc.operators.mhc_pre.torch.implementations import MANUAL


def backward(*arguments, **keywords):
    dx, dphi, *others = MANUAL.backward(*arguments, **keywords)
    return dx, None, *others


PARTLY = replace(MANUAL, name="partly", backward=backward)
NOTHING = replace(MANUAL, name="nothing", forward=None, backward=lambda *arguments, **keywords: (None,) * 5)
REFUSES = replace(MANUAL, name="refuses", supports=lambda case: Refused("not today"))
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_campaign_ends_with_what_was_not_judged(kernels: Path, tmp_path: Path) -> None:
    specs = ["--impl", f"{kernels}:PARTLY", "--impl", f"{kernels}:REFUSES"]
    command = [sys.executable, "-m", "mhc.fuzz", "--cases", "10", "--seed", "1", "--workers", "1", *specs]
    done = subprocess.run([*command, "--out", tmp_path / "runs"], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "Not judged: partly: dphi: not returned in 10 of 10 cases.",
        "Not judged: refuses: nothing was judged: 10 of 10 cases refused: not today (10 cases).",
    ]
    assert done.stderr == "refuses: nothing was judged: 10 of 10 cases refused: not today (10 cases)\n"


@pytest.mark.parametrize(("name", "status"), [("PARTLY", 0), ("NOTHING", 2), ("REFUSES", 2)])
def test_a_replay_says_where_nothing_was_judged(kernels: Path, tmp_path: Path, name: str, status: int) -> None:
    case = tmp_path / "case.json"
    case.write_text(CASE.to_json(), encoding="utf-8")
    result = CliRunner().invoke(main, ["replay", str(case), "--impl", f"{kernels}:{name}"])
    assert result.exit_code == status, result.output
    assert result.stderr == (f"{name.lower()}: nothing was judged\n" if status else "")
    if name == "PARTLY":
        assert "NOT APPLICABLE: not returned" in result.stdout


def test_what_was_judged_with_a_sampled_tolerance_is_told() -> None:
    counts = {"checked": 12, "judged: y": 7, "judged by sampling: y": 5, "judged by sampling: dx": 12}
    assert by_sampling(counts) == "y in 5 of 12 cases, dx in 12 of 12 cases"
    assert unjudged(counts) == []
    assert not nothing_judged({"checked": 1, "judged by sampling: y": 1})
    assert nothing_judged({"checked": 1, "nothing to judge: y": 1})


TF32_FILE = """
import torch
from mhc import Implementation, operator

@operator(x="[T, K] float32", w="[N, K] float32", K=(8, 512))
def product(x, w):
    return x @ w.T

def cut(value):
    return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)

def forward(x, w):
    return cut(x) @ cut(w).T

def backward(x, w, dy):
    return cut(dy) @ cut(w), cut(dy).T @ cut(x)

SILENT = Implementation(name="silent", operator=product, forward=forward, backward=backward)
HONEST = Implementation(
    name="honest", operator=product, forward=forward, backward=backward, precision={"matmul": "tf32"}
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("SILENT", 1), ("HONEST", 0)])
def test_less_precision_is_no_finding_where_it_is_declared_and_the_report_says_so(
    tmp_path: Path, name: str, status: int
) -> None:
    path = tmp_path / "tf32.py"
    path.write_text(TF32_FILE, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mhc.fuzz",
        "--cases",
        "20",
        "--seed",
        "1",
        "--workers",
        "1",
        "--impl",
        f"{path}:{name}",
    ]
    done = subprocess.run([*command, "--out", tmp_path / "runs"], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    (summary,) = (tmp_path / "runs").glob("*/summary.md")
    said = "Judged as declared: honest: matmul in tf32." in summary.read_text(encoding="utf-8")
    assert said == (name == "HONEST")
