"""Write a matrix in words and as JSON to an exported folder."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mhc.files import replace_text
from mhc.upstream.issue import text as issue
from mhc.upstream.releases.matrix import Change, Row, State, changes
from mhc.upstream.releases.releases import port

MARKDOWN, JSON = "matrix.md", "matrix.json"
_WIDTH = 80
_SEEN = {
    State.FAILS: "**fails**",
    State.PASSES: "passes",
    State.FLAKY: "**fails** now and then",
    State.OTHER: "something else",
    State.SKIPPED: "skipped",
    State.UNTRIED: "not run",
}


def newest_judged(rows: Sequence[Row]) -> Row | None:
    """Return the newest release that says whether the finding is there."""
    return next((row for row in reversed(rows) if row.state.judged), None)


def text(to: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """Return the section of an issue: where it changed, the table, how the program was changed.

    Args:
        notes: further sentences about the list, such as that a registry could not be asked.
    """
    lines = [*sentences(rows), *notes]
    lines += ["", f"| {to} | | runs that reproduce | seen | with |", "|---|---|---|---|---|"]
    for row in rows:
        how = _SEEN[row.state] + (f": {_cell(row.reason)}" if row.reason else "")
        runs = f"{row.reproduced} of {len(row.outcomes)}" if row.outcomes else ""
        have = ", ".join(f"{name} {version}" for name, version in row.packages.items() if name != to)
        lines.append(f"| {row.version} | {how} | {runs} | {_cell(_seen(row))} | {have} |")
    ported = dict.fromkeys(reason for row in rows for reason in row.ported)
    if ported:
        lines += ["", f"The program is changed for some: {'; '.join(ported)}."]
    installs = [row for row in rows if row.install and row.state.judged]
    if installs:
        lines += ["", f"The last in an environment of its own: `pip install {' '.join(installs[-1].install)}`."]
    return "\n".join(lines) + "\n"


def _seen(row: Row) -> str:
    """Return what was there instead of what is right, in the last run that reproduces."""
    values = [one.values.partition(", actual ")[2] for one in row.outcomes if one.reproduced]
    return values[-1][:_WIDTH] if values else ""


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return sentences that say between which releases the result changed, or that it did not."""
    said = [_sentence(one) for one in changes(rows)] or [_same(rows)]
    untried = [row.version for row in rows if row.state is State.UNTRIED]
    if untried:
        said.append(f"Bisected: {', '.join(untried)} are between two that agree, and were not run.")
    return said


def _sentence(change: Change) -> str:
    before, after = change.before.version, change.after.version
    said = (
        f"Healed: {before} is the last that fails, {after} the first that passes"
        if change.heals
        else (f"Broken: {before} is the last good one, {after} the first bad one")
    )
    return said + (f" ({', '.join(change.between)} between them say nothing)." if change.between else ".")


def _same(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.state.judged]
    if not judged:
        return "No release says whether it is there."
    does = "Fails" if judged[0].state.bad else "Passes"
    if len(judged) == 1:
        return f"{does} on {judged[0].version}, the only one that says anything."
    return f"{does} on all that say anything, {judged[0].version} to {judged[-1].version}."


def document(to: str, need: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the same as JSON."""
    newest = newest_judged(rows)
    return {
        "to": to,
        "needs": need,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "notes": list(notes),
        "newest": None if newest is None else {"version": newest.version, "state": newest.state.value},
        "changes": [
            {"before": one.before.version, "after": one.after.version, "heals": one.heals, "between": list(one.between)}
            for one in changes(rows)
        ],
        "rows": [
            {
                "version": row.version,
                "state": row.state.value,
                "reproduced": row.reproduced,
                "runs": len(row.outcomes),
                "reason": row.reason,
                "values": list(dict.fromkeys(one.values for one in row.outcomes if one.values)),
                "packages": dict(row.packages),
                "ported": list(row.ported),
                "install": list(row.install),
            }
            for row in rows
        ],
    }


def write(folder: Path, to: str, need: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Put a matrix into an exported folder, with the program as the newest release takes it, and compose its issue anew."""
    as_json = document(to, need, rows, notes)
    for old in folder.glob(issue.PORTED.format("*")):
        old.unlink()
    newest = newest_judged(rows)
    if newest is not None and newest.ported:
        ported, _ = port(to, newest.version, (folder / "repro.py").read_text(encoding="utf-8"))
        replace_text(folder / issue.PORTED.format(newest.version), ported)
    replace_text(folder / JSON, json.dumps(as_json, indent=2) + "\n")
    replace_text(folder / MARKDOWN, text(to, rows, notes))
    issue.write(folder)


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
