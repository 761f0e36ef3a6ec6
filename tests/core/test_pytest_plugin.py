"""`@mhc.check` and `@mhc.parametrize` under pytest: what is found, saved and replayed, the options, and what users know."""

import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import mhc
from mhc.fuzz.cli.main import main
from mhc.loading import relative_spec, spec_of
from mhc.pytest_plugin import running
from mhc.registry import BUILT_IN
from tests.support.helpers import ROOT

KERNELS = """
from mhc import Implementation, Refused, operator

@operator(x="[T, D]", D=(1, 64))
def {name}(x):
    return x.float().mean(-1)

def right(x):
    return x.float().sum(-1) / x.shape[-1]

def wrong(x):
    return x[:, :8].float().sum(-1) / x.shape[-1]

IMPL = Implementation(name="mine", operator={name}, function={function})
OTHER = Implementation(name="other", operator={name}, function=right)
GPU = Implementation(name="gpu", operator={name}, function=right, devices=("cuda",))
NEVER = Implementation(name="never", operator={name}, function=right, supports=lambda case: Refused("not today"))
APART = Implementation(name="apart", operator={name}, function={function}, env={{"SOME_SWITCH": "1"}})
"""
"""Each test has an operator of its own: a process knows one operator of a name."""


@pytest.fixture(autouse=True)
def this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that start in another folder import this checkout, and not one that is installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def write(pytester: pytest.Pytester, test: str, name: str, function: str = "right") -> None:
    """Write a file with kernels, and a test that imports it."""
    stem = f"kernels_of_{name}"
    # Python does not read a file anew whose bytecode is of the same second and size, and `right` is as long as `wrong`.
    shutil.rmtree(pytester.path / "__pycache__", ignore_errors=True)
    (pytester.path / f"{stem}.py").write_text(KERNELS.format(name=name, function=function), encoding="utf-8")
    pytester.makepyfile(**{f"test_{name}": f"import mhc, pytest\nimport {stem} as k\n{test}"})


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.syspathinsert(pytester.path)
    return pytester.runpytest_inprocess("-p", "mhc.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments)


CHECKED = "@mhc.check(k.IMPL, cases=100)\ndef test_it(): pass\n"


def test_a_bug_is_minimised_saved_replayed_by_the_printed_command_and_by_the_next_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pytester, CHECKED, "mean_a", "wrong")
    first = run(pytester)
    first.assert_outcomes(failed=1)
    lines = first.outlines[next(n for n, line in enumerate(first.outlines) if line.startswith("MINIMAL ")) :]
    number = r"-?\d[\d.e+-]*"
    assert lines[0] == "MINIMAL mine: y: value (bound)"
    assert re.fullmatch(rf"    y\[0\] = {number}, float64 {number}, bound {number}", lines[1])
    assert lines[2].startswith("    mean_a-T1D9-fp32-")
    (fixture,) = (pytester.path / "tests" / "regressions").iterdir()
    assert lines[3].startswith("    x: ")
    assert lines[4] == f"    python -m mhc.fuzz replay tests/regressions/{fixture.name} --impl kernels_of_mean_a.py:IMPL"
    assert re.match(r"    stable, 3 of 3 in fresh processes; \d+ -> 9 elements", lines[5])
    replayed = CliRunner().invoke(main, shlex.split(lines[4])[3:])
    assert replayed.exit_code == 1, replayed.output
    assert lines[1].strip() in replayed.output

    with monkeypatch.context() as patched:
        patched.setattr("mhc.testing.run.cases_of", None)  # nothing can be drawn: the fixture comes first
        second = run(pytester)
    second.assert_outcomes(failed=1)
    second.stdout.fnmatch_lines(["FOUND AGAIN mine: y: value (bound)", f"*{lines[3].strip()}"])
    before = fixture.read_bytes()
    write(pytester, CHECKED, "mean_a", "right")
    run(pytester, "--mhc-cases=5").assert_outcomes(passed=1)
    assert fixture.read_bytes() == before


ITEMS = """
@mhc.parametrize(k.IMPL, pytest.param(k.OTHER, marks=pytest.mark.skipif(False, reason="")), k.GPU, k.NEVER, cases=3)
def test_all(implementation, tmp_path):
    assert implementation.operator == "mean_b" and tmp_path.exists()
    if implementation.name == "other":
        pytest.skip("as the test says")

class TestIn:
    @mhc.check(k.IMPL)
    def test_it(self):
        pass
"""


