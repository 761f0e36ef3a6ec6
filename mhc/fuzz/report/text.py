"""What is told while a campaign runs: a finding's file and lines."""

from pathlib import Path

from mhc.fuzz.finding import Finding
from mhc.fuzz.report.words import bounded, replay_command


def write_finding(folder: Path, found: Finding) -> Path:
    """Save a finding as `FINGERPRINT.json` in `folder`."""
    path = folder / f"{found.fingerprint.id}.json"
    path.write_text(found.to_json(), encoding="utf-8")
    return path


def describe(found: Finding, path: Path, device: str = "cpu") -> str:
    """Where, got, wanted, bound, and the one command that shows it again."""
    message = bounded(found.message).replace("\n", "\n    ")
    return f"FOUND {found.fingerprint}\n    {message}\n    {found.case.id}\n    {replay_command(path, device)}"
