"""A campaign over kernels that misbehave, killed and resumed, ended by signals."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import settings

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from tests.support.helpers import sleeping, started

KERNELS = """
import ctypes, os, sys, time
from dataclasses import replace
import torch
from mhc import load

healthy = load("manual")

class Unpicklable(Exception):
    def __init__(self):
        super().__init__("holds a lambda")
        self.secret = lambda: None
    def __reduce__(self):
        raise TypeError("cannot pickle this")

def raises():
    raise Unpicklable

def loops():
    os.nice(19)  # it hangs as surely behind the tests that run beside this one
    while True:
        pass

def allocates():
    held = []
    while len(held) < 400:
        held.append(torch.ones(1 << 25))  # an eighth of a GiB each

def writes():
    for _ in range(1 << 10):
        os.write(1, b"x" * (1 << 20))

def spoilt(name, what, result=None):
    def forward(x, *args, **kwargs):
        what()
        outputs = healthy.forward(x, *args, **kwargs)
        return outputs if result is None else result(outputs)
    return replace(healthy, name=name, forward=forward, backward=None)

SEGFAULTS = spoilt("segfaults", lambda: ctypes.string_at(0))
ABORTS = spoilt("aborts", os.abort)
EXITS = spoilt("exits", lambda: os._exit(7))
LOOPS = spoilt("loops", loops)
SLEEPS = spoilt("sleeps", lambda: time.sleep(3600))
ALLOCATES = spoilt("allocates", allocates)
WRITES = spoilt("writes", writes)
RAISES = spoilt("raises", raises)
ARITY = spoilt("arity", lambda: None, lambda outputs: outputs[:2])
CLOSES = spoilt("closes", lambda: os.closerange(0, 4096))
"""
# implementation: (where, symptom)
WANTED = {
    "segfaults": ("process", "SIGSEGV"),
    "aborts": ("process", "SIGABRT"),
    "exits": ("process", "exit 7"),
    "loops": ("process", "hang"),
    "sleeps": ("process", "hang"),
    "allocates": ("process", "out of memory"),
    "writes": ("process", "floods its output"),
    "raises": ("forward", "raises Unpicklable"),
    "arity": ("forward", "raises ContractError"),
    "closes": ("process", "exit 1"),
}


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mhc.fuzz", *map(str, arguments)]


def only_run(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


@pytest.mark.slow
def test_ten_that_misbehave_are_ten_findings_and_the_healthy_are_unharmed(kernels: Path, tmp_path: Path) -> None:
    chosen = [word for name in WANTED for word in ("--impl", f"{kernels}:{name.upper()}")]
    limits = ("--run-limit", 8, "--compile-limit", 0, "--memory", 0.6, "--workers", 2)
    out = tmp_path / "runs"
    arguments = command(
        "--minutes", 0.8, "--seed", 1, "--out", out, *chosen, "--impl", "manual", "--impl", "golden", *limits
    )
    began = time.monotonic()
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert time.monotonic() - began < 1.1 * 0.8 * 60 + 15  # imports, and ending a dozen processes
    run = only_run(out)
    found = [json.loads(path.read_text(encoding="utf-8"))["fingerprint"] for path in run.glob("*.json")]
    seen = {one["implementation"]: (one["subject"], one["symptom"]) for one in found}
    if seen.get("closes") == ("process", "SIGABRT"):  # who uses a closed descriptor first decides how the process ends
        seen["closes"] = WANTED["closes"]
    assert seen == WANTED
    assert len(found) == len(WANTED)
    store = Store(run / FILE)
    counts = store.counts()
    for name in ("manual", "golden"):
        assert counts[name]["checked"] >= 10
        assert "failing" not in counts[name]
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 100 << 20
    assert store.in_hand() == []
    store.close()


def integrity(run: Path) -> dict[str, float]:
    """Counts by implementation and word of a store that is whole."""
    store = Store(run / FILE)
    assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    checked = {name: words.get("checked", 0) + words.get("refused", 0) for name, words in store.counts().items()}
    timeline: dict[str, float] = {}
    for name, _, n in store.table("timeline"):
        timeline[name] = timeline.get(name, 0) + n
    assert timeline == {name: n for name, n in checked.items() if n}
    found = {f"finding {id_}": 1.0 for id_ in store.findings()}
    store.close()
    return {**checked, **found}


def begun(run: Path) -> bool:
    """Whether a run that goes on has checked a case and found something yet."""
    store = Store(run / FILE)
    try:
        return bool(store.counts().get("manual", {}).get("checked")) and bool(store.findings())
    finally:
        store.close()


def judged(run: Path, name: str) -> bool:
    """Whether a run that goes on has judged a case of an implementation yet: before that its status is another one."""
    store = Store(run / FILE)
    try:
        return bool(store.counts().get(name, {}).get("checked"))
    finally:
        store.close()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_has_lost_nothing(kernels: Path, tmp_path: Path) -> None:
    """Twenty kills with --hypothesis-profile=nightly."""
    out = tmp_path / "runs"
    chosen = ("--impl", "manual", "--impl", f"{kernels}:RAISES")
    words = command("--hours", 1, "--seed", 5, "--out", out, "--workers", 2, *chosen)
    chance = random.Random(7)
    before: dict[str, float] = {}
    for _ in range(20 if settings().max_examples >= 1000 else 3):
        with started(words) as process:
            assert process.stdout is not None
            assert "checking manual, raises" in process.stdout.readline()
            time.sleep(chance.uniform(0.5, 3.0))
            while not before and process.poll() is None and not begun(only_run(out)):
                time.sleep(0.5)  # the first kill is of a run that has something to lose
        run = only_run(out)
        after = integrity(run)
        assert all(after.get(key, 0) >= n for key, n in before.items()), (before, after)
        before = after
        words = command("--resume", run, "--workers", 2, "--trust")
    with started(words) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # from here on it takes signals
        assert "resuming" in first
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 1, first + text
    assert f"ended by SIGTERM; resume with: python -m mhc.fuzz --resume {run} --trust\n" in text
    assert integrity(run)["manual"] >= before["manual"] > 0
    assert sum(key.startswith("finding") for key in before) == 1
    assert (run / "summary.md").exists()


def test_ctrl_c_ends_it_with_a_report_and_a_second_one_at_once(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = command("--hours", 1, "--impl", "manual", "--workers", 1, "--out", out)
    with started(arguments, stderr=subprocess.STDOUT, start_new_session=True) as process:
        assert process.stdout is not None
        assert "checking manual" in process.stdout.readline()
        while not judged(only_run(out), "manual"):
            assert process.poll() is None
            time.sleep(0.05)
        second = CliRunner().invoke(main, ["--resume", str(only_run(out))])
        assert second.exit_code == 2
        assert "its campaign is still running" in " ".join(second.stderr.split())
        assert CliRunner().invoke(main, ["report", str(only_run(out))]).exit_code == 0
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the workers too
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert "ended by SIGINT" in text
    assert ", 0 findings" in text
    assert "Traceback" not in text
    assert re.search(r"^# [1-9]\d* cases in ", (only_run(out) / "summary.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume", "{tmp}"), "there is no campaign.sqlite in it"),
        (("--resume", "{tmp}", "--seed", "1"), "give none of them"),
        (("--resume", "{tmp}/absent"), "does not exist"),
    ],
)
def test_what_cannot_be_gone_on_with_exits_2(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [word.format(tmp=tmp_path) for word in arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


KEEPS = """
import subprocess
from dataclasses import replace
from pathlib import Path
from mhc import load

