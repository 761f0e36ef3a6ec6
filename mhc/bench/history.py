"""Bugs that a library has mended: whether a short campaign finds each in a release that has it.

A finding counts if it is on what the bug makes wrong, and if its case fails again in that release and passes in a later one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
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


class Finding(NamedTuple):
    """A finding of a campaign: the gate that failed, on what, and the file with its case."""

    gate: str
    subject: str
    file: Path


@dataclass(frozen=True)
class Campaign:
    """What a campaign on one release found.

    Attributes:
        cases: how many were drawn. found: each finding.
    """

    cases: int
    found: tuple[Finding, ...]


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
    """Return what a campaign in a process of its own finds in the release in `site`."""
    limits = ["--minutes", str(minutes), "--seed", str(seed), "--max-elements", "8192", "--workers", "1"]
    _, text = run(site, "--impl", kernel, *limits, "--out", str(out))
    cases = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("# ") and " cases in " in line)
    files = sorted(out.glob("*/*.json"))
    prints = [json.loads(file.read_text())["fingerprint"] for file in files]
    return Campaign(
        cases, tuple(Finding(one["oracle"], one["subject"], file) for one, file in zip(prints, files, strict=True))
    )


def gates(mended: Mended, before: Campaign, first: Path, second: Path) -> list[str]:
    """Return the gates that failed on what the bug makes wrong, with a case that passes in the second release only."""

    def fails(site: Path, file: Path) -> bool:
        return run(site, "replay", "--impl", mended.kernel, str(file))[0] == 1

    there = [one for one in before.found if one.subject in mended.subjects]
    return sorted({one.gate for one in there if fails(first, one.file) and not fails(second, one.file)})


def row(mended: Mended, before: Campaign, after: Campaign, failed: Sequence[str]) -> tuple[str, ...]:
    """Return a row of the table; `failed` are the gates that found the bug."""
    late = sorted({f"{one.gate} {one.subject}" for one in after.found})
    return (
        f"[{mended.what}]({mended.issue})",
        f"`{mended.kernel}`",
        f"{mended.package} {mended.before}",
        f"found: {', '.join(failed)}" if failed else "not found",
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
        sites = [installed(one.package, release, place) for release in (one.before, one.after)]
        outs = [place / "runs" / f"{one.kernel.replace(':', '-')}-{site.name}-{time.time_ns()}" for site in sites]
        before, after = (campaign(one.kernel, site, minutes, seed, out) for site, out in zip(sites, outs, strict=True))
        rows.append(row(one, before, after, gates(one, before, *sites)))
        click.echo(" | ".join(rows[-1]))
    text = table(HEAD, rows)
    click.echo(text)
    if write:
        page = verbs.RESULTS / "field" / "history.md"
        page.write_text(f"# Bugs of the past\n\n{verbs.today()}: `{verbs.command()}`.\n\n{text}\n")
