"""`python -m mhc.fuzz`: exit codes, findings, replay, worker processes."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mhc import default_case, load
from mhc.fuzz.campaign import backoff
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli import run
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.options import elsewhere
from mhc.fuzz.findings.finding import read_case, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.worker.client import WorkerClient
from mhc.oracles import refusal
from mhc.oracles.verdict import Status
from tests.support.helpers import ROOT

KERNELS = """
import os, time
ENV = os.environ.get("MHC_TEST_ENV")  # read at import, as a DSL would
from dataclasses import replace
from mhc import Implementation, Refused, load

manual = replace(load("manual"), name="mine", backward=None)

def spoilt(when, how):
    def forward(x, *args, **kwargs):
        result = manual.forward(x, *args, **kwargs)
        return how(result) if when(x) else result
    return forward

def wide(x):
    return x.shape[2] >= 2 and x.shape[3] >= 3

GOOD = manual
WRONG = replace(manual, forward=spoilt(wide, lambda r: (r[0], r[1] * 1.001, *r[2:])))
WRONG_IN_FLOAT32 = replace(
    manual, forward=spoilt(lambda x: str(x.dtype) == "torch.float32", lambda r: (r[0], r[1] * 1.001, *r[2:]))
)
ABORTS = replace(manual, forward=spoilt(wide, lambda r: os.abort()))
EXITS = replace(manual, forward=spoilt(wide, lambda r: os._exit(7)))
SLOW = replace(manual, forward=spoilt(lambda x: True, lambda r: time.sleep(0.2) or r))
HANGS = replace(manual, forward=spoilt(lambda x: True, lambda r: time.sleep(600)))
PICKY_WITH_ENV = replace(
    manual,
    env={"MHC_TEST_ENV": "1"},
    forward=spoilt(lambda x: ENV != "1", lambda r: 1 / 0),
    supports=lambda case: Refused("odd D only") if case.sizes["D"] % 2 == 0 else True,
)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


def fuzz(*arguments: object, out: Path | None = None) -> Result:
    options = [] if out is None else ["--out", str(out)]
    return CliRunner().invoke(main, [*options, *map(str, arguments)])


def only_finding(folder: Path) -> tuple[Path, dict[str, object]]:
    (path,) = folder.glob("*/*.json")
    return path, json.loads(path.read_text(encoding="utf-8"))


def test_a_clean_run_exits_0_and_writes_a_summary(kernels: Path, tmp_path: Path) -> None:
    """The outside kernel needs its environment set before it is imported, and refuses some cases, which is no pass."""
    result = fuzz("--cases", 30, "--seed", 3, "--impl", f"{kernels}:PICKY_WITH_ENV", out=tmp_path)
    assert result.exit_code == 0, result.output
    (summary,) = tmp_path.glob("*/summary.md")
    text = summary.read_text(encoding="utf-8")
    assert "30 cases" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| mine |")]
    checked, refused = (int(cell) for cell in row.split("|")[2:4])
    assert checked + refused == 30
    assert min(checked, refused) > 0


def test_a_wrong_value_is_found_once_minimised_saved_and_replayed(kernels: Path, tmp_path: Path) -> None:
    result = fuzz("--cases", 30, "--seed", 2, "--impl", f"{kernels}:WRONG", out=tmp_path / "runs")
    assert result.exit_code == 1, result.output
    path, document = only_finding(tmp_path / "runs")
    fingerprint, case = document["fingerprint"], document["case"]
    assert isinstance(fingerprint, dict)
    assert isinstance(case, dict)
    assert (fingerprint["oracle"], fingerprint["subject"], fingerprint["symptom"]) == ("bound", "h_post", "value")
    assert [case[name] for name in ("B", "S", "n", "D")] == [1, 1, 2, 3]
    command = f"replay {path} --impl {kernels}:WRONG"
    assert f"python -m mhc.fuzz {command}\n" in result.output
    again = fuzz(*command.split())
    assert again.exit_code == 1
    assert "h_post[0, 0, 0] = " in again.output
    lines = [json.loads(line) for line in fuzz(*command.split(), "--json").output.splitlines() if line.startswith("{")]
    assert {one["subject"] for one in lines if one["status"] == "fail" and one["oracle"] == "bound"} == {"h_post"}
    healthy = check(load("manual"), read_case(path)[0], "cpu").verdicts
    assert not [verdict for verdict in healthy if verdict.status is Status.FAIL]


