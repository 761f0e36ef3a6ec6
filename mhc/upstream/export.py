"""Export a finding: make its program, see it fail where nothing of this package is, and only then write the words."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mhc.environment import environment
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.minimise.sandbox import processes
from mhc.registry import load
from mhc.upstream.diagnose.attribution import attribute, generated, settings
from mhc.upstream.diagnose.neighbours import Neighbour, neighbours, peers, schedules
from mhc.upstream.issue import duplicates
from mhc.upstream.program.program import FORMS, HOST, Program, make
from mhc.upstream.reduce.reduction import shortened
from mhc.upstream.releases.releases import NEEDS
from mhc.upstream.verify import ExportError, Outcome, confirmed, rate

TARGETS = ("tilelang", "triton", "torch")


@dataclass(frozen=True)
class Exported:
    """An exported folder, and what verifying it gave."""

    folder: Path
    program: Program
    outcomes: tuple[Outcome, ...]


def export(found: Finding, to: str, folder: Path, device: str) -> Exported:
    """Write `repro.py`, `issue.md` and `export.json` to a new folder.

    Raises:
        ExportError: no program can be made, or it does not reproduce each time; nothing is written then.
    """
    if folder.exists():
        raise ExportError(f"{folder} is there already")
    with tempfile.TemporaryDirectory() as name:
        place, log = Path(name) / "export", Path(name) / "log"
        place.mkdir()
        repro = place / "repro.py"
        program = program_of(found, to, device, repro)
        start = processes(found.spec, load(found.spec), device, log=log)
        tried = attribute(repro, settings(to, device), [*schedules(found, start), *peers(found, device, log)])
        program, outcomes = shortened(program, repro, tried.settings(to, device))
        if program.whole != program.text:
            (place / "whole.py").write_text(program.whole, encoding="utf-8")
        around = neighbours(found, start)
        source = generated(repro, found.fingerprint.subject) if to == "tilelang" else ""
        (place / "attribution.md").write_text(f"{tried.text()}\n", encoding="utf-8")
        document = _document(found, device, program, outcomes, around, source)
        document["attribution"] = {"suspect": tried.suspect, "heals": list(tried.heals)}
        (place / "export.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        duplicates.write(place)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, folder)
    return Exported(folder, program, tuple(outcomes))


def program_of(found: Finding, to: str, device: str, repro: Path) -> Program:
    """The first form of program that reproduces once, which `repro` holds then."""
    refusals = []
    for form in FORMS if to != "torch" else (HOST,):
        try:
            program = make(found, to, device, form)
            repro.write_text(program.text, encoding="utf-8")
            confirmed(repro, 1)
            return program
        except ExportError as refusal:
            if str(refusal) not in refusals:
                refusals.append(str(refusal))
    raise ExportError("\n    ".join(refusals))


def _document(
    found: Finding, device: str, program: Program, outcomes: list[Outcome], around: list[Neighbour], source: str
) -> dict[str, Any]:
    control = next((one for one in around if one.passes), None)
    return {
        "finding": {"fingerprint": found.fingerprint.document, "id": found.fingerprint.id, "message": found.message},
        "case": json.loads(found.case.to_json()),
        "to": program.to,
        "spec": found.spec,
        "needs": "cuda" if device == "cuda" else NEEDS[program.to][0],
        "symptom": found.fingerprint.symptom,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {**environment().to_json(), "variables": {**environment().variables, **found.variables}},
        "told": {
            "at": program.at,
            "where": program.where,
            "values": outcomes[-1].values,
            "rate": rate(outcomes),
            "control": f"with {control.change} it passes." if control else "no neighbouring case that was tried passes.",
            "form": FORMS[program.form],
            "whole": len(program.whole.splitlines()),
            "table": [
                {"change": one.change, "how": "passes" if one.passes else "**fails**", "seen": one.message or ""}
                for one in around
            ],
            "source": source,
        },
    }
