"""A campaign over misbehaving implementations and right ones, killed and resumed at random moments."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.misbehaving.state import PRIVATE

RIGHT = ("golden", "manual")
"""Correct implementations: a finding on one is false."""
SUMMARY = "summary.md"
_MARK = "MHC_SOAK"  # the environment variable by which processes of a soak are known; what they start inherits it
_LATE = 120.0  # seconds that a leg may take to end, after which it is killed, and that is reported
_SETTLE = 3.0  # seconds for processes to end after their campaign has
_HARD = 0.7  # of the kills, how many are SIGKILL
_ORDERLY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LIMITS = {
    "cpu": ("--run-limit", "5", "--compile-limit", "0", "--memory", "2", "--max-elements", str(1 << 18)),
    "cuda": ("--run-limit", "15", "--compile-limit", "0", "--memory", "8", "--max-elements", str(1 << 20)),
}
"""A call that is right takes a fraction of a second, and a process on a GPU has 2 GiB of its driver's."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a soak.

    Attributes:
        names: of misbehaving implementations. kills: how many legs are ended before their time.
        folder: where runs go, with what they print.
    """

    names: Sequence[str]
    seconds: float
    workers: int
    kills: int
    seed: int
    device: str
    folder: Path

    def ends(self) -> list[tuple[float, signal.Signals]]:
        """Return when each leg but the last is ended, in seconds from the start, and by which signal."""
        chance = random.Random(self.seed)
        moments = sorted(chance.uniform(0.0, 0.95 * self.seconds) for _ in range(self.kills))
        return [(at, signal.SIGKILL if chance.random() < _HARD else chance.choice(_ORDERLY)) for at in moments]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The contents of a run's store between two legs.

    Attributes:
        findings: (implementation, oracle, symptom) by the text of the fingerprint. counts: what may only grow, by name.
        cases: by implementation. faults: (implementation, message) of faults of the harness.
        seconds: of campaign time. whole: the file is.
    """

    findings: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    cases: Mapping[str, int] = field(default_factory=dict)
    faults: Sequence[tuple[str, str]] = ()
    seconds: float = 0.0
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One process of the campaign.

    Attributes:
        end: the signal that ended it; None: its time was over. status: of its end; None: it had to be killed.
        seconds: that it lived. late: from the moment that it should end (the signal, or its time) to its end.
        printed: the findings that it printed on standard output. dropped: those that it took back.
        output, errors: what it printed.
        left: command lines of processes that outlived it. reported: it wrote its reports.
        after: what the store had then.
    """

    end: signal.Signals | None
    status: int | None
    seconds: float
    late: float
    printed: frozenset[str]
    dropped: frozenset[str]
    output: str
    errors: str
    left: Sequence[str]
    reported: bool
    after: Snapshot

    @property
    def orderly(self) -> bool:
        """Return whether the leg could end by itself: it was not killed."""
        return self.end is not signal.SIGKILL


def soak(plan: Plan) -> Iterator[Leg]:
    """Run the campaign, and yield leg after leg; at the end no process of it is left."""
    began = time.monotonic()
    before = Snapshot()
    plan.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PRIVATE, ignore_cleanup_errors=True) as temporary:  # one that may be deleted
        variables = {**os.environ, _MARK: str(plan.folder), "TMPDIR": temporary}
        try:
            for number, (at, end) in enumerate((*plan.ends(), (float("inf"), None))):
                leg = _leg(plan, number, at + began, end, variables, before)
                before = leg.after
                yield leg
        finally:
            for pid, _ in marked(str(plan.folder)):
                _kill(pid)


def command(plan: Plan, run: Path | None) -> list[str]:
    """Return the command line of a leg. run: the folder of the campaign to resume."""
    limits = [*_LIMITS[plan.device], "--minutes", f"{plan.seconds / 60:g}", "--workers", str(plan.workers)]
    limits += ["--fixtures", str(plan.folder / "fixtures")]
    if run is not None:
        return [sys.executable, "-m", "mhc.fuzz", "--resume", str(run), "--trust", *limits]
    chosen = [word for name in (*RIGHT, *map(SPEC.format, plan.names)) for word in ("--impl", name)]
    begun = ["--device", plan.device, "--seed", str(plan.seed), "--out", str(plan.folder / "runs")]
    return [sys.executable, "-m", "mhc.fuzz", *begun, *limits, *chosen]


def _leg(
    plan: Plan, number: int, at: float, end: signal.Signals | None, variables: Mapping[str, str], before: Snapshot
) -> Leg:
    """Start a leg and end it at the monotonic time `at`, or let it end."""
    output, errors = (plan.folder / f"leg-{number}.{name}" for name in ("stdout", "stderr"))
    since, day = time.monotonic(), time.time()
    with output.open("wb") as out, errors.open("wb") as err:
        words = command(plan, _run_of(plan.folder))
        process = subprocess.Popen(words, stdout=out, stderr=err, env=variables, start_new_session=True)
        try:
            while process.poll() is None and not output.stat().st_size:  # it says that it begins
                time.sleep(0.05)
            due = time.monotonic() + plan.seconds - before.seconds
            if end is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.5, at - time.monotonic()))
                due = min(due, time.monotonic())
                process.send_signal(end)
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, due - time.monotonic()) + _LATE)
        finally:
            now = time.monotonic()
            status = process.poll()
            process.kill()
            process.wait()
    left = _left(str(plan.folder))
    run = _run_of(plan.folder)
    text = output.read_text(encoding="utf-8", errors="replace")
    return Leg(
        end=end,
        status=status,
        seconds=now - since,
        late=now - due,
        printed=frozenset(re.findall(r"^(?:FOUND|MINIMAL|NOT REPRODUCED) (.+)$", text, re.MULTILINE)),
        dropped=frozenset(re.findall(r"^DROPPED (.+)$", text, re.MULTILINE)),
        output=text,
        errors=errors.read_text(encoding="utf-8", errors="replace"),
        left=left,
        reported=run is not None and (run / SUMMARY).is_file() and (run / SUMMARY).stat().st_mtime >= day,
        after=Snapshot() if run is None else snapshot(run),
    )


def _run_of(folder: Path) -> Path | None:
    """Return the campaign's folder; None where the first leg ended before it made one that can be resumed."""
    found = sorted(folder.glob(f"runs/*/{FILE}"))
    return next((path.parent for path in reversed(found) if snapshot(path.parent).counts), None)


