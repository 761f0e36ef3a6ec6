"""Describe findings and faults while a campaign runs, and write a finding's file."""

from pathlib import Path

from mhc.files import replace_text
from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.report.words import bounded, details, replay_command


def write_finding(folder: Path, found: Finding) -> Path:
    """Save a finding as `FINGERPRINT.json` in `folder`, which is made again if it was removed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.fingerprint.id}.json"
    replace_text(path, found.to_json())
    return path


def describe_fault(fault: FaultRecord) -> str:
    """Return what went wrong with the harness, and on which case; the store has where it was raised."""
    return f"FAULT of the harness: {bounded(fault.line)}"


def describe_other(drawn: Finding, found: Finding) -> str:
    """Return that a finding is gone, since its case is right by itself and wrong after others, which is another one."""
    return f"DROPPED {drawn.fingerprint}\n    {drawn.case.id} is right in a new process: {found.fingerprint}"


def describe(found: Finding, path: Path, device: str = "cpu", *, minimal: bool = False) -> str:
    """Return the lines of a finding: where, got, wanted, bound, the case, and the one command that shows it again.

    Args:
        minimal: it is minimised, or did not fail in a new process; then what its case has is listed too.
    """
    message = bounded(found.message).replace("\n", "\n    ")
    command = replay_command(path, device, found.spec, found.against)
    special = details(found.case) if minimal else ""
    lines = [message, found.case.id, *([special] if special else []), command]
    gone = found.reduction is not None and not found.reduction.reproduced
    heading = "FOUND" if not minimal else "NOT REPRODUCED" if gone else "MINIMAL"
    return f"{heading} {found.fingerprint}\n    " + "\n    ".join(lines)
