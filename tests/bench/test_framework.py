"""`python -m mhc.bench framework`: which faults it makes, which tests it gives them to, and what it makes of the answers."""

import platform
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.bench.cli import main
from mhc.bench.framework import plant, report
from mhc.bench.framework.faults import Fault, draw, sites, targets
from mhc.bench.framework.plant import (
    Attempt,
    Measured,
    attempt,
    covering,
    lent,
    make_copies,
    measure,
    read_log,
    usable_tests,
)
from mhc.bench.framework.waivers import WAIVERS
from mhc.bench.verbs import today
from tests.support.helpers import ROOT

SOURCE = '''\
"""A docstring: 1 < 2."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sys

LIMIT = 5
NAMES = ("one", "two")
Kind = dict[str, tuple[int, ...]]


def small(values: list[int], most: int = 3, *, loud: bool = False) -> list[int]:
    """Those below: 1 < 2."""
    found = []
    for value in values:
        if value < LIMIT and not loud:
            found.append(value * 2)
    if len(found) > most:
        raise ValueError(f"too many: {len(found) + 1}")
    assert len(found) < 100
    return sorted(found, key=lambda one: -one, reverse=True)
'''


def made(source: str = SOURCE) -> list[str]:
    """Every fault as what was changed."""
    return [f"{one.line} {one.operator}: {one.diff()}" for one in sites("m.py", source, 0)]


def test_which_faults_a_module_has() -> None:
    found = made()
    for wanted in (
        "17 comparison: if value [-<-]{+<=+} LIMIT and not loud:",
        "17 and/or: if value < LIMIT [-and-]{+or+} not loud:",
        "17 negation: if value < LIMIT and [-not -]loud:",
        "18 statement dropped: [-found.append(value * 2)-]{+pass+}",
        "18 arithmetic: found.append(value [-*-]{+/+} 2)",
        "19 comparison: if len(found) [->-]{+>=+} most:",
        '9 element dropped: NAMES = ("[-one", "-]two")',
        "22 keyword dropped: return sorted(found, key=lambda one: -one[-, reverse=True-])",
        "22 truth: return sorted(found, key=lambda one: -one, reverse=[-True-]{+False+})",
        "22 returns nothing: return [-sorted(found, key=lambda one: -one, reverse=True)-]{+[]+}",
        "13 truth: def small(values: list[int], most: int = 3, *, loud: bool = [-False-]{+True+}) -> list[int]:",
    ):
        assert wanted in found
    assert {line.partition(":")[0] for line in found} == {
        *("8 constant", "9 element dropped", "13 constant", "13 truth", "17 comparison", "17 and/or", "17 negation"),
        *("17 branch", "18 statement dropped", "18 arithmetic", "18 constant", "19 comparison", "19 branch"),
        *("22 keyword dropped", "22 truth", "22 returns nothing"),
    }


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("x = a == b", "x = a [-==-]{+!=+} b"),
        ("x = a != b", "x = a [-!=-]{+==+} b"),
        ("x = a is not None", "x = a is [-not -]None"),
        ("x = a in b", "x = a {+not +}in b"),
        ("x = min(a, b)", "x = [-min-]{+max+}(a, b)"),
        ("x = a.any()", "x = a.[-any-]{+all+}()"),
        ("x = a // b", "x = a [-//-]{+*+} b"),
        ("x = [y for y in a if y]", "x = [y for y in a if [-y-]{+True+}]"),
        ("x = (a) < (b)", "x = (a) [-<-]{+<=+} (b)"),
        ("x = 'é' and a < b", "x = 'é' and a [-<-]{+<=+} b"),
    ],
)
def test_faults_of_a_line(line: str, wanted: str) -> None:
    assert wanted in {one.diff() for one in sites("m.py", f"{line}\n", 0)}


@pytest.mark.parametrize(
    "line",
    [
        "x = 'a' + b",
        "raise ValueError(1 + 2)",
        "x = f'{1 + 2}'",
        "assert 1 < 2",
        "x: dict[int, int]",
        "x = zip(a, b, strict=True)",
        "Kind = Callable[[int], tuple[int, ...]] | None",
        "def __str__(self):\n    return 1",
        "'text'",
    ],
)
def test_what_has_no_behaviour_has_no_faults(line: str) -> None:
    assert made(f"{line}\n") == []


