"""PYTEST_DONT_REWRITE. Which lines each test executes: a `sitecustomize` of its own processes and a plugin of pytest.

It is copied to a folder on PYTHONPATH, so that every Python process that a test starts loads it, and imports nothing of the
project. What happens is appended to one file, in the order in which it happens: `M` and a test's id, or nothing, where its
call begins or ends; `L`, the number of a file and a line; `D`, a test's id, seconds and outcome. A process that is killed
loses nothing that way.
"""

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

_FILES = {path: number for number, path in enumerate(os.environ.get("MHC_TRACE_FILES", "").split(os.pathsep))}
_LOG = os.open(os.environ["MHC_TRACE_LOG"], os.O_WRONLY | os.O_APPEND) if "MHC_TRACE_LOG" in os.environ else -1
_MONITORED = sys.version_info >= (3, 12)
_seen: set[tuple[int, int]] = set()


def _write(*words: object) -> None:
    os.write(_LOG, ("\t".join(map(str, words)) + "\n").encode())


def _hit(number: int, line: int) -> None:
    if (number, line) not in _seen:
        _seen.add((number, line))
        _write("L", number, line)


def _on_line(code: CodeType, line: int) -> object:
    number = _FILES.get(code.co_filename)
    if number is not None:
        _hit(number, line)
    return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]  # once is enough


def _on_frame(frame: FrameType, event: str, argument: object) -> Any:
    del event, argument
    number = _FILES.get(frame.f_code.co_filename)
    if number is None:
        return None

    def on_event(frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event == "line":
            _hit(number, frame.f_lineno)
        return on_event

    return on_event


def _mark(test: str) -> None:
    """Attribute what is executed from now on to `test`; with "", to every test of the module."""
    _seen.clear()
    if _MONITORED:
        sys.monitoring.restart_events()  # type: ignore[attr-defined,unused-ignore]
    _write("M", test)


def pytest_runtest_setup(item: Any) -> None:
    """Attribute fixtures to every test: they may serve others too."""
    del item
    _mark("")


def pytest_runtest_call(item: Any) -> None:
    """Attribute the call to its test."""
    _mark(item.nodeid)


def pytest_runtest_teardown(item: Any) -> None:
    """Attribute the end of fixtures to every test."""
    del item
    _mark("")


def pytest_runtest_logreport(report: Any) -> None:
    """Log the duration and the outcome."""
    _write("D", report.nodeid, report.duration, report.outcome)


if _LOG >= 0:
    if _MONITORED:
        _monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        _monitoring.use_tool_id(_monitoring.COVERAGE_ID, "mhc")
        _monitoring.register_callback(_monitoring.COVERAGE_ID, _monitoring.events.LINE, _on_line)
        _monitoring.set_events(_monitoring.COVERAGE_ID, _monitoring.events.LINE)
    else:
        threading.settrace(_on_frame)
        sys.settrace(_on_frame)
