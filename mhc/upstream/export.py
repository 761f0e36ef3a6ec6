"""Export a finding: make its program, verify that it fails without this package, and only then write the issue."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mhc.environment import environment
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.minimise.sandbox import processes
from mhc.registry import load
from mhc.upstream.diagnose.attribution import Attribution, attribute, generated, settings
from mhc.upstream.diagnose.neighbours import neighbours, peers, schedules
from mhc.upstream.issue import duplicates
from mhc.upstream.program.program import FORMS, HOST, Program, make
from mhc.upstream.reduce.reduction import shortened
from mhc.upstream.releases.releases import NEEDS
from mhc.upstream.verify import ExportError, Outcome, confirmed, rate

TARGETS = ("tilelang", "triton", "torch")


def export(found: Finding, to: str, folder: Path, device: str) -> list[Outcome]:
    """Write `repro.py`, `issue.md` and `export.json` to a new folder; return the runs in which the program reproduced.

    Raises:
        ExportError: no program can be made, or it does not reproduce each time; nothing is written then.
    """
    with new_folder(folder) as place:
        repro, log = place / "repro.py", place.with_name("log")
        program = program_of(found, to, device, repro)
        start = processes(found.spec, load(found.spec), device, log=log)
        tried = attribute(repro, settings(to, device), [*schedules(found, start), *peers(found, device, log)])
        program, outcomes = shortened(program, repro, tried.settings(to, device))
        if program.unreduced != program.text:
            (place / "whole.py").write_text(program.unreduced, encoding="utf-8")
        around = neighbours(found, start)
        control = next((one for one in around if one.passes), None)
        here = environment()
        document = {
            "finding": {"fingerprint": found.fingerprint.document, "id": found.fingerprint.id, "message": found.message},
            "case": json.loads(found.case.to_json()),
            "to": to,
            "spec": found.spec,
            "needs": "cuda" if device == "cuda" else NEEDS[to][0],
            "symptom": found.fingerprint.symptom,
            "environment": {**here.to_json(), "variables": {**here.variables, **found.variables}},
        }
        facts = {
            "at": program.at,
            "where": program.where,
            "control": f"with {control.what} it passes." if control else "no neighbouring case that was tried passes.",
            "form": FORMS[program.form],
            "whole": len(program.unreduced.splitlines()),
            "table": [table_row(one.what, one.passes, one.how) for one in around],
            "source": generated(repro, found.fingerprint.subject) if to == "tilelang" else "",
        }
        write_document(place, document, facts, outcomes, tried)
    return outcomes


def program_of(found: Finding, to: str, device: str, repro: Path) -> Program:
    """Write the first form of program that reproduces once to `repro`, and return it."""
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


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a place to fill, which is copied to `folder` with its issue where the block ends without an exception.

    Raises:
        ExportError: `folder` exists.
    """
    if folder.exists():
        raise ExportError(f"{folder} is there already")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "export"
        place.mkdir()
        yield place
        duplicates.write(place)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, folder)


def table_row(change: str, passes: bool, seen: str) -> dict[str, str]:
    """Return a row of the table of what passes and what fails."""
    return {"change": change, "how": "passes" if passes else "**fails**", "seen": seen}


def write_document(
    place: Path, document: Mapping[str, Any], facts: Mapping[str, Any], outcomes: Sequence[Outcome], tried: Attribution
) -> None:
    """Write `export.json` and `attribution.md`.

    Args:
        document: what is exported. facts: what the issue says of it, beside the values and the rate of `outcomes`.
    """
    whole = {
        **document,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "told": {**facts, "values": outcomes[-1].values, "rate": rate(outcomes)},
        "attribution": {"suspect": tried.suspect, "heals": list(tried.heals)},
    }
    (place / "export.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    (place / "attribution.md").write_text(f"{tried.text()}\n", encoding="utf-8")
