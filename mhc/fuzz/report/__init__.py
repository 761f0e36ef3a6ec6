"""What a campaign writes for people: a page, a summary for a terminal, JUnit's XML, and a finding's file and lines."""

from mhc.fuzz.report.annotations import annotations, summary
from mhc.fuzz.report.console import describe, describe_fault, describe_other, write_finding
from mhc.fuzz.report.markdown import markdown
from mhc.fuzz.report.snapshot import read, read_folder
from mhc.fuzz.report.stored_run import Run
from mhc.fuzz.report.write import write, write_reports

__all__ = [
    "Run",
    "annotations",
    "describe",
    "describe_fault",
    "describe_other",
    "markdown",
    "read",
    "read_folder",
    "summary",
    "write",
    "write_finding",
    "write_reports",
]
