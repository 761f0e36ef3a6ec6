"""Bugs that a library has mended: whether a short campaign finds each in a release that has it.

A finding counts if it is on what the bug makes wrong, and if its case, as drawn or as minimised, fails again in that release
and passes as a whole in a later one. As drawn, since minimising can end at another bug of the same output.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

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
        subjects: the outputs and gradients that it makes wrong, or `inputs` where it writes into them; a finding on
            any other is another bug.
    """

    issue: str
    what: str
    package: str
    before: str
    after: str
    kernel: str
    subjects: tuple[str, ...]


_LIGER = "https://github.com/linkedin/Liger-Kernel"
_FLA = "https://github.com/fla-org/flash-linear-attention"
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
    Mended(
        f"{_LIGER}/issues/678",
        "`reduction='none'`: every row scaled by the first upstream gradient",
        "liger-kernel",
        "0.5.8",
        "0.5.10",
        "liger:cross_entropy",
        ("dx",),
    ),
    Mended(
        f"{_LIGER}/pull/477",
        "one cos and sin for all sequences of a batch",
        "liger-kernel",
        "0.5.2",
        "0.5.4",
        "liger:rope_each",
        ("y0", "y1", "dq", "dk"),
    ),
    Mended(
        f"{_LIGER}/blob/v0.8.2/src/liger_kernel/ops/layer_norm.py#L190",
        "mean and rstd rounded to float16 for the backward",
        "liger-kernel",
        "0.8.2",
        "0.8.4",
        "liger:layer_norm",
        ("dx", "dweight"),
    ),
    Mended(
        f"{_LIGER}/blob/v0.8.2/src/liger_kernel/ops/kl_div.py#L72",
        "exp and log of float16, which Triton has not",
        "liger-kernel",
        "0.8.2",
        "0.8.3",
        "liger:kl_div_mean",
        ("forward",),
    ),
    Mended(
        f"{_FLA}/pull/1071",
        "the gradient of the linear weight from the product before the gate",
        "fla-core",
        "0.5.2",
        "0.6.0",
        "fla:rms_norm_gated_linear",
        ("dlinear",),
    ),
    Mended(
        f"{_FLA}/pull/963",
        "the penalty not scaled by the upstream gradient",
        "fla-core",
        "0.5.1",
        "0.5.2",
        "fla:l2_wrap",
        ("dlogits",),
    ),
    Mended(
        f"{_LIGER}/blob/v0.8.2/src/liger_kernel/ops/attn_res.py#L218",
        "blocks after the 32nd left out",
        "liger-kernel",
        "0.8.3",
        "0.8.4",
        "liger:attn_res",
        ("y", "dv", "dquery", "dweight"),
    ),
    Mended(
        f"{_LIGER}/pull/693",
        "log-probabilities averaged, where DPO adds them up",
        "liger-kernel",
        "0.5.8",
        "0.5.10",
        "liger:dpo",
        ("y", "dx", "dweight"),
    ),
    Mended(
        f"{_LIGER}/pull/974",
        "ignored tokens counted in the divergence",
        "liger-kernel",
        "0.6.4",
        "0.6.5",
        "liger:linear_jsd",
        ("y", "dx", "dweight"),
    ),
    Mended(
        f"{_LIGER}/blob/v0.5.5/src/liger_kernel/chunked_loss/fused_linear_distillation.py#L120",
        "beta not passed on: 0.5, whatever it was",
        "liger-kernel",
        "0.5.5",
        "0.5.6",
        "liger:linear_jsd",
        ("y", "dx", "dweight"),
    ),
    Mended(
        f"{_LIGER}/pull/510",
        "log-probabilities averaged, where CPO adds them up",
        "liger-kernel",
        "0.5.2",
        "0.5.3",
        "liger:cpo",
        ("y", "dx", "dweight"),
    ),
    Mended(
        f"{_FLA}/pull/871",
        "an upstream gradient that is not contiguous",
        "fla-core",
        "0.5.0",
        "0.5.1",
        "fla:causal_conv1d",
        ("dx", "dweight", "dbias"),
    ),
    Mended(
        f"{_FLA}/issues/1138",
        "the gradient of the state, of an upstream gradient that is not contiguous",
        "fla-core",
        "0.5.2",
        "0.6.0",
        "fla:causal_conv1d",
        ("dstate",),
    ),
    Mended(
        f"{_LIGER}/blob/v0.5.3/src/liger_kernel/ops/layer_norm.py#L197",
        "gradients of float16 rounded to bfloat16",
        "liger-kernel",
        "0.5.3",
        "0.8.4",
        "liger:layer_norm",
        ("dbias",),
    ),
    Mended(
        f"{_LIGER}/issues/370",
        "the backward writes into the upstream gradient",
        "liger-kernel",
        "0.3.1",
        "0.5.0",
        "liger:rms_norm",
        ("inputs",),
    ),
    Mended(
        f"{_LIGER}/pull/815",
        "mean and variance added up in float16",
        "liger-kernel",
        "0.6.0",
        "0.8.4",
        "liger:layer_norm",
        ("y",),
    ),
    Mended(
        f"{_LIGER}/blob/v0.6.2/src/liger_kernel/ops/layer_norm.py#L150",
        "gradients of weight and bias added up in float16",
        "liger-kernel",
        "0.6.2",
        "0.6.4",
        "liger:layer_norm",
        ("dbias",),
    ),
    Mended(
        f"{_LIGER}/blob/v0.4.2/src/liger_kernel/ops/cross_entropy.py#L116",
        "label smoothing in float16",
        "liger-kernel",
        "0.4.2",
        "0.5.0",
        "liger:cross_entropy_mean",
        ("y",),
    ),
)


