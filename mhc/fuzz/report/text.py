"""Text while a campaign runs and after it: a finding's file and lines, a replay's table, the summary."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mhc.case import Case
from mhc.environment import environment
from mhc.fuzz.finding import Finding
from mhc.fuzz.report.run import replay_command
from mhc.fuzz.report.words import bounded
from oracles.verdict import Status, Verdict

if TYPE_CHECKING:
    from mhc.fuzz.campaign import Tally

_IN_FULL = "bound"


def write_finding(folder: Path, found: Finding) -> Path:
    """Save a finding as `FINGERPRINT.json` in `folder`."""
    path = folder / f"{found.fingerprint.id}.json"
    path.write_text(found.to_json(), encoding="utf-8")
    return path


def describe(found: Finding, path: Path, device: str = "cpu") -> str:
    """Where, got, wanted, bound, and the one command that shows it again."""
    message = bounded(found.message).replace("\n", "\n    ")
    return f"FOUND {found.fingerprint}\n    {message}\n    {found.case.id}\n    {replay_command(path, device)}"


def summary(tally: "Tally", *, seconds: float, seed: int, device: str) -> str:
    """The campaign as Markdown: what ran, the largest |error| / bound of each output, and what was found."""
    here = environment()
    versions = ", ".join(f"{name} {version}" for name, version in here.packages.items())
    lines = [
        f"# {tally.cases} cases in {seconds:.0f} s on {device}, {len(tally.findings)} findings",
        "",
        f"Seed {seed}. Python {here.python}, {versions}; {here.processor}.",
        *(f"Device: {line}." for line in here.devices),
        "",
        "| implementation | checked | refused | findings | compiles per 1000 cases | largest error / bound |",
        "|---|---|---|---|---|---|",
    ]
    for name in tally.checked:
        found = sum(fingerprint.implementation == name for fingerprint in tally.findings)
        ratios = {subject: ratio for (owner, subject), ratio in tally.worst.items() if owner == name}
        worst = ", ".join(f"{subject} {ratio:.3g}" for subject, ratio in ratios.items()) or "nothing judged"
        checked, compiled = tally.checked[name], tally.compiled.get(name)
        rate = "-" if compiled is None or checked == 0 else f"{1000 * compiled / checked:.3g}"
        lines.append(f"| {name} | {checked} | {tally.refused[name]} | {found} | {rate} | {worst} |")
    if tally.findings:
        lines += ["", "## Findings", ""]
        lines += [f"- {fingerprint}: {found.message} ({found.case.id})" for fingerprint, found in tally.findings.items()]
    return "\n".join(lines) + "\n"


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
