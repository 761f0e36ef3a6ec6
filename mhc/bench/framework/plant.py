"""Plants faults in copies of this project, one at a time, and runs the tests that execute the line.

First each test module runs once, unedited, which shows the lines that each of its tests executes (`trace`). A fault is
then given to these tests, the quickest first, until one fails. Nothing is written in the folder where the project is.
"""

import ast
import hashlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path

from mhc.bench.framework import trace
from mhc.bench.framework.faults import Fault

COPIED = ("mhc", "oracles", "strategies", "tests", "docs", "pyproject.toml", "README.md", "README.zh.md", "Makefile")
MODULE_SECONDS = 150.0
"""That a test module gets to be measured; tests that it does not come to are not used."""
LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("oracles/test_generated", "fuzz/test_regressions"), "drawn and replayed cases: minutes of kernels"),
    "oracles/test_pairs::test_no_two_are_too_far_apart": "drawn cases: minutes of kernels",
    **dict.fromkeys(
        ("operators/test_triton", "operators/test_triton_aot", "operators/test_tir"), "about kernels; compiles for long"
    ),
    **dict.fromkeys(
        ("core/test_wheel", "core/test_readme", "core/test_suite", "operators/test_sanitizer"),
        "about packaging, documents and pytest",
    ),
    **dict.fromkeys(
        ("bench/test_kernels", "bench/test_throughput", "bench/test_minimal", "bench/test_soak"),
        "about the benchmarks themselves",
    ),
    "fuzz/test_misbehaving": "a campaign of half a minute",
    **dict.fromkeys(
        ("fuzz/test_report_browser", "operators/test_liger_example", "upstream/test_interpreters"),
        "needs what is not always there",
    ),
}
"""Test modules, or single tests, that are never run here, besides `test_tilelang*`, which compile: with the reason."""

_SESSION = ("-q", "-n", "0", "-p", "no:cacheprovider", "--device", "cpu")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[| - |$)", re.MULTILINE)
_SUMMARY = re.compile(r"^\d+ (?:passed|skipped|xfailed|deselected)\b.* in [\d.]+s", re.MULTILINE)
CUT_OFF = "pytest ended without a summary"
"""Why a run is taken as failed whose exit status is 0: a process that exits in the middle of a test runs no further one."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The lines that a test module's tests execute.

    Attributes:
        name: the test module, relative to the root.
        tests: seconds by test function, all its parameters together; those that passed.
        lines: by test function and target, the lines it executes in its call; "" for what all of them share.
        failed: the functions that fail unedited, and take no part.
    """

    name: str
    tests: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    failed: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The outcome of a fault.

    Attributes:
        name: the fault's. status: killed, hung (the tests did not end, which a person sees as well), survived, or uncovered:
            no test executes the line. by: the test that failed. tests: how many covering ones were run. seconds: it took.
    """

    name: str
    status: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return self.status in {"killed", "hung"}


def digest(root: Path) -> int:
    """Return a number that changes with any Python file that is copied."""
    text = hashlib.sha256()
    for name in COPIED[:4]:
        for path in sorted((root / name).rglob("*.py")):
            text.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return int(text.hexdigest()[:12], 16)


def usable_tests(root: Path) -> list[str]:
    """Return the test modules that may be run."""
    folder = root / "tests"
    found = sorted(one.relative_to(folder).with_suffix("") for one in folder.rglob("test_*.py"))
    return [
        f"tests/{one}.py" for one in found if one.as_posix() not in LEFT_OUT and not one.stem.startswith("test_tilelang")
    ]


Copies = queue.SimpleQueue[Path]
"""Copies of the project that are not in use."""


def make_copies(root: Path, place: Path, count: int) -> Copies:
    """Copy the project into a temporary folder, so many times."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == root
        return [name for name in names if name == "__pycache__" or (top and name not in COPIED)]

    copies = Copies()
    for number in range(count):
        copy = shutil.copytree(root, place / f"copy{number}", ignore=ignored, symlinks=True)
        (copy / "fuzz_reports").mkdir()
        shutil.copy2(trace.__file__, copy / "sitecustomize.py")  # which Python imports as it starts
        copies.put(copy)
    return copies


@contextmanager
def lent(copies: Copies) -> Iterator[Path]:
    """Take a copy for the block."""
    copy = copies.get()
    try:
        yield copy
    finally:
        copies.put(copy)


@contextmanager
def _faulty(copy: Path, fault: Fault) -> Iterator[None]:
    """Plant the fault for the block."""
    path = copy / fault.module
    source = path.read_text(encoding="utf-8")
    try:
        _write(path, fault.apply(source))
        yield
    finally:
        _write(path, source)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(path)).unlink(missing_ok=True)  # goes by time and size, and both may be as before