def test_one_item_an_implementation_with_readable_names_and_the_options(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    write(pytester, ITEMS, "mean_b")
    pytester.makeini("[pytest]\nmhc_regressions = kept\n")
    pytester.makeconftest(
        "from hypothesis import settings\nsettings.register_profile('few', settings.default, max_examples=4)\n"
    )
    done = run(pytester, "-v", "-rs", "--hypothesis-profile=few", "--hypothesis-seed=7", "--hypothesis-show-statistics")
    done.assert_outcomes(passed=2, failed=1, skipped=2)
    done.stdout.fnmatch_lines_random(
        [
            "*::test_all[[]mine-mean_b[]] PASSED*",
            "*::TestIn::test_it[[]mine-mean_b[]] PASSED*",
            "SKIPPED [[]1[]] test_mean_b.py:*: gpu runs on cuda, and PyTorch sees no CUDA device here",
            "SKIPPED [[]1[]] test_mean_b.py:*: as the test says",
            "never: none of 3 cases was judged: 3 refused: not today",
            "test_mean_b.py::test_all[[]mine-mean_b[]]:",
            "*Stopped because settings.max_examples=3",
            "*Stopped because settings.max_examples=4",
        ]
    )
    few = run(pytester, "-k", "test_it and mine", "--mhc-cases=2", "--mhc-device=cpu", "--hypothesis-show-statistics")
    few.assert_outcomes(passed=1, deselected=4)
    few.stdout.fnmatch_lines(["*Stopped because settings.max_examples=2"])
    run(pytester, "-k", "test_it", "--mhc-device=cuda", "-rs").stdout.fnmatch_lines(["*mine runs on cpu, not on cuda"])
    gpu = run(pytester, "-k", "gpu", "--mhc-device=cuda")
    gpu.stdout.fnmatch_lines(["--mhc-device cuda: PyTorch sees no CUDA device here"])
    run(pytester, "--mhc-cases=0").stderr.fnmatch_lines(["*argument --mhc-cases: invalid _count value: '0'*"])


SEEDED = """
drawn = []
def seen(case):
    drawn.append(case.id)
    return True
from dataclasses import replace
SEEN = replace(k.OTHER, supports=seen)
@mhc.check(SEEN, cases=2)
def test_it(): pass
def teardown_module(): print("DRAWN", *dict.fromkeys(drawn))
"""


def test_the_seed_decides_what_is_drawn(pytester: pytest.Pytester) -> None:
    write(pytester, SEEDED, "mean_c")
    options = [(), (), ("--hypothesis-seed=5",), ("--hypothesis-seed=5",)]
    drawn = [re.findall("DRAWN.*", run(pytester, "-s", *some).stdout.str())[0] for some in options]
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


@pytest.mark.slow
def test_without_its_variables_it_runs_in_a_process_of_its_own(pytester: pytest.Pytester) -> None:
    write(pytester, CHECKED.replace("IMPL", "APART"), "mean_d", "wrong")
    done = run(pytester, "--mhc-cases=20")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["MINIMAL apart: y: value (bound)", "*regressions/*.json --impl kernels_of_mean_d.py:APART"])


WRONG_WAYS = """
def test_in_a_body():
    with pytest.raises(TypeError, match="in a test, call mhc.testing.check"):
        mhc.check(k.IMPL)

test_assigned = mhc.check(k.IMPL)

def test_what_is_decorated():
    from mhc.pytest_plugin import _running
    _running.clear()
    with pytest.raises(TypeError, match="take an mhc.Implementation, was <function"):
        mhc.check(test_in_a_body)
    with pytest.raises(TypeError, match="give at least one"):
        mhc.parametrize()
    with pytest.raises(TypeError, match="decorate a plain function"):
        @mhc.check(k.IMPL)
        class Test: pass
"""


def test_a_check_that_would_never_run_is_an_error(pytester: pytest.Pytester) -> None:
    write(pytester, WRONG_WAYS, "mean_e")
    done = run(pytester)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*fixture 'test' not found"])
    assert running() is not None  # this test, again


def test_fixtures_of_others_are_left_alone_and_a_broken_one_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mhc.testing.run.Run._confirmed", lambda self, small, least: (small, ""))  # in fresh processes
    write(pytester, CHECKED, "mean_f", "wrong")
    folder = pytester.path / "tests" / "regressions"
    run(pytester)
    (fixture,) = folder.iterdir()
    text = fixture.read_text(encoding="utf-8")
    write(pytester, CHECKED.replace("IMPL", "OTHER"), "mean_f", "wrong")
    fixture.write_text(text.replace('"T": 1', '"T": "one"'), encoding="utf-8")
    run(pytester, "--mhc-cases=2").assert_outcomes(passed=1)
    fixture.write_text(text.replace('"implementation": "mine"', '"implementation": "other"'), encoding="utf-8")
    run(pytester, "--mhc-cases=2").assert_outcomes(passed=1)
    fixture.write_text(fixture.read_text(encoding="utf-8").replace('"T": 1', '"T": "one"'), encoding="utf-8")
    run(pytester, "--mhc-cases=2").stdout.fnmatch_lines([f"{fixture}: T: must be*", "*repair it*"])
    fixture.write_text(text.replace('"name": "mean_f"', '"name": "nosuchop"'), encoding="utf-8")
    run(pytester, "--mhc-cases=2").assert_outcomes(passed=1)
    write(pytester, CHECKED, "mean_f", "right")
    unknown = f"{fixture}: operator: 'nosuchop' is not known, and kernels_of_mean_f.py:IMPL is of 'mean_f'"
    run(pytester, "--mhc-cases=2").stdout.fnmatch_lines([unknown, "*repair it*"])
    fixture.write_text(text.replace('"name": "mean_f"', '"name": "rms_norm"'), encoding="utf-8")
    run(pytester, "--mhc-cases=2").assert_outcomes(passed=1)
    (folder / "0.json").write_text("{", encoding="utf-8")
    run(pytester, "--mhc-cases=2").stdout.fnmatch_lines(["*is not JSON*"])


