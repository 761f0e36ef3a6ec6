"""Bring the file of known issues up to date with what a tracker says, from a file that its command line tool wrote."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mhc.files import replace_text

_ADDRESS = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/([1-9]\d*)")
_BUG = "[bug"


@dataclass(frozen=True)
class Refreshed:
    """What a refresh found.

    Attributes:
        text: of the file of known issues, with the states and the day. changed: a line for each entry with another state.
        missing: open bugs of the tracker that have no entry, for a person to read.
    """

    text: str
    changed: tuple[str, ...]
    missing: tuple[str, ...]


def refresh(known: str, tracker: str, asked: date) -> Refreshed:
    """Return the file of known issues with the states that a tracker gives.

    Args:
        known: the text of `known_issues.json`.
        tracker: JSON as `gh issue list --state all --json number,title,state,url` prints it, of pull requests
            likewise, or as GitHub's REST interface returns issues.

    Raises:
        ValueError: `tracker` is something else.
    """
    states = dict(_row(row) for row in _rows(tracker))
    document = json.loads(known)
    changed, named = [], set()
    for one in document["issues"]:
        key = (one["repository"], one["number"])
        named.add(key)
        state, _ = states.get(key, (one["state"], ""))
        if state != one["state"]:
            changed.append(f"{key[0]}#{key[1]}: {one['state']} -> {state}")
            one["state"] = state
    missing = [
        f"{repository}#{number}: {title}"
        for (repository, number), (state, title) in sorted(states.items())
        if state == "open" and title.lower().startswith(_BUG) and (repository, number) not in named
    ]
    rows = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in document["issues"])
    text = f'{{\n  "asked": "{asked.isoformat()}",\n  "issues": [\n{rows}\n  ]\n}}\n'
    return Refreshed(text, tuple(changed), tuple(missing))


def _rows(tracker: str) -> Sequence[Mapping[str, Any]]:
    rows = json.loads(tracker)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a tracker's file must hold a JSON list of issues")
    return rows


def _row(row: Mapping[str, Any]) -> tuple[tuple[str, int], tuple[str, str]]:
    """Return repository and number of an issue, its state and its title."""
    found = _ADDRESS.match(str(row.get("html_url") or row.get("url") or ""))
    state = str(row.get("state", "")).lower()
    if found is None or state not in {"open", "closed", "merged"}:
        raise ValueError(f"an issue must have an address on GitHub and a state, was {json.dumps(row)[:200]}")
    if (row.get("pull_request") or {}).get("merged_at"):
        state = "merged"
    return (found[1], int(found[2])), (state, str(row.get("title", "")))


def refresh_file(path: Path, tracker: Path, asked: date) -> Refreshed:
    """Refresh the file of known issues at `path`."""
    found = refresh(path.read_text(encoding="utf-8"), tracker.read_text(encoding="utf-8"), asked)
    replace_text(path, found.text)
    return found
