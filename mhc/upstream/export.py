"""Export a finding: make its program, see it fail where nothing of this package is, and only then write the words."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mhc.environment import environment
from mhc.fuzz.finding import Finding
from mhc.fuzz.sandbox import processes
from mhc.registry import load
from mhc.upstream import duplicates
from mhc.upstream.attribution import attribute, settings
from mhc.upstream.capability import NEEDS
from mhc.upstream.errors import ExportError
from mhc.upstream.generated import generated
from mhc.upstream.neighbours import Neighbour, neighbours, peers
from mhc.upstream.program import FORMS, HOST, Program, make
from mhc.upstream.verify import Outcome, confirmed, rate

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
        place = Path(name) / "export"
        place.mkdir()
        repro = place / "repro.py"
        program, outcomes = _first(found, to, device, repro)
        around = neighbours(found, processes(found.spec, load(found.spec), device, log=place.with_name("log")))
        source = generated(repro, found.fingerprint.subject) if to == "tilelang" else ""
        tried = attribute(repro, settings(to, device))
        others = "; ".join(peers(found, device, place.with_name("log"))) or "none that runs here"
        text = f"{tried.text()}\n\nOther implementations on the same case: {others}.\n"
        (place / "attribution.md").write_text(text, encoding="utf-8")
        document = _document(found, device, program, outcomes, around, source)
        document["attribution"] = {"suspect": tried.suspect, "heals": list(tried.heals)}
        (place / "export.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        duplicates.write(place)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, folder)
    return Exported(folder, program, tuple(outcomes))


def _first(found: Finding, to: str, device: str, repro: Path) -> tuple[Program, list[Outcome]]:
    """The first form of program that reproduces each time, which `repro` holds then."""
    refusals = []
    for form in FORMS if to != "torch" else (HOST,):
        try:
            program = make(found, to, device, form)
            repro.write_text(program.text, encoding="utf-8")
            return program, confirmed(repro)
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
            "table": [
                {"change": one.change, "how": "passes" if one.passes else "**fails**", "seen": one.message or ""}
                for one in around
            ],
            "source": source,
        },
    }
