"""Bugs that a library has mended: whether a short campaign finds each in a release that has it.

A finding counts if it is on what the bug makes wrong, and if its case, as drawn or as minimised, fails again in that release
and passes as a whole in a later one. As drawn, since minimising can end at another bug of the same output.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from mhc.bench import verbs
from mhc.bench.markdown import table
from mhc.bench.mended import MENDED, Mended

LOOK = 1.0
"""Seconds between looks at what a campaign has found."""
REPORT = 60.0
"""Seconds in which a campaign that was interrupted writes its report."""


class Finding(NamedTuple):
    """A finding of a campaign: the gate that failed, on what, and its cases as JSON, minimised and as drawn."""

    gate: str
    subject: str
    cases: tuple[str, ...]


@dataclass
class Search:
    """What was found of a bug.

    Attributes:
        cases: of the campaign. others: its findings on other outputs.
        seconds: until a case had shown the bug, or the campaign had ended; starting and replays are in it.
        outcomes: of each case of a finding on an output of the bug, "GATE SUBJECT": what came of it.
    """

    cases: int = 0
    seconds: float = 0.0
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    others: tuple[str, ...] = ()

    @property
    def found(self) -> list[str]:
        """Return the gates and outputs that found the bug."""
        return sorted({what for what, outcome in self.outcomes if outcome == FOUND})

    @property
    def summary(self) -> str:
        """Return whether the bug was found, by what, and else what the findings on its outputs came to."""
        if self.found:
            return f"found: {', '.join(self.found)}"
        if not self.outcomes:
            return f"not found: no finding on its outputs; {', '.join(self.others) or 'none'} on others"
        return "not found: " + "; ".join(sorted({f"{what} {outcome}" for what, outcome in self.outcomes}))


FOUND, AGAIN, ALSO = "passes in the later release", "does not fail again", "fails in the later release too"


def installed(package: str, release: str, folder: Path) -> Path:
    """Return a folder with a release of a package and without its requirements."""
    where = folder / f"{package}-{release}"
    if not where.is_dir():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(where),
            f"{package}=={release}",
        ]
        subprocess.run(command, check=True)
    for inner in where.iterdir():
        if inner.is_dir() and inner.suffix != ".dist-info":  # without it, the same package in site-packages goes before
            (inner / "__init__.py").touch()
    return where


def command(site: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return a command of the harness, and its environment: the release in `site` goes before any other."""
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return [sys.executable, "-m", "mhc.fuzz", *arguments], {**os.environ, "PYTHONPATH": path}


def run(site: Path, *arguments: str) -> int:
    """Return the exit status of a command of the harness, 0 or 1."""
    words, env = command(site, *arguments)
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if ended.returncode not in {0, 1}:
        raise click.ClickException(f"{' '.join(arguments)}, with {site.name}: exit status {ended.returncode}")
    return ended.returncode


def findings(out: Path) -> list[Finding]:
    """Return what a campaign has found so far; one whose file is being written is left out."""
    found = []
    for file in sorted(out.glob("*/*.json")):
        with contextlib.suppress(json.JSONDecodeError):
            document = json.loads(file.read_text())
            cases = [document["case"], *([document["drawn"]["case"]] if document.get("drawn") else [])]
            symptom = document["fingerprint"]
            found.append(Finding(symptom["oracle"], symptom["subject"], tuple(json.dumps(one) for one in cases)))
    return found


def outcome(mended: Mended, case: Path, first: Path, second: Path) -> str:
    """Return what comes of a case in the release with the bug and in the later one."""
    try:
        if run(second, "replay", "--impl", mended.kernel, str(case)) == 1:
            return ALSO
        return FOUND if run(first, "replay", "--impl", mended.kernel, str(case)) == 1 else AGAIN
    except click.ClickException:  # nothing was judged, say
        return "is not judged again"


