"""Bugs that a library has mended: whether a short campaign finds each in a release that has it.

A finding counts if it is on an output that the bug makes wrong, and if its case, as drawn or as minimised, has such an
output wrong again in that release, and none in a later one. As drawn, since minimising can end at another bug of the same
output.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from mhc.bench import verbs
from mhc.bench.markdown import table
from mhc.bench.mended import MENDED, Mended
from mhc.oracles.sequence import OTHERS
from mhc.oracles.verdict import Status

LOOK = 1.0
"""Seconds between looks at what a campaign has found."""
REPORT = 60.0
"""Seconds in which a campaign that was interrupted writes its report."""
REPLAY = 600.0
"""Seconds of a replay, at most."""


class Finding(NamedTuple):
    """A finding of a campaign: the gate that failed, on what, and its cases as JSON, minimised and as drawn."""

    gate: str
    subject: str
    cases: tuple[str, ...]

    @property
    def what(self) -> str:
        """Return the gate and on what it failed, as the table has them."""
        return f"{self.gate} {self.subject}"


@dataclass
class Search:
    """What was found of a bug.

    Attributes:
        cases: of the campaign. others: its findings on other outputs.
        seconds: of the campaign, until it had the finding whose case shows the bug, or had ended; its start is in it.
        outcomes: of each case of a finding on an output of the bug, "GATE SUBJECT", and the outcome of its replays.
    """

    cases: int = 0
    seconds: float = 0.0
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    others: set[str] = field(default_factory=set)

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
            return f"not found: no finding on its outputs; {', '.join(sorted(self.others)) or 'none'} on others"
        return "not found: " + "; ".join(sorted({f"{what} {outcome}" for what, outcome in self.outcomes}))


FOUND, AGAIN, ALSO = "is right in the later release", "does not fail again", "fails in the later release too"


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


def failing(site: Path, kernel: str, case: Path) -> set[str]:
    """Return the outputs of a case that some gate finds wrong, with the release in `site`.

    What a gate says of another case that it runs in between is left out.

    Raises:
        ClickException: nothing was judged, or not in time.
    """
    words, env = command(site, "replay", "--json", "--impl", kernel, str(case))
    try:
        ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=REPLAY)
    except subprocess.TimeoutExpired as error:
        raise click.ClickException(f"takes more than {REPLAY:.0f} seconds") from error
    if ended.returncode not in {0, 1}:
        raise click.ClickException(f"is not judged: exit status {ended.returncode}")
    verdicts = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    wrong = [one for one in verdicts if one["status"] == Status.FAIL.value and one["symptom"] != OTHERS]
    return {one["subject"] for one in wrong}


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
    """Return the outcome of replaying a case, in the release with the bug and in the later one."""
    try:
        if failing(second, mended.kernel, case).intersection(mended.subjects):
            return ALSO
        return FOUND if failing(first, mended.kernel, case).intersection(mended.subjects) else AGAIN
    except click.ClickException as error:
        return error.message


def search(mended: Mended, first: Path, second: Path, minutes: float, seed: int, out: Path) -> Search:
    """Look for a bug: run a campaign on the first release, and replay what it finds until that is the bug.

    Raises:
        ClickException: the campaign cannot be run.
    """
    cases, log = out / "of" / "findings", out / "log"
    cases.mkdir(parents=True)
    # two workers: with one, findings are minimised while no cases are drawn
    limits = ["--minutes", str(minutes), "--seed", str(seed), "--max-elements", "8192", "--workers", "2"]
    words, env = command(first, "--impl", mended.kernel, *limits, "--out", str(out))
    replays: dict[str, tuple[float, str, Future[str]]] = {}  # of each case: when it was found, by what, and its outcome
    began = time.monotonic()
    with (
        log.open("w") as text,
        ThreadPoolExecutor(1) as thread,
        subprocess.Popen(words, env=env, stdout=text, stderr=subprocess.STDOUT) as process,
    ):
        ended = None
        while True:
            if ended is None and process.poll() is not None:  # before its last findings are read
                ended = time.monotonic() - began
            found = [one for one in findings(out) if one.subject in mended.subjects]
            for what, case in ((one.what, case) for one in found for case in one.cases):
                if case not in replays:
                    file = cases / f"{len(replays)}.json"
                    file.write_text(case)
                    replay = thread.submit(outcome, mended, file, first, second)
                    replays[case] = time.monotonic() - began, what, replay
            shown = [seconds for seconds, _, replay in replays.values() if replay.done() and replay.result() == FOUND]
            if shown or (ended is not None and all(replay.done() for _, _, replay in replays.values())):
                break
            time.sleep(LOOK)
        thread.shutdown(cancel_futures=True)
        if ended is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(REPORT)
            process.kill()
    lines = log.read_text().splitlines()
    counts = [int(line.split()[1]) for line in lines if line.startswith("# ") and " cases in " in line]
    if not counts:
        raise click.ClickException(lines[-1] if lines else f"exit status {process.returncode}")
    return Search(
        cases=counts[-1],
        seconds=min(shown) if shown else ended or 0.0,
        outcomes=[(what, replay.result()) for _, what, replay in replays.values() if not replay.cancelled()],
        others={one.what for one in findings(out) if one.subject not in mended.subjects},
    )


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


def _pinned(jobs: int) -> Callable[[], None]:
    """Return what gives each of the threads that call it a core of its own, on which its processes run too.

    Raises:
        UsageError: there are fewer cores.
    """
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return lambda: None
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        raise click.UsageError(f"--jobs {jobs}: there are {len(cores)} cores")
    free = queue.SimpleQueue[int]()
    for core in cores[:jobs]:
        free.put(core)
    return lambda: os.sched_setaffinity(0, {free.get()})


HEAD = ("bug", "kernel", "release with it, later one", "in it", "cases", "seconds")


@click.command()
@verbs.positive("--minutes", default=2.0, help="Of each campaign, at most.")
@verbs.whole("--seed", least=0, default=1, help="Of each campaign.")
@verbs.several("--kernel", metavar="NAME", help="Only bugs that this adapter meets.")
@verbs.whole("--jobs", least=1, default=1, help="Bugs looked for at a time, each on a core of its own.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where releases are installed.  [default: new]"
)
@verbs.write("docs/results/field/history.md")
def history(minutes: float, seed: int, kernel: tuple[str, ...], jobs: int, folder: Path | None, write: bool) -> None:
    """Look for bugs that libraries have mended, in the release before and in one after. It installs them by pip."""
    place = folder or Path(tempfile.mkdtemp(prefix="mhc-history-"))
    chosen = [one for one in MENDED if not kernel or one.kernel in kernel]
    installing = threading.Lock()  # two bugs may be of one release

    def looked_for(one: Mended) -> tuple[bool, tuple[str, ...]]:
        out = place / "runs" / f"{one.kernel.replace(':', '-')}-{one.before}-{time.time_ns()}"
        found = False
        try:
            with installing:
                first, second = (installed(one.package, release, place) for release in (one.before, one.after))
            result = search(one, first, second, minutes, seed, out)
            found, cells = bool(result.found), row(one, result.summary, result.cases, result.seconds)
        except (click.ClickException, subprocess.CalledProcessError) as error:  # the others still run
            cells = row(one, f"not run: {str(error).splitlines()[0]}")
        click.echo(" | ".join(cells))
        return found, cells

    with ThreadPoolExecutor(jobs, initializer=_pinned(jobs)) as threads:
        rows = list(threads.map(looked_for, chosen))
    text = f"{table(HEAD, [cells for _, cells in rows])}\n\n{sum(found for found, _ in rows)} of {len(rows)} found."
    click.echo(text)
    if write:
        page = verbs.RESULTS / "field" / "history.md"
        page.write_text(f"# Bugs of the past\n\n{verbs.today()}: `{verbs.command()}`.\n\n{text}\n")