def snapshot(run: Path) -> Snapshot:
    """Read the store of a run."""
    with closing(Store(run / FILE)) as store:
        words, meta, seconds = store.counts(), store.meta(), store.seconds()
        counts = {f"{name} {what}": n for name, by_word in words.items() for what, n in by_word.items()}
        counts |= {f"{name} in {label}": float(n) for name, label, n in store.table("regions")}
        found = {}
        for row in store.findings().values():
            one = Fingerprint(**row["document"]["fingerprint"])
            found[str(one)] = (one.implementation, one.oracle, one.symptom)
            counts[f"seen {one}"] = float(row["seen"])
    with closing(sqlite3.connect(run / FILE)) as connection:
        whole = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    cases = {name: round(n.get("checked", 0) + n.get("refused", 0)) for name, n in words.items()}
    faults = [(str(one["implementation"]), str(one["message"])) for one in meta.get("faults", ())]
    faults += [("", str(meta["fault"]))] if meta.get("fault") else []  # it ended the last leg
    return Snapshot(findings=found, counts=counts, cases=cases, faults=faults, seconds=seconds, whole=whole)


def _left(mark: str) -> list[str]:
    """Kill the processes that outlive their campaign; return their command lines."""
    until = time.monotonic() + _SETTLE
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.1)
    found = marked(mark)
    for pid, _ in found:
        _kill(pid)
    return [words for _, words in found]


def marked(mark: str) -> list[tuple[int, str]]:
    """Return the processes that were started with the mark in their environment, and their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                program, *words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append((int(folder.name), " ".join([Path(program).name, *words])[:60].strip()))
    return found


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
