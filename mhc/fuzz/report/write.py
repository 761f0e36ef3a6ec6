"""The reports of a run's folder, each replaced atomically, so that a reader sees the old or the new one."""

import json
from collections.abc import Sequence
from pathlib import Path

from mhc.files import replace_text
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.markdown import markdown
from mhc.fuzz.report.page import page
from mhc.fuzz.report.snapshot import read
from mhc.fuzz.report.stored_run import Run


def write_reports(folder: Path, store: Store, known_issues: Sequence[KnownIssue] | None = None) -> Run:
    """Write `report.html`, `summary.md` and `junit.xml` of a campaign, which may still run; return what was read.

    Args:
        known_issues: as for `read`.
    """
    run = read(folder, store, known_issues)
    write(run)
    return run


def write(run: Run) -> None:
    """Write the reports of a run that was read, and the file of each finding without one (its campaign was killed, say)."""
    texts = {"summary.md": markdown(run), "junit.xml": junit(run), "report.html": page(run)}  # all, before one is replaced
    run.folder.mkdir(parents=True, exist_ok=True)
    for found in run.findings:
        path = run.folder / f"{found.id}.json"
        if not path.exists():
            replace_text(path, json.dumps(found.document, indent=2) + "\n")
    for name, text in texts.items():
        replace_text(run.folder / name, text)
