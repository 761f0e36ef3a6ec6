"""What is told while a campaign runs and of a replay: a finding's file and lines, a replay's table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mhc.case import Case
from mhc.fuzz.finding import Finding
from mhc.fuzz.report.words import bounded, replay_command
from oracles.verdict import Status, Verdict

_IN_FULL = "bound"


def write_finding(folder: Path, found: Finding) -> Path:
    """Save a finding as `FINGERPRINT.json` in `folder`."""
    path = folder / f"{found.fingerprint.id}.json"
    path.write_text(found.to_json(), encoding="utf-8")
    return path


def describe(found: Finding, path: Path, device: str = "cpu") -> str:
    """Where, got, wanted, bound, and the one command that shows it again."""
    message = bounded(found.message).replace("\n", "\n    ")
    return f"FOUND {found.fingerprint}\n    {message}\n    {found.case.id}\n    {replay_command(path, device)}"


def replay_table(case: Case, implementation: str, verdicts: Sequence[Verdict]) -> str:
    """A line for each output's bound and for whatever fails, with the largest |error| / bound; of the rest, counts."""
    lines = [f"{implementation} on {case.id}"]
    for verdict in verdicts:
        if verdict.oracle != _IN_FULL and verdict.status is not Status.FAIL:
            continue
        ratio = "" if verdict.ratio is None else f"{verdict.ratio:.3g}"
        status = verdict.status.name.replace("_", " ")
        lines.append(f"  {verdict.oracle:11} {verdict.subject:8} {ratio:>8}  {status:14} {verdict.message}".rstrip())
    counts = Counter((verdict.oracle, verdict.status) for verdict in verdicts)
    for oracle in dict.fromkeys(verdict.oracle for verdict in verdicts if verdict.oracle != _IN_FULL):
        told = [f"{counts[oracle, status]} {status.value}" for status in Status if counts[oracle, status]]
        lines.append(f"  {oracle:11} {', '.join(told)}")
    return "\n".join(lines)