def test_a_draw_is_the_same_each_time_and_by_the_number_of_sites() -> None:
    modules = targets(ROOT)
    assert {
        "oracles/bound.py",
        "strategies/shapes.py",
        "mhc/fuzz/minimise/value_passes.py",
        "mhc/upstream/verify.py",
        "oracles/bounds/aten/sums.py",
        "mhc/declaration.py",
    } <= set(modules)
    assert not [one for one in modules if "mutants" in one]
    few = ["oracles/bound.py", "strategies/choice.py", "oracles/bounds/quantum.py"]
    drawn = draw(ROOT, few, 20, 0)
    assert drawn == draw(ROOT, few, 20, 0)
    assert drawn != draw(ROOT, few, 20, 1)
    assert len(drawn) == 20
    counts = {module: sum(one.module == module for one in drawn) for module in few}
    assert counts["oracles/bound.py"] > 2 * counts["oracles/bounds/quantum.py"] > 0
    assert counts["strategies/choice.py"] == 0
    for one in drawn:
        source = (ROOT / one.module).read_text(encoding="utf-8")
        after = one.apply(source)
        compile(after, one.module, "exec")
        changed = [at for at, (a, b) in enumerate(zip(source.splitlines(), after.splitlines(), strict=True), 1) if a != b]
        assert changed == [one.line]
    with pytest.raises(AssertionError, match="the module is another one"):
        drawn[0].apply("\n" * 500)


def test_a_waiver_is_of_a_line_that_is_there() -> None:
    """An entry for a line that was changed since says nothing any more: take it out."""
    for module, edits in WAIVERS.items():
        lines = {_bare(line) for line in (ROOT / module).read_text(encoding="utf-8").splitlines()}
        for edit, reason in edits.items():
            assert _bare(re.sub(r"\{\+.*?\+\}", "", edit)) in lines, (module, edit)
            assert len(reason.split()) > 3


def _bare(text: str) -> str:
    return text.strip().replace("[-", "").replace("-]", "")


LOG = """\
M\t
L\t0\t3
M\ttests/test_m.py::test_one[a]
L\t0\t7
D\ttests/test_m.py::test_one[a]\t0.5\tpassed
M\ttests/test_m.py::test_one[b]
L\t0\t8
L\t1\t2
D\ttests/test_m.py::test_one[b]\t0.25\tpassed
M\ttests/test_m.py::test_two
L\t0\t9
D\ttests/test_m.py::test_two\t1.0\tfailed
D\ttests/test_m.py::test_three\t1.0\tskipped
"""


def test_what_tests_execute_is_read_from_their_log() -> None:
    told = read_log("tests/test_m.py", ["m.py", "n.py"], LOG)
    assert told.tests == {"tests/test_m.py::test_one": 0.75}
    assert told.lines == {"": {"m.py": [3]}, "tests/test_m.py::test_one": {"m.py": [7, 8], "n.py": [2]}}
    assert told.failed == ["tests/test_m.py::test_two"]