LEG = 0.5
"""Minutes after which the findings so far are looked at; the campaign goes on if none of them is the bug."""


class Finding(NamedTuple):
    """A finding of a campaign: the gate that failed, on what, and its cases as JSON, minimised and as drawn."""

    gate: str
    subject: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Campaign:
    """What a campaign on one release found.

    Attributes:
        cases: how many were drawn. found: each finding.
    """

    cases: int
    found: tuple[Finding, ...]


@dataclass
class Search:
    """What was found of a bug.

    Attributes:
        cases, minutes: of the campaign. others: findings on other outputs.
        outcomes: of each case of a finding on an output of the bug, "GATE SUBJECT": what came of it.
    """

    cases: int = 0
    minutes: float = 0.0
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


FOUND, AGAIN, BOTH = "passes in the later release", "does not fail again", "fails in both"


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


def run(site: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit status, 0 or 1, and the output of the harness with the release in `site` before any other."""
    command = [sys.executable, "-m", "mhc.fuzz", *arguments]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if ended.returncode not in {0, 1}:
        what = f"{' '.join(arguments)}, with {site.name}: exit status {ended.returncode}"
        raise click.ClickException(f"{what}\n{ended.stdout}{ended.stderr}")
    return ended.returncode, ended.stdout


def campaign(kernel: str, site: Path, minutes: float, seed: int, out: Path) -> Campaign:
    """Return what a campaign finds in the release in `site`, in a process of its own; it goes on with that in `out`."""
    # two workers: with one, findings are minimised while no cases are drawn
    limits = ["--minutes", str(minutes), "--seed", str(seed), "--max-elements", "8192", "--workers", "2"]
    _, text = run(site, "--impl", kernel, *limits, "--resume-or-start", str(out))
    cases = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("# ") and " cases in " in line)
    return Campaign(cases, tuple(map(_finding, sorted(out.glob("*.json")))))


def _finding(file: Path) -> Finding:
    document = json.loads(file.read_text())
    cases = [document["case"], *([document["drawn"]["case"]] if document.get("drawn") else [])]
    print_ = document["fingerprint"]
    return Finding(print_["oracle"], print_["subject"], tuple(json.dumps(one) for one in cases))


def outcome(mended: Mended, case: Path, first: Path, second: Path) -> str:
    """Return what comes of a case in the release with the bug and in the later one."""
    try:
        if run(first, "replay", "--impl", mended.kernel, str(case))[0] == 0:
            return AGAIN
        return BOTH if run(second, "replay", "--impl", mended.kernel, str(case))[0] == 1 else FOUND
    except click.ClickException:  # nothing was judged, say
        return "is not judged again"


def search(mended: Mended, first: Path, second: Path, minutes: float, seed: int, out: Path) -> Search:
    """Look for a bug until it is found or `minutes` of a campaign on the first release are over."""
    so_far = Search()
    cases = out.with_name(f"{out.name}-cases")
    cases.mkdir(parents=True)
    while so_far.minutes < minutes and not so_far.found:
        leg = min(LEG, minutes - so_far.minutes)
        there = campaign(mended.kernel, first, leg, seed, out)
        so_far.minutes, so_far.cases = so_far.minutes + leg, there.cases
        so_far.others = tuple(
            sorted({f"{one.gate} {one.subject}" for one in there.found if one.subject not in mended.subjects})
        )
        for one in there.found:
            for case in one.cases if one.subject in mended.subjects else ():
                file = cases / f"{hashlib.sha256(case.encode()).hexdigest()[:16]}.json"
                if file.exists() or so_far.found:
                    continue
                file.write_text(case)
                so_far.outcomes.append((f"{one.gate} {one.subject}", outcome(mended, file, first, second)))
    return so_far


def row(mended: Mended, result: str, cases: int = 0, minutes: float = 0.0) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        f"[{mended.what}]({mended.issue})",
        f"`{mended.kernel}`",
        f"{mended.package} {mended.before}, {mended.after}",
        result,
        str(cases),
        f"{minutes:.1f}",
    )


HEAD = ("bug", "kernel", "release with it, later one", "in it", "cases", "minutes")


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
            rows.append(row(one, result.summary, result.cases, result.minutes))
            found += bool(result.found)
        except (click.ClickException, subprocess.CalledProcessError) as error:  # the others still run
            rows.append(row(one, f"not run: {str(error).splitlines()[0]}"))
        click.echo(" | ".join(rows[-1]))
    text = f"{table(HEAD, rows)}\n\n{found} of {len(rows)} found."
    click.echo(text)
    if write:
        page = verbs.RESULTS / "field" / "history.md"
        page.write_text(f"# Bugs of the past\n\n{verbs.today()}: `{verbs.command()}`.\n\n{text}\n")
