"""The reports of a run's folder, each replaced atomically, so that a reader sees the old or the new one."""

import json
from pathlib import Path

from mhc.files import replace_text
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.markdown import markdown
from mhc.fuzz.report.page import page
from mhc.fuzz.report.snapshot import Run, read


def write_reports(folder: Path, store: Store) -> Run:
    """Write `report.html`, `summary.md` and `junit.xml`, of a campaign that ended or that goes on; what they tell."""
    run = read(folder, store)
    write(run)
    return run


def write(run: Run) -> None:
    """The same, of what was read already, and the file of each finding that has none: its campaign ended too soon."""
    texts = {"summary.md": markdown(run), "junit.xml": junit(run), "report.html": page(run)}  # all, before one is replaced
    for found in run.findings:
        path = run.folder / f"{found.id}.json"
        if not path.exists():
            replace_text(path, json.dumps(found.document, indent=2) + "\n")
    for name, text in texts.items():
        replace_text(run.folder / name, text)