@pytest.mark.slow
def test_the_readme_kernel_in_a_shell_under_xdist_with_nothing_installed_and_nothing_set(tmp_path: Path) -> None:
    """`-p` stands for the entry point. The kernel needs TRITON_INTERPRET, which the process of its own has."""
    text = (ROOT / "docs" / "examples" / "rms_norm.py").read_text(encoding="utf-8")
    assert text.count(" / D ") == 1
    (tmp_path / "norm.py").write_text(text.replace(" / D ", " / BLOCK "), encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n', encoding="utf-8")
    test = "import mhc\nfrom norm import IMPL\n\n@mhc.check(IMPL, cases=60)\ndef test_norm():\n    pass\n"
    (tmp_path / "test_norm.py").write_text(test, encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON", "PYTEST"))}
    variables["PYTHONPATH"] = str(ROOT)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "mhc.pytest_plugin", "-n", "2"]

    def shell(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    done = shell(pytest_)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "MINIMAL mine: y: value (bound)\n    y[0, 0] = 1.99999595, float64 1.73204821, bound 1.98e-06" in done.stdout
    command, *_ = re.findall(r"^ +python (-m mhc\.fuzz replay .*)$", done.stdout, re.MULTILINE)
    replayed = shell([sys.executable, *shlex.split(command)])
    assert replayed.returncode == 1, replayed.stderr
    assert "y[0, 0] = 1.99999595" in replayed.stdout
    (tmp_path / "norm.py").write_text(text, encoding="utf-8")
    fixed = shell([*pytest_, "--mhc-cases=10"])
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr


def test_the_plugin_imports_little() -> None:
    """Everybody in whose environment the package is loads it."""
    code = "import sys, mhc.pytest_plugin; print([one for one in ('torch', 'numpy', 'hypothesis') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names_stay_functions_where_submodules_have_the_same() -> None:
    """A submodule becomes an attribute of its package when it is imported."""
    assert sorted(mhc._MODULE_OF) == sorted(mhc.__all__)
    assert all(hasattr(mhc, name) for name in mhc.__all__)
    for name in ("operator", "reference", "expression"):
        setattr(mhc, name, importlib.import_module(f"mhc.{name}"))
    assert inspect.isfunction(mhc.operator)
    assert inspect.isfunction(mhc.reference)
    assert inspect.ismodule(mhc.expression)
    with pytest.raises(AttributeError, match="module 'mhc' has no attribute 'nothing'"):
        getattr(mhc, "nothing")  # noqa: B009


def test_how_an_implementation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [spec_of(one, BUILT_IN) for one in BUILT_IN[:2]] == [one.name for one in BUILT_IN[:2]]
    text = KERNELS.format(name="mean_g", function="right")
    (tmp_path / "package").mkdir()
    for name, content in (("__init__", ""), ("kernels", text), ("again", "from package.kernels import IMPL")):
        (tmp_path / "package" / f"{name}.py").write_text(content, encoding="utf-8")
    (tmp_path / "beside.py").write_text("from package.kernels import OTHER as MINE", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    beside, again, kernels = map(importlib.import_module, ("beside", "package.again", "package.kernels"))
    assert spec_of(kernels.IMPL, (), last="package.again") == "package.kernels:IMPL"
    assert spec_of(again.IMPL, (), last="package.kernels") == "package.again:IMPL"
    assert spec_of(beside.MINE, (), last="package.kernels") == f"{tmp_path}/beside.py:MINE"
    assert spec_of(mhc.Implementation(name="no", operator=kernels.mean_g, function=kernels.right), ()) is None
    assert relative_spec(f"{tmp_path}/beside.py:MINE", tmp_path / "package") == "../beside.py:MINE"
    assert relative_spec("package.kernels:IMPL", tmp_path) == "package.kernels:IMPL"