def measure(copy: Path, module: str, targets: Sequence[str]) -> Measured:
    """Run a test module in a copy, and return the lines that its tests execute."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "log")
        log.touch()
        files = os.pathsep.join(str(copy.resolve() / target) for target in targets)
        options = [*_SESSION, "-p", "sitecustomize"]
        options += [f"--deselect=tests/{one.replace('::', '.py::')}" for one in LEFT_OUT if "::" in one]
        _pytest(copy, [*options, module], MODULE_SECONDS, MHC_TRACE_LOG=str(log), MHC_TRACE_FILES=files)
        return read_log(module, targets, log.read_text(encoding="utf-8"))


def read_log(module: str, targets: Sequence[str], text: str) -> Measured:
    """Read the log that `trace` wrote."""
    lines: dict[str, dict[str, set[int]]] = {}
    seconds: dict[str, float] = {}
    outcomes: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    test = ""
    for entry in text.splitlines():
        match entry.split("\t"):
            case ["M", of]:
                test = _function(of)
            case ["L", number, line]:
                lines.setdefault(test, {}).setdefault(targets[int(number)], set()).add(int(line))
            case ["D", of, took, outcome]:
                name = _function(of)
                seconds[name] = seconds.get(name, 0.0) + float(took)
                outcomes[outcome].add(name)
    kept = {name: took for name, took in seconds.items() if name in outcomes["passed"] - outcomes["failed"]}
    numbered = {of: {one: sorted(found) for one, found in by.items()} for of, by in lines.items() if of in kept or not of}
    return Measured(name=module, tests=kept, lines=numbered, failed=sorted(outcomes["failed"]))


def covering(fault: Fault, measures: Iterable[Measured], root: Path, budget: float) -> list[str]:
    """Return the tests that execute a fault's line: those of modules that import its module first, then the quickest.

    A line that runs when its module is imported is executed by every test. It is given to those that execute a function
    which reads a name that the line defines, to those of test modules that import the module, and to those in the folder of
    tests that has the folder's name.

    Args:
        budget: seconds of tests, as measured unedited, at most; the first one is always taken.
    """
    folder = _folder_of_tests(fault.module)
    wanted = _readers(fault, root) if fault.top else {fault.line}
    ranked: list[tuple[tuple[int, int, float], str]] = []
    for one in measures:
        close = _imports(root / one.name, fault.module)
        shared = wanted & set(one.lines.get("", {}).get(fault.module, ()))
        for test, seconds in one.tests.items():
            called = wanted & set(one.lines.get(test, {}).get(fault.module, ()))
            if called or shared or (fault.top and (close or one.name.startswith(folder))):
                ranked.append(((0 if close else 1, 0 if called else 1, seconds), test))
    chosen: list[str] = []
    spent = 0.0
    for (_, _, seconds), test in sorted(ranked):
        if not chosen or spent + seconds <= budget:
            chosen.append(test)
            spent += seconds
    return chosen


def _folder_of_tests(module: str) -> str:
    """Return the folder of a target's tests: tests/oracles, tests/fuzz; tests/core for modules beside `mhc`'s folders."""
    first, *rest = module.removeprefix("mhc/").split("/")
    return f"tests/{first}/" if rest else "tests/core/"


def attempt(copies: Copies, fault: Fault, tests: Sequence[str], expected: float) -> Attempt:
    """Run tests on a copy with the fault until one fails; that one must pass without the fault, or it does not count.

    Args:
        expected: seconds that the tests take on the unedited project.
    """
    began = time.monotonic()
    with lent(copies) as copy:
        status, by = _outcome(copy, fault, list(tests), 60 + 4 * expected) if tests else ("uncovered", "")
    return Attempt(name=fault.name, status=status, by=by, tests=len(tests), seconds=round(time.monotonic() - began, 1))


def _outcome(copy: Path, fault: Fault, tests: list[str], limit: float) -> tuple[str, str]:
    """Return the status of an attempt, and the test that failed."""
    while tests:
        with _faulty(copy, fault):
            status, output = _pytest(copy, [*_SESSION, "-x", *tests], limit)
        if status == 0 and _SUMMARY.search(output):
            return "survived", ""
        if status is None:
            return "hung", ""
        if status == 0:
            healthy, output = _pytest(copy, [*_SESSION, *tests], limit)
            return ("killed", CUT_OFF) if healthy == 0 and _SUMMARY.search(output) else ("uncovered", CUT_OFF)
        named = _FAILED.findall(output)  # a test that runs pytest itself may print others before
        by = next((one for one in named if one in tests), next(iter(named), ""))
        if "::" not in by:  # nothing was run: the fault keeps modules from being imported, or pytest failed by itself
            healthy, _ = _pytest(copy, [*_SESSION, "--collect-only", *tests], limit)
            return "killed" if healthy == 0 else "uncovered", by or (output.strip().splitlines() or [""])[-1][:120]
        alone, _ = _pytest(copy, [*_SESSION, by], limit)
        if alone == 0:
            return "killed", by
        tests.remove(by)  # unsteady
    return "survived", ""


def _function(test: str) -> str:
    """Return a test's id without its parameters: a fault may change those."""
    return test.partition("[")[0]


def _pytest(copy: Path, arguments: Sequence[str], limit: float, **variables: str) -> tuple[int | None, str]:
    """Run pytest in a copy; return its exit status, None after `limit` seconds, and what it wrote."""
    path = os.pathsep.join(str(one) for one in (copy, os.environ.get("PYTHONPATH")) if one)
    environment = {**os.environ, "PYTHONPATH": path, "CI": "true", "OMP_NUM_THREADS": "1", **variables}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
        output.seek(0)
        return status, output.read()


def _readers(fault: Fault, root: Path) -> set[int]:
    """Return the lines of functions that read a name which the fault's line defines, or of that function or class itself."""
    tree = ast.parse((root / fault.module).read_text(encoding="utf-8"))
    lines: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.ClassDef)) and function.name in fault.names:
            lines |= {line for node in function.body for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        elif isinstance(function, ast.FunctionDef):
            inner = [node for statement in function.body for node in ast.walk(statement)]
            lines |= {node.lineno for node in inner if isinstance(node, ast.Name) and node.id in fault.names}
    return lines


def _imports(test: Path, module: str) -> bool:
    """Return whether a test module imports from a target by name."""
    dotted = module.removesuffix(".py").replace("/", ".")
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            if dotted in {node.module, *(f"{node.module}.{one.name}" for one in node.names)}:
                return True
        elif isinstance(node, ast.Import) and any(f"{one.name}.".startswith(f"{dotted}.") for one in node.names):
            return True
    return False
