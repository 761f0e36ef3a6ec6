"""What a campaign writes for people: a finding's file and text, the summary, a replay's table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mhc.case import Case
from mhc.fuzz.finding import Finding
from mhc.fuzz.store import Store
from oracles.verdict import Status, Verdict

_IN_FULL = "bound"


def write_finding(folder: Path, found: Finding) -> Path:
    """Save a finding as `FINGERPRINT.json` in `folder`."""
    path = folder / f"{found.fingerprint.id}.json"
    path.write_text(found.to_json(), encoding="utf-8")
    return path


def describe(found: Finding, path: Path) -> str:
    """Where, got, wanted, bound, and the one command that shows it again."""
    return f"FOUND {found.fingerprint}\n    {found.message}\n    {found.case.id}\n    python -m mhc.fuzz replay {path}"


def summary(store: Store) -> str:
    """The campaign as Markdown: what ran, and what was found."""
    meta, counts, findings = store.meta(), store.counts(), store.findings()
    cases = sum(one.get("checked", 0) + one.get("refused", 0) for one in counts.values())
    lines = [
        f"# {cases:.0f} cases in {store.seconds():.0f} s on {meta['device']}, {len(findings)} findings",
        "",
        "| implementation | checked | refused | findings |",
        "|---|---|---|---|",
    ]
    for one in meta["implementations"]:
        own = counts.get(one["name"], {})
        found = sum(row["document"]["fingerprint"]["implementation"] == one["name"] for row in findings.values())
        lines.append(f"| {one['name']} | {own.get('checked', 0):.0f} | {own.get('refused', 0):.0f} | {found} |")
    return "\n".join(lines) + "\n"


def write_reports(folder: Path, store: Store) -> None:
    (folder / "summary.md").write_text(summary(store), encoding="utf-8")


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
