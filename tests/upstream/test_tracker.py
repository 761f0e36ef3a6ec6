"""The file of known issues, brought up to date from what a tracker says."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mhc.fuzz.cli.main import main
from mhc.upstream.issue import duplicates, tracker

OPEN = {"number": 2, "title": "[BUG][Fuzzer] b", "state": "OPEN", "url": "https://github.com/o/r/issues/2"}


def known(**entry: Any) -> str:
    base = {"repository": "o/r", "number": 1, "state": "open", "title": "a", "symptoms": [], "subjects": [], "keywords": []}
    return json.dumps({"asked": "2026-01-01", "issues": [base | entry]})


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"state": "CLOSED", "url": "https://github.com/o/r/issues/1"}, "closed"),
        ({"state": "MERGED", "url": "https://github.com/o/r/pull/1"}, "merged"),
        ({"state": "closed", "html_url": "https://github.com/o/r/pull/1", "pull_request": {"merged_at": "x"}}, "merged"),
        ({"state": "OPEN", "url": "https://github.com/o/other/issues/1"}, "open"),
    ],
)
def test_states_are_those_of_the_tracker(row: dict[str, Any], state: str) -> None:
    found = tracker.refresh(known(), json.dumps([{"number": 1, "title": "x", **row}]), date(2026, 2, 3))
    document = json.loads(found.text)
    assert document["asked"] == "2026-02-03"
    assert [one["state"] for one in document["issues"]] == [state]
    assert found.changed == (() if state == "open" else (f"o/r#1: open -> {state}",))


def test_open_bugs_without_an_entry_are_named() -> None:
    closed = {**OPEN, "state": "CLOSED", "url": "https://github.com/o/r/issues/3"}
    wish = {**OPEN, "title": "a wish", "url": "https://github.com/o/r/issues/4"}
    found = tracker.refresh(known(), json.dumps([OPEN, closed, wish]), date(2026, 2, 3))
    assert found.missing == ("o/r#2: [BUG][Fuzzer] b",)
    assert tracker.refresh(known(number=2), json.dumps([OPEN]), date(2026, 2, 3)).missing == ()


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '[{"state": "OPEN"}]', '[{"state": "new", "url": "https://github.com/o/r/issues/1"}]', "x"]
)
def test_another_file_is_refused_and_nothing_is_written(text: str, tmp_path: Path) -> None:
    file, own = tmp_path / "tracker.json", tmp_path / "known.json"
    file.write_text(text)
    own.write_text(known())
    done = CliRunner().invoke(main, ["tracker", str(file), "--known", str(own)])
    assert done.exit_code == 2
    assert own.read_text() == known()


def test_the_file_keeps_its_form(tmp_path: Path) -> None:
    file, own = tmp_path / "tracker.json", tmp_path / "known.json"
    file.write_text("[]")
    own.write_text(duplicates.FILE.read_text())
    asked = json.loads(own.read_text())["asked"]
    done = CliRunner().invoke(main, ["tracker", str(file), "--known", str(own), "--asked", asked])
    assert done.exit_code == 0, done.output
    assert own.read_text() == duplicates.FILE.read_text()