def known_issue(oracle: str = "bound", symptom: str = "value") -> KnownIssue:
    """That `mine` has a wrong h_post."""
    kind = Fingerprint(operator="mhc_pre", implementation="mine", oracle=oracle, subject="h_post", symptom=symptom)
    return KnownIssue(fingerprint=kind, fixture=f"{kind.id}.json", issue="#12", reason="waits for a compiler")


@pytest.mark.parametrize("symptom", ["value", pytest.param("all zero", marks=pytest.mark.slow)])
def test_a_campaign_is_blind_to_what_is_known_and_to_nothing_else(
    symptom: str, kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # with inputs of their own these gates see it too, where those of the case hide it
    others = known_issue("precision", "imprecise"), known_issue("sequence", "wrong after others")
    known_issues = (known_issue(symptom=symptom), *others)
    monkeypatch.setattr("mhc.fuzz.cli.settings.KNOWN_ISSUES", known_issues)
    kept = tmp_path / "fixtures"
    chosen = ("--cases", 40, "--seed", 1, "--workers", 1, "--impl", f"{kernels}:WRONG", "--fixtures", kept)
    result = fuzz(*chosen, out=tmp_path / "runs")
    if symptom == "value":
        assert result.exit_code == 0, result.output
        assert not kept.exists()
        assert not list((tmp_path / "runs").glob("*/*.json"))
        return
    assert result.exit_code == 1, result.output
    path, _ = only_finding(tmp_path / "runs")
    (fixture,) = kept.iterdir()
    found = read_finding(fixture)
    assert found.fingerprint == known_issue().fingerprint
    assert path.name == fixture.name == f"{found.fingerprint.id}.json"
    assert [
        found.operator_case.sizes["B"],
        found.operator_case.sizes["S"],
        found.operator_case.sizes["n"],
        found.operator_case.sizes["D"],
        found.operator_case.dtype,
    ] == [1, 1, 2, 3, "float32"]
    assert found.reduction is not None
    assert found.reduction.stable


def test_a_crash_is_found_and_ends_neither_the_campaign_nor_the_others(kernels: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "runs", tmp_path / "kept"
    chosen = ("--impl", f"{kernels}:ABORTS", "--impl", "manual")
    result = fuzz("--cases", 30, "--seed", 1, *chosen, "--fixtures", kept, out=out)
    assert result.exit_code == 1, result.output
    path, document = only_finding(out)
    fingerprint = document["fingerprint"]
    assert isinstance(fingerprint, dict)
    assert (fingerprint["implementation"], fingerprint["subject"], fingerprint["symptom"]) == ("mine", "process", "SIGABRT")
    assert "| manual | 30 | 0 | 0 |" in result.output
    assert f"fixture {kept / path.name}\n" in result.output, "the summary says what is replayed from now on"
    fixture, whole = read_finding(kept / path.name), read_finding(path)
    assert whole.reduction is not None
    assert fixture == replace(whole, reduction=replace(whole.reduction, steps=()), drawn=None), "without what is for reports"
    assert whole.drawn is not None
    again = fuzz("report", path.parent)
    assert again.exit_code == 1
    assert result.output.endswith(again.output)
    assert "minimal, stable, 3 of 3" in again.output


@pytest.mark.parametrize(
    ("name", "subject", "symptom", "retired"),
    [
        ("EXITS", "process", "exit 7", True),
        ("HANGS", "process", "hang", True),
    ],
)
def test_however_a_kernel_misbehaves_it_is_a_verdict(
    kernels: Path, name: str, subject: str, symptom: str, retired: bool
) -> None:
    worker = WorkerClient(f"{kernels}:{name}", load(f"{kernels}:{name}"), "cpu", limit=1.0)
    worker.start(default_case(n=2, D=3))
    failures = [verdict for verdict in worker.finish() if verdict.status is Status.FAIL]
    worker.stop()
    assert [(verdict.subject, verdict.symptom) for verdict in failures] == [("process", symptom)]
    assert worker.retired


def test_the_limit_is_for_one_run_and_not_for_all_that_the_gates_ask_for(kernels: Path) -> None:
    worker = WorkerClient(f"{kernels}:SLOW", load(f"{kernels}:SLOW"), "cpu", limit=1.5)
    worker.start(default_case(B=1, S=2, n=2, D=3, dtype="float32"), Level.FULL)
    started = time.monotonic()
    verdicts = worker.finish()
    worker.stop()
    assert time.monotonic() - started > worker.limit
    assert not [verdict for verdict in verdicts if verdict.status is Status.FAIL]
    assert not worker.retired


@pytest.mark.parametrize("fits", [True, False])
def test_a_pinned_schedule_that_is_refused_is_dropped_and_the_case_is_judged(fits: bool) -> None:
    """A finding then has the case without it."""

    def forward(*arguments: Any, schedule: object, **keywords: Any) -> Any:
        assert manual.forward is not None
        return manual.forward(*arguments, **keywords)

    manual = load("manual")
    space = {"BLOCK": (16,) if fits else (32,)}
    mine = replace(manual, name="mine", forward=forward, backward=None, schedule=space)
    case = default_case(B=1, S=2, n=2, D=3, schedules={"mine": {"BLOCK": 16}, "other": {"A": 1}})
    judged = check(mine, case, "cpu")
    assert not refusal.refused(judged.verdicts)
    assert any(verdict.oracle == "bound" and verdict.status is Status.PASS for verdict in judged.verdicts)
    assert set(judged.case.schedules) == ({"mine", "other"} if fits else {"other"})
    assert refusal.refused(check(replace(mine, dtypes=("float64",)), case, "cpu").verdicts)


OF_MHC_PRE = "tests/regressions/2177eb16.json"
ON_TRITON = "tests/regressions/48ebb08c.json"
INSTEAD = "; triton-interpreted is the same source and runs on cpu: give --impl triton-interpreted"


def test_what_to_declare_for_another_device_is_said_of_a_kernel_that_was_brought() -> None:
    brought = replace(load("manual"), devices=("cpu",), origin="mine.py:IMPL")
    assert elsewhere(brought, "cuda") == '; where it does, name "cuda" in devices of its record'
    assert "record" not in elsewhere(brought, "cpu") + elsewhere(load("manual"), "cuda")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--impl", "nobody"], "--impl nobody: no such implementation; known are triton, "),
        (["--impl", "maual"], "--impl maual: no such implementation; did you mean manual? Or give FILE.py:NAME"),
        (
            ["--impl", "softmax"],
            "--impl softmax: an operator, whose implementations are softmax.torch, softmax.golden; --op",
        ),
        (
            ["minimise", OF_MHC_PRE, "--impl", "docs/examples/my_kernel.py"],
            "give the name of one too, as in docs/examples/my_kernel.py:IMPL",
        ),
        (["--impl", "absent.py:IMPL"], "--impl absent.py: no such file"),
        (["--cases", "1", "--fixtures", "README.md/here"], "--fixtures README.md/here: [Errno"),
        (["replay", OF_MHC_PRE, "--impl", "softmax.torch"], f"{OF_MHC_PRE} is a case of mhc_pre; softmax.torch computes"),
        (["minimise", OF_MHC_PRE, "--impl", "softmax.torch"], f"{OF_MHC_PRE} is a case of mhc_pre; softmax.torch computes"),
        (["--hours", "1", "--minutes", "1"], "give --hours or --minutes, not both"),
        (["--cases", "0"], "0 is not in the range"),
        (["--memory", "0.2"], "0.2 is not in the range x>=0.5"),
        (["--max-elements", str(1 << 24), "--memory", "2"], "--max-elements 16777216 needs --memory 13.4; a worker has 2.0"),
        (["--device", "cuda"], "PyTorch sees no CUDA device here"),
        (["--impl", "golden", "--device", "cuda"], "PyTorch sees no CUDA device here\n"),
        (["--impl", "triton"], f"--impl triton: triton runs on cuda, not on cpu{INSTEAD}\n"),
        (["--impl", "triton", "--device", "cuda"], f"sees no CUDA device here{INSTEAD} without --device\n"),
        (["--impl", "golden", "--against", "triton"], INSTEAD.replace("--impl", "--against")),
        (["replay", ON_TRITON], f"{ON_TRITON}: found on triton: triton runs on cuda, not on cpu{INSTEAD}\n"),
        (["replay", ON_TRITON, "--device", "cuda"], f"sees no CUDA device here{INSTEAD} without --device\n"),
        (["minimise", ON_TRITON], f"{ON_TRITON}: triton runs on cuda: PyTorch sees no CUDA device here{INSTEAD}\n"),
        (["promote", ON_TRITON, "--device", "cpu"], f"--device cpu: triton runs on cuda{INSTEAD}\n"),
        (["replay", "absent.json"], "does not exist"),
        (["frobnicate"], "No such command"),
    ],
)
def test_bad_usage_exits_2_and_says_why(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(ROOT)
    result = fuzz(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_reference_that_cannot_be_read_exits_2_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "bessel.py").write_text(
        "import torch\nfrom mhc import Implementation, operator\n"
        "@operator(x='[T, D] float32')\n"
        "def bessel(x):\n    return torch.special.bessel_j0(x)\n"
        "IMPL = Implementation(name='mine', operator=bessel, function=lambda x: torch.special.bessel_j0(x))\n",
        encoding="utf-8",
    )
    result = fuzz("--cases", 3, "--impl", tmp_path / "bessel.py:IMPL", out=tmp_path / "runs")
    assert result.exit_code == 2
    assert "the reference bessel cannot be judged: aten.special_bessel_j0.default in " in result.output
    assert "bessel.py:5: no rule derives its error bound" in result.output
    assert not (tmp_path / "runs").exists()


def test_a_reference_whose_gradient_cannot_be_read_is_refused_to_an_implementation_with_a_backward(tmp_path: Path) -> None:
    (tmp_path / "angle.py").write_text(
        "import torch\nfrom mhc import Implementation, operator\n"
        "@operator(x='[T, C] float32', C=(2, 2))\n"
        "def angle(x):\n    return torch.view_as_complex(x).angle()\n"
        "ONE = Implementation(name='one', operator=angle, forward=lambda x: torch.view_as_complex(x.contiguous()).angle())\n"
        "BOTH = Implementation(name='both', operator=angle, function=angle.function)\n",
        encoding="utf-8",
    )
    run._require_readable("--impl", load(f"{tmp_path / 'angle.py'}:ONE"))
    with pytest.raises(click.UsageError, match="the reference angle cannot be judged"):
        run._require_readable("--impl", load(f"{tmp_path / 'angle.py'}:BOTH"))


def test_a_file_that_is_no_case_exits_2_and_names_the_field(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(default_case(n=2).to_json().replace('"n": 2', '"n": 99'), encoding="utf-8")
    result = fuzz("replay", path)
    assert result.exit_code == 2
    assert "n: must be in 1..16, was 99" in result.output


def test_a_report_folder_that_cannot_be_made_exits_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = fuzz("--cases", 1, out=tmp_path / "file")
    assert result.exit_code == 2
    assert f"--out {tmp_path / 'file'}: " in result.output


def test_an_unforeseen_exception_exits_3_and_not_as_a_finding_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in the harness")

    monkeypatch.setattr("mhc.fuzz.cli.main.run_campaign", broken)
    assert fuzz("--cases", 1, out=tmp_path).exit_code == 3


def test_a_fault_of_the_harness_exits_3(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that loads in the main process and not in the worker's."""
    kernels.write_text(
        KERNELS + "import multiprocessing\nassert multiprocessing.parent_process() is None\n", encoding="utf-8"
    )
    monkeypatch.setattr(backoff, "_REST", 0.01)
    result = fuzz("--cases", 5, "--impl", f"{kernels}:GOOD", out=tmp_path)
    assert result.exit_code == 3
    assert "fault of the harness: mine: ImplementationError: " in result.output
    assert "AssertionError" in result.output
    assert "given up: 5 times in a row no case could be judged" in result.output
    (run,) = tmp_path.glob("*-seed*")
    assert '<error message="ImplementationError: ' in (run / "junit.xml").read_text(encoding="utf-8")
    assert fuzz("report", run).exit_code == 3


def test_the_built_in_implementations_of_an_operator_and_of_several(tmp_path: Path) -> None:
    """Each gets cases of its own operator."""
    few = ["--cases", "3", "--workers", "1", "--out", str(tmp_path)]
    done = fuzz("--operator", "softmax", *few)
    assert done.exit_code == 0, done.output
    assert "checking softmax.torch, softmax.golden on cpu" in done.output
    both = fuzz("--impl", "swiglu.golden", "--impl", "manual", *few)
    assert both.exit_code == 0, both.output
    for line in ("| swiglu.golden | 3 | 0 |", "| manual | 3 | 0 |"):
        assert line in both.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operator", "norm"], "'norm' is not one of 'mhc_pre', 'mhc_post'"),
        (["--operator", "softmax", "--impl", "golden"], "give --operator, for its built-in implementations, or --impl"),
        (
            ["--operator", "swiglu", "--against", "golden"],
            "only implementations of one operator are compared; swiglu.torch computes swiglu, golden mhc_pre",
        ),
    ],
)
def test_what_does_not_fit_an_operator_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = fuzz(*arguments, "--out", str(tmp_path))
    assert done.exit_code == 2
    assert message in done.output


def test_the_list_shows_operators() -> None:
    lines = [line.split()[:2] for line in fuzz("list").output.splitlines()]
    assert ["golden", "mhc_pre"] in lines
    assert ["rms_norm.torch", "rms_norm"] in lines