def search(mended: Mended, first: Path, second: Path, minutes: float, seed: int, out: Path) -> Search:
    """Look for a bug: run a campaign on the first release, and replay what it finds until that is the bug.

    Raises:
        ClickException: the campaign cannot be run.
    """
    so_far, cases, log = Search(), out / "of" / "findings", out / "log"
    cases.mkdir(parents=True)
    # two workers: with one, findings are minimised while no cases are drawn
    limits = ["--minutes", str(minutes), "--seed", str(seed), "--max-elements", "8192", "--workers", "2"]
    words, env = command(first, "--impl", mended.kernel, *limits, "--out", str(out))
    began = time.monotonic()
    with log.open("w") as text, subprocess.Popen(words, env=env, stdout=text, stderr=subprocess.STDOUT) as process:
        ended = False
        while not (ended or so_far.found):
            ended = process.poll() is not None  # before its last findings are read
            _replay(so_far, mended, findings(out), cases, first, second)
            if not (ended or so_far.found):
                time.sleep(LOOK)
        so_far.seconds = time.monotonic() - began
        if not ended:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(REPORT)
            process.kill()
    lines = log.read_text().splitlines()
    counts = [int(line.split()[1]) for line in lines if line.startswith("# ") and " cases in " in line]
    if not counts:
        raise click.ClickException(lines[-1] if lines else f"exit status {process.returncode}")
    so_far.cases = counts[-1]
    return so_far


def _replay(so_far: Search, mended: Mended, found: Sequence[Finding], cases: Path, first: Path, second: Path) -> None:
    """Replay the cases of findings that were not yet, one after the other, until one shows the bug."""
    others = {f"{one.gate} {one.subject}" for one in found if one.subject not in mended.subjects}
    so_far.others = tuple(sorted(others))
    for one in found:
        for case in one.cases if one.subject in mended.subjects else ():
            file = cases / f"{hashlib.sha256(case.encode()).hexdigest()[:16]}.json"
            if file.exists() or so_far.found:
                continue
            file.write_text(case)
            so_far.outcomes.append((f"{one.gate} {one.subject}", outcome(mended, file, first, second)))


def row(mended: Mended, result: str, cases: int = 0, seconds: float = 0.0) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        f"[{mended.what}]({mended.issue})",
        f"`{mended.kernel}`",
        f"{mended.package} {mended.before}, {mended.after}",
        result,
        str(cases),
        f"{seconds:.0f}",
    )


HEAD = ("bug", "kernel", "release with it, later one", "in it", "cases", "seconds")


@click.command()
@verbs.positive("--minutes", default=2.0, help="Of each campaign, at most.")
@verbs.whole("--seed", least=0, default=1, help="Of each campaign.")
@verbs.several("--kernel", metavar="NAME", help="Only bugs that this adapter meets.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where releases are installed.  [default: new]"
)
@verbs.write("docs/results/field/history.md")
def history(minutes: float, seed: int, kernel: tuple[str, ...], folder: Path | None, write: bool) -> None:
    """Look for bugs that libraries have mended, in the release before and in one after. It installs them by pip."""
    place, rows, found = folder or Path(tempfile.mkdtemp(prefix="mhc-history-")), [], 0
    for one in MENDED:
        if kernel and one.kernel not in kernel:
            continue
        out = place / "runs" / f"{one.kernel.replace(':', '-')}-{one.before}-{time.time_ns()}"
        try:
            first, second = (installed(one.package, release, place) for release in (one.before, one.after))
            result = search(one, first, second, minutes, seed, out)
            rows.append(row(one, result.summary, result.cases, result.seconds))
            found += bool(result.found)
        except (click.ClickException, subprocess.CalledProcessError) as error:  # the others still run
            rows.append(row(one, f"not run: {str(error).splitlines()[0]}"))
        click.echo(" | ".join(rows[-1]))
    text = f"{table(HEAD, rows)}\n\n{found} of {len(rows)} found."
    click.echo(text)
    if write:
        page = verbs.RESULTS / "field" / "history.md"
        page.write_text(f"# Bugs of the past\n\n{verbs.today()}: `{verbs.command()}`.\n\n{text}\n")
