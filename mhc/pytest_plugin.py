"""The pytest plugin: the options, the test that runs, and a summary of what was not judged (docs/pytest.md).

pytest loads it for everybody who has the package installed, so it imports neither PyTorch nor Hypothesis. What checks a
kernel is in `mhc.testing`, which only a test imports.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOT_JUDGED = "mhc not judged"
"""The property of a test that says what was not judged."""

_running: list[pytest.Item] = []


def running() -> pytest.Item | None:
    """Return the test that runs now; None where there is none, or where this plugin is not loaded."""
    return _running[-1] if _running else None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mhc", "mhc: kernels against their references")
    group.addoption(
        "--mhc-device",
        choices=("cpu", "cuda"),
        help="where kernels run; others are skipped. Default: the first device of each implementation that is there",
    )
    group.addoption(
        "--mhc-cases",
        type=_count,
        metavar="N",
        help="cases to draw for each implementation. Default: what the test says, else max_examples of Hypothesis' profile",
    )
    group.addoption(
        "--mhc-regressions",
        metavar="FOLDER",
        help="where minimal cases are saved, and replayed from. Default: the ini option mhc_regressions",
    )
    parser.addini(
        "mhc_regressions",
        default="tests/regressions",
        help="where minimal cases are saved, and replayed from; below rootdir. Default: tests/regressions",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError  # argparse names the option and the value
    return int(text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _set([item]):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No test runs while tests are collected, even where pytest itself is tested."""
    with _set([]):
        return (yield)


@contextmanager
def _set(now: list[pytest.Item]) -> Iterator[None]:
    before = [*_running]
    _running[:] = now
    try:
        yield
    finally:
        _running[:] = before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write, for each test that passed, what of it was not judged."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == NOT_JUDGED:
                terminalreporter.write_line(f"not judged: {report.nodeid}: {value}")
