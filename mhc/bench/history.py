"""Bugs that a library has mended: whether a short campaign finds each in a release that has it, and not in a later one."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mhc.bench import verbs
from mhc.bench.markdown import table


@dataclass(frozen=True)
class Mended:
    """A bug that a release of a library has mended.

    Attributes:
        issue: where it is described. what: the same in a few words.
        package: what pip installs. before, after: a release that has it, and a later one that has not.
        kernel: the adapter that meets it.
        subjects: the outputs and gradients that it makes wrong; a finding on any other is another bug.
    """

    issue: str
    what: str
    package: str
    before: str
    after: str
    kernel: str
    subjects: tuple[str, ...]


_LIGER = "https://github.com/linkedin/Liger-Kernel"
MENDED = (
    Mended(
        f"{_LIGER}/issues/519",
        "the variance over padded columns",
        "liger-kernel",
        "0.5.3",
        "0.6.4",
        "liger:layer_norm",
        ("y",),
    ),
    Mended(
        f"{_LIGER}/issues/968",
        "`reduction='none'`: weight and x scaled by one upstream gradient",
        "liger-kernel",
        "0.7.0",
        "0.8.2",
        "liger:linear_cross_entropy",
        ("dx", "dweight", "dbias"),
    ),
    Mended(
        f"{_LIGER}/issues/1375",
        "backward of more than three dimensions",
        "liger-kernel",
        "0.8.2",
        "0.8.4",
        "liger:group_norm",
        ("backward", "process", "dx", "dweight", "dbias"),
    ),
    Mended(
        f"{_LIGER}/issues/1453",
        "NaN where both probabilities underflow",
        "liger-kernel",
        "0.8.2",
        "0.8.4",
        "liger:jsd",
        ("y", "dx"),
    ),
    Mended(
        f"{_LIGER}/blob/v0.8.2/src/liger_kernel/ops/tvd.py#L89",
        "the gradient where both are equal",
        "liger-kernel",
        "0.8.2",
        "0.8.4",
        "liger:tvd_mean",
        ("dx",),
    ),
)


@dataclass(frozen=True)
class Campaign:
    """What a campaign on one release found.

    Attributes:
        cases: how many were drawn. found: (gate, subject) of each finding.
    """

    cases: int
    found: tuple[tuple[str, str], ...]

    def gates(self, subjects: Sequence[str], other: "Campaign") -> list[str]:
        """Return the gates that failed on one of the subjects, and not on the same one in another campaign."""
        return sorted({gate for gate, subject in {*self.found} - {*other.found} if subject in subjects})


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
    return where


def campaign(kernel: str, site: Path, minutes: float, seed: int, out: Path) -> Campaign:
    """Return what a campaign in a process of its own finds, with the release in `site` before any other."""
    command = [sys.executable, "-m", "mhc.fuzz", "--impl", kernel, "--minutes", str(minutes), "--seed", str(seed)]
    command += ["--out", str(out), "--max-elements", "8192", "--workers", "1"]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if ended.returncode not in {0, 1}:
        raise click.ClickException(f"{kernel} of {site.name}: exit status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    cases = next(
        int(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("# ") and " cases in " in line
    )
    documents = [json.loads(file.read_text()) for file in sorted(out.glob("*/*.json"))]
    return Campaign(
        cases, tuple((str(one["fingerprint"]["oracle"]), str(one["fingerprint"]["subject"])) for one in documents)
    )


def row(mended: Mended, before: Campaign, after: Campaign) -> tuple[str, ...]:
    """Return a row of the table."""
    gates = before.gates(mended.subjects, after)
    late = sorted({f"{gate} {subject}" for gate, subject in after.found})
    return (
        f"[{mended.what}]({mended.issue})",
        f"`{mended.kernel}`",
        f"{mended.package} {mended.before}",
        f"found: {', '.join(gates)}" if gates else "not found",
        str(before.cases),
        f"{mended.after}: {', '.join(late) if late else 'no finding'} in {after.cases}",
    )


HEAD = ("bug", "kernel", "release before", "in it", "cases", "release after")


@click.command()
@verbs.positive("--minutes", default=2.0, help="Of each campaign.")
@verbs.whole("--seed", least=0, default=1, help="Of each campaign.")
@verbs.several("--kernel", metavar="NAME", help="Only bugs that this adapter meets.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where releases are installed.  [default: new]"
)
@verbs.write("docs/results/field/history.md")
def history(minutes: float, seed: int, kernel: tuple[str, ...], folder: Path | None, write: bool) -> None:
    """Look for bugs that libraries have mended, in the release before and in one after. It installs them by pip."""
    place, rows = folder or Path(tempfile.mkdtemp(prefix="mhc-history-")), []
    for one in MENDED:
        if kernel and one.kernel not in kernel:
            continue
        results = []
        for release in (one.before, one.after):
            out = place / "runs" / f"{one.kernel.replace(':', '-')}-{release}-{time.time_ns()}"
            results.append(campaign(one.kernel, installed(one.package, release, place), minutes, seed, out))
        rows.append(row(one, *results))
        click.echo(" | ".join(rows[-1]))
    text = table(HEAD, rows)
    click.echo(text)
    if write:
        page = verbs.RESULTS / "field" / "history.md"
        page.write_text(f"# Bugs of the past\n\n{verbs.today()}: `{verbs.command()}`.\n\n{text}\n")
