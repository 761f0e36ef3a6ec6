"""PYTEST_DONT_REWRITE. Which lines each test executes: a `sitecustomize` of its own processes and a plugin of pytest.

It is copied to the root of a copy of the project, which is on PYTHONPATH, so that every Python process that a test starts
loads it, and imports nothing of the project. What happens is appended to one file, in the order in which it happens: `M` and
a test's id, or nothing, where its call begins or ends; `L`, the number of a file and a line; `D`, a test's id, seconds and
outcome. A process that is killed loses nothing that way.
"""

import os
import sys
import threading
from types import FrameType
from typing import Any

_FILES = {path: number for number, path in enumerate(os.environ.get("MHC_TRACE_FILES", "").split(os.pathsep))}
_LOG = os.open(os.environ["MHC_TRACE_LOG"], os.O_WRONLY | os.O_APPEND) if "MHC_TRACE_LOG" in os.environ else -1
_seen: set[tuple[int, int]] = set()


def _write(*words: object) -> None:
    os.write(_LOG, ("\t".join(map(str, words)) + "\n").encode())


def _on_frame(frame: FrameType, event: str, argument: object) -> Any:
    number = _FILES.get(frame.f_code.co_filename)
    if number is None:
        return None

    def on_event(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and (number, frame.f_lineno) not in _seen:
            _seen.add((number, frame.f_lineno))
            _write("L", number, frame.f_lineno)
        return on_event

    return on_event


def _mark(test: str) -> None:
    """Attribute what is executed from now on to `test`; with "", to every test of the module."""
    _seen.clear()
    _write("M", test)


def pytest_runtest_setup() -> None:
    """Attribute fixtures to every test: they may serve others too."""
    _mark("")


def pytest_runtest_call(item: Any) -> None:
    """Attribute the call to its test."""
    _mark(item.nodeid)


def pytest_runtest_teardown() -> None:
    """Attribute the end of fixtures to every test."""
    _mark("")


def pytest_runtest_logreport(report: Any) -> None:
    """Log the duration and the outcome."""
    _write("D", report.nodeid, report.duration, report.outcome)


if _LOG >= 0:
    threading.settrace(_on_frame)
    sys.settrace(_on_frame)
