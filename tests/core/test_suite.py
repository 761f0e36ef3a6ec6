"""The suite's own ways: `--device`, Hypothesis profiles, the tier that is left out, and what a failing test prints."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import finding, read_case
from mhc.oracles.verdict import failed
from mhc.registry import built_in, load
from tests.support.device import header, place, prepare
from tests.support.helpers import ROOT, failure_text, scaled_case

TERMINAL = 120
MUTANT = "post_without_its_2"


def run_pytest(
    folder: Path, *arguments: str, plugin: str = "", variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, from `folder`, on this suite's configuration; `plugin` is source imported early."""
    (folder / "early.py").write_text(plugin, encoding="utf-8")
    # Where CI is set, pytest does not cut its summary to the terminal.
    ours = ("PYTEST", "TRITON", "CUDA", "CI", "BUILD_NUMBER")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": str(TERMINAL), **(variables or {})}
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "early", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# A GPU for whoever asks PyTorch, unless it is hidden; nothing can run on it.
PRETENDED_GPU = """
import os, torch
torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != ""
torch.cuda.get_device_name = lambda: "a pretended GPU"
"""


@pytest.mark.slow
def test_cpu_hides_a_gpu_and_interprets_triton_in_every_worker_of_xdist(tmp_path: Path) -> None:
    """One file by its name, whose tests fail where Triton was imported without its variable."""
    chosen = [f"{ROOT}/tests/fuzz/test_regressions.py", "-k", "near-overflow and float16 and triton"]
    done = run_pytest(tmp_path, "--device", "cpu", "-n", "1", "-v", *chosen, plugin=PRETENDED_GPU)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"PASSED \S+\[float16-dh-in-near-overflow-(\S+)\]", done.stdout)
    assert passed == ["triton-interpreted"]
    assert "device: cpu (no GPU)\n" in done.stdout
    assert "not tested (runs on a GPU only, --device cpu): triton, tilelang\n" in done.stdout


NAMES = built_in("mhc_pre")


@pytest.mark.parametrize(
    ("asked", "gpu", "interpreted", "places"),
    [
        ("auto", False, True, ("", "cpu", "cpu", "cpu", "cpu")),
        ("auto", True, False, ("cuda", "cpu", "cpu", "cpu", "")),
        ("cpu", False, True, ("", "cpu", "cpu", "cpu", "cpu")),
        ("cuda", True, False, ("cuda", "cuda", "cuda", "", "")),
    ],
)
def test_where_each_is_tested(asked: str, gpu: bool, interpreted: bool, places: tuple[str, ...]) -> None:
    variables = {"TRITON_INTERPRET": "1"} if interpreted else {}
    for name, wanted in zip(("triton", "manual", "tir", "tilelang-c", "triton-interpreted"), places, strict=True):
        where = place(NAMES[name], asked, gpu=gpu, variables=variables)
        assert (where.device, bool(where.reason)) == (wanted, not wanted), name


def test_the_header_says_why() -> None:
    lines = header(NAMES.values(), "auto", gpu=False, variables={})
    assert lines[0] == "device: auto (no GPU)"
    assert "tested on cpu: manual, golden, tilelang-c, tir" in lines
    assert "not tested (runs on a GPU only, PyTorch sees no GPU): triton, tilelang" in lines
    assert "not tested (needs TRITON_INTERPRET=1, tested through workers): triton-interpreted" in lines


def test_what_is_asked_for_becomes_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for asked, wanted in (("auto", {}), ("cpu", {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}), ("cuda", {})):
        variables: dict[str, str] = {}
        prepare(asked, variables)
        assert variables == wanted
    interpreted = {"TRITON_INTERPRET": "1"}
    prepare("cuda", interpreted)
    assert interpreted == {}
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    prepare("auto", interpreted)
    assert interpreted == {"TRITON_INTERPRET": "1"}
    with pytest.raises(pytest.UsageError, match="--device cuda: PyTorch sees no CUDA device here"):
        prepare("cuda", {})


PROFILES = """
from hypothesis import settings
from tests.support import profiles
profiles.register()
print(settings.get_current_profile_name())
for name in ("dev", "ci", "nightly"):
    one = settings.get_profile(name)
    print(name, one.max_examples, one.derandomize, one.database is None, one.deadline)
"""


@pytest.mark.parametrize(("variables", "loaded"), [({}, "dev"), ({"CI": "true"}, "ci")], ids=["at home", "in CI"])
def test_profiles(variables: dict[str, str], loaded: str, tmp_path: Path) -> None:
    """CI draws the same cases each time; nightly other ones each night, wherever it runs."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", PROFILES]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        loaded,
        "dev 40 False False None",
        "ci 40 True True None",
        "nightly 2000 False False None",
    ]


# The registry, as tests.support.helpers will read it, holds one wrong implementation.
WRONG_REGISTRY = f"""
def pytest_sessionstart():
    import mhc.registry
    mhc.registry.BUILT_IN = (mhc.registry.load("mhc.oracles.mutants.load:{MUTANT}"),)
"""


def last_lines(output: str, title: str) -> Sequence[str]:
    """What pytest prints below a failing test's title, up to its summary."""
    _, _, rest = output.partition(f" {title} ")
    return rest.partition("\n")[2].partition("\n===")[0].splitlines()


@pytest.mark.slow
def test_a_failure_has_the_place_the_values_the_bound_and_a_command_that_shows_it_again(tmp_path: Path) -> None:
    (tmp_path / "fuzz_reports").mkdir()
    test = f"{ROOT}/tests/oracles/test_generated.py"
    chosen = ("--device", "cpu", "--all", test, "-k", "test_nothing_is_found and -0-usual]")
    done = run_pytest(tmp_path, *chosen, plugin=WRONG_REGISTRY)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    lines = last_lines(done.stdout, f"test_nothing_is_found[{MUTANT}-0-usual]")
    assert len(lines) <= 5, done.stdout
    assert max(map(len, lines)) <= TERMINAL
    number = r"-?\d[\d.e+-]*"
    found, where, case, command = lines[:4]
    assert found == f"FOUND {MUTANT}: h_post: value (bound)"
    assert re.fullmatch(rf"    h_post\[0, 0, 0\] = {number}, float64 {number}, bound {number}", where)
    assert case.startswith("    pre-B1S1n1D1-")
    assert command.startswith("    python -m mhc.fuzz replay fuzz_reports/")
    summary = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [len(line) <= TERMINAL for line in summary] == [True]
    replayed, spec = read_case(tmp_path / command.split()[4])
    assert spec is not None
    assert where.strip() in {one.message for one in check(load(spec), replayed, "cpu", Level.PLAIN).verdicts}


def test_a_long_message_is_cut_and_the_command_never() -> None:
    """The message of an exception can be of any length; a path too."""
    verdict = failed("liveness", "forward", "raises InterpreterError", f"forward raised InterpreterError: {'word ' * 200}")
    case = scaled_case(n=2)
    path = Path("a/folder/whose/name/is" + "/long" * 30) / "finding.json"
    lines = failure_text(finding("manual", load("manual"), case, verdict), path, "cuda").splitlines()
    assert lines[0] == "FOUND manual: forward: raises InterpreterError (liveness)"
    assert max(map(len, lines[:-1])) <= TERMINAL
    assert lines[3].endswith(" word ...")
    assert lines[4:] == [f"    {case.id}", f"    python -m mhc.fuzz replay {path} --device cuda"]
