"""Describe findings and faults while a campaign runs, and write a finding's file."""

from pathlib import Path

from mhc.files import replace_text
from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.report.words import as_told, bounded, details, replay_command
from mhc.oracles import precision


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
    """Return that a finding is gone, since another case, of which it told, is wrong by itself, which is another one."""
    which = "which has the gate's inputs" if drawn.fingerprint.oracle == precision.NAME else "which ran after its case"
    other = f"{found.case.id}, {which}, is wrong by itself: {found.fingerprint}"
    return f"DROPPED {as_told(drawn).fingerprint}\n    {other}"


def describe(found: Finding, path: Path, device: str = "cpu", *, minimal: bool = False) -> str:
    """Return the lines of a finding: where, got, wanted, bound, the case, and the one command that shows it again.

    Args:
        minimal: it is minimised, or did not fail in a new process; then what its case has is listed too.
    """
    told = as_told(found)
    message = bounded(told.message).replace("\n", "\n    ")
    command = replay_command(path, device, found.spec, found.against)
    special = details(found.case) if minimal else ""
    lines = [message, found.case.id, *([special] if special else []), command]
    gone = found.reduction is not None and not found.reduction.reproduced
    heading = "FOUND" if not minimal else "NOT REPRODUCED" if gone else "MINIMAL"
    return f"{heading} {told.fingerprint}\n    " + "\n    ".join(lines)