def forward(*args, **kwargs):
    subprocess.run("setsid sleep {mark} &", shell=True)
    Path(__file__).with_name("begun").touch()
    return load("manual").forward(*args, **kwargs)

IMPL = replace(load("manual"), name="keeps", forward=forward, backward=None)
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR2, id="SIGUSR2", marks=pytest.mark.slow),
    ],
)
def test_what_kernels_have_started_ends_with_the_campaign_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    mark = str(10**6 + random.randrange(10**6))
    file = tmp_path / "keeps.py"
    file.write_text(KEEPS.format(mark=mark), encoding="utf-8")
    out = tmp_path / "runs"
    with started(command("--hours", 1, "--impl", f"{file}:IMPL", "--workers", 1, "--out", out)) as process:
        while not ((tmp_path / "begun").exists() and judged(only_run(out), "keeps")):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0), text
    until = time.monotonic() + 10
    while (left := sleeping(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left
    assert number == signal.SIGKILL or f"ended by {number.name}; resume with" in text


@pytest.mark.slow
def test_time_in_which_it_is_stopped_makes_no_hang_and_is_not_its_own(tmp_path: Path) -> None:
    """Ctrl-Z, for longer than a call may take."""
    out = tmp_path / "runs"
    limits = ("--run-limit", 1.5, "--compile-limit", 0)
    words = command("--minutes", 0.08, "--impl", "manual", "--workers", 1, "--out", out, *limits)
    with started(words, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1.5)
        os.killpg(process.pid, signal.SIGTSTP)
        time.sleep(7)
        os.killpg(process.pid, signal.SIGCONT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    store = Store(only_run(out) / FILE)
    assert store.findings() == {}
    assert store.seconds() < 7
    store.close()