CODE = """\
LIMIT = 5


def below(value):
    return value < LIMIT


def above(value):
    return value > 7
"""
TESTS = """\
from mhc.oracles.code import above, below


def test_below():
    print("FAILED test_inner.py::test_inner - as a test that runs pytest prints")
    assert below(4)
    assert not below(5)


def test_above():
    assert above(9)


def test_not_above():
    assert not above(3)


def test_broken():
    assert below(100)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small one, of the same layout."""
    root = tmp_path / "project"
    for name in ("mhc", "oracles", "strategies", "tests", "docs"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    (root / "mhc" / "pytest_plugin.py").touch()  # pytest loads it where the package is installed
    for name in ("mhc/top_level.py", "oracles/__init__.py", "strategies/__init__.py"):
        shutil.copy2(ROOT / name, root / name)
    for name in ("oracles", "strategies"):
        (root / "mhc" / name).symlink_to(f"../{name}")
    (root / "oracles" / "code.py").write_text(CODE, encoding="utf-8")
    (root / "tests" / "test_code.py").write_text(TESTS, encoding="utf-8")
    (root / "tests" / "test_other.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
    (root / "tests" / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--device')\n", encoding="utf-8"
    )
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    return root


@pytest.mark.slow
def test_a_fault_is_given_to_the_tests_that_execute_its_line(project: Path, tmp_path: Path) -> None:
    assert usable_tests(project) == ["tests/test_code.py", "tests/test_other.py"]
    known = targets(project)
    assert known == ["oracles/__init__.py", "oracles/code.py", "strategies/__init__.py"]
    (tmp_path / "copies").mkdir()
    copies = make_copies(project, tmp_path / "copies", 1)
    with lent(copies) as copy:
        seen = [measure(copy, "tests/test_code.py", known)]
    below, above, below_7 = (f"tests/test_code.py::{name}" for name in ("test_below", "test_above", "test_not_above"))
    assert set(seen[0].tests) == {below, above, below_7}
    assert seen[0].failed == ["tests/test_code.py::test_broken"]
    assert seen[0].lines[below]["oracles/code.py"] == [5]
    faults = {one.name: one for one in sites("oracles/code.py", CODE, 0)}
    inner = faults["oracles/code.py:5:16:comparison"]
    outer = faults["oracles/code.py:9:16:comparison"]
    limit = faults["oracles/code.py:1:8:constant"]
    assert covering(inner, seen, project, 40.0) == [below]
    assert set(covering(outer, seen, project, 40.0)) == {above, below_7}
    assert covering(limit, seen, project, 40.0)[0] == below, "it executes what reads the name"
    killed = attempt(copies, inner, [below], 1.0)
    assert (killed.status, killed.by, killed.killed) == ("killed", below, True)
    assert attempt(copies, outer, [], 1.0).status == "uncovered"
    steady = attempt(copies, outer, ["tests/test_code.py::test_broken", above], 1.0)
    assert steady.status == "survived", "what fails without the fault too tells nothing of it"
    unimportable = Fault(
        module="oracles/code.py", line=1, column=0, operator="constant", before="LIMIT = 5", after="LIMIT = [][5]"
    )
    nothing_run = attempt(copies, unimportable, ["tests/test_code.py::test_broken", below], 1.0)
    assert (nothing_run.status, nothing_run.by) == ("killed", "tests/test_code.py"), "though a test fails without it too"
    leaves = replace(outer, after="    return value > 7 or __import__('os')._exit(0)")
    cut_off = attempt(copies, leaves, [below_7], 1.0)
    assert (cut_off.status, cut_off.by) == ("killed", plant.CUT_OFF), "the exit status is 0, but the test did not end"
    assert attempt(copies, inner, [below_7], 1.0).status == "survived"
    with lent(copies) as copy:
        assert (copy / "oracles" / "code.py").read_text(encoding="utf-8") == CODE
    assert (project / "oracles" / "code.py").read_text(encoding="utf-8") == CODE


def test_quick_tests_come_first_and_the_budget_ends_them(project: Path) -> None:
    (fault,) = [one for one in sites("oracles/code.py", CODE, 0) if one.name == "oracles/code.py:5:16:comparison"]
    line = {"oracles/code.py": [5]}
    close = Measured(
        name="tests/test_code.py", tests={"c::slow": 30.0, "c::quick": 1.0}, lines={"c::slow": line, "c::quick": line}
    )
    far = Measured(name="tests/test_other.py", tests={"o::a": 0.5, "o::b": 20.0}, lines={"": line})
    assert covering(fault, [far, close], project, 40.0) == ["c::quick", "c::slow", "o::a"]
    assert covering(fault, [far, close], project, 0.5) == ["c::quick"], "one at least"
    assert covering(fault, [replace(far, lines={})], project, 40.0) == []


def test_a_line_that_an_import_executes_is_given_to_the_tests_of_its_folder_too(project: Path) -> None:
    (fault,) = [one for one in sites("oracles/code.py", CODE, 0) if one.name == "oracles/code.py:1:8:constant"]
    near, far = (Measured(name=f"tests/{folder}/test_x.py", tests={f"{folder}::x": 1.0}) for folder in ("oracles", "fuzz"))
    for one in (near, far):
        (project / one.name).parent.mkdir()
        (project / one.name).write_text("", encoding="utf-8")
    assert covering(fault, [far, near], project, 40.0) == ["oracles::x"]
    beside = {
        module: plant._folder_of_tests(module)
        for module in ("mhc/case.py", "mhc/fuzz/check/check.py", "strategies/reach.py")
    }
    assert [*beside.values()] == ["tests/core/", "tests/fuzz/", "tests/strategies/"]


def some_fault(line: int, before: str, after: str) -> Fault:
    return Fault(module="m.py", line=line, column=0, operator="branch", before=before, after=after)


def test_both_scores_and_every_survivor_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [some_fault(at, f"if a{at} | b:", "if False:") for at in range(1, 6)]
    statuses = ["killed", "hung", "survived", "uncovered"]
    rows = [
        report.Row(fault=one, attempt=Attempt(name=one.name, status=status))
        for one, status in zip(faults, statuses, strict=False)
    ]
    monkeypatch.setattr(report, "WAIVERS", {"m.py": {faults[2].diff(): "it changes nothing"}})
    assert [row.unexplained for row in rows] == [False, False, False, True]
    text = report.render(rows, 1, [], command="python -m x", budget=40.0)
    assert "**2 of 4 faults are noticed by the tests: 50.0%.**" in text
    assert "**66.7%**. 1 more were drawn and not run." in text
    assert "| m.py:3:0:branch | `if [-a3 \\| b-]{+False+}:` | survived, 0 tests | it changes nothing |" in text
    assert "uncovered, 0 tests | not understood yet |" in text
    assert "| branch | 4 | 2 | 50% |" in text
    assert "| m.py | 4 | 2 | 50% |" in text
    assert f"{today()}, Python {platform.python_version()}, torch " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "mhc/cli.py"], "--only mhc/cli.py: no such module; known are "),
        (["--tests", "tests/nothing.py"], "--tests tests/nothing.py: no such test module; known are "),
    ],
)
def test_bad_usage_exits_2_and_says_why(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, ["framework", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_elsewhere_than_in_the_project_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["framework"])
    assert result.exit_code == 2
    assert "is not the project's folder" in result.output
