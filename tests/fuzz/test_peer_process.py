"""`--against` in worker processes and on the command line: a peer has a process of its own."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc import default_case, load
from mhc.fuzz.campaign import campaign
from mhc.fuzz.check.differential import Peer, PeerResult, compared
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.options import load_pairs
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.minimise import minimise
from mhc.fuzz.worker import peer as peer_module
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.limits import Limits, Peers
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.peer import PeerProcess, start_peers
from mhc.fuzz.worker.process import HarnessError
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.verdict import Status, Verdict
from tests.support.helpers import scaled_case

CASE = scaled_case(B=1, S=2, n=2, D=3, dtype="float32")
KERNELS = """
import ctypes, os, time
from multiprocessing.util import Finalize
FOUND = {name: os.environ.get(f"MHC_TEST_{name}") for name in ("MINE", "OTHER")}  # read at import, as a DSL would
from dataclasses import replace
from mhc import load

manual = replace(load("manual"), backward=None)

def kernel(name, wanted, change=lambda x, r: r, **fields):
    def forward(x, *args, **kwargs):
        assert FOUND == wanted, FOUND
        return change(x, manual.forward(x, *args, **kwargs))
    return replace(manual, name=name, forward=forward, **fields)

def scaled(index, factor):
    return lambda x, r: (*r[:index], r[index] * factor, *r[index + 1:]) if x.shape[2] > 1 and x.shape[3] > 2 else r

def ends(x, r):
    return os.abort() if x.shape[3] > 2 else r

def sleeps(x, r):
    return time.sleep(600) if x.shape[3] > 2 else r

def loses(x, r):
    if x.shape[3] > 2:
        Finalize(None, ends_slowly, exitpriority=1)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return r

def ends_slowly():
    os.closerange(3, 4096)
    ctypes.PyDLL(None).sleep(600)  # and no other thread runs meanwhile

own = {"MHC_TEST_OTHER": "1"}
alone = {"MINE": None, "OTHER": "1"}
MINE = kernel("mine", {"MINE": "1", "OTHER": None}, env={"MHC_TEST_MINE": "1"})
SAME = kernel("same", alone, env=own)
OFF = kernel("off", alone, scaled(1, 1.001), env=own)
ENDS = kernel("ends", alone, ends, env=own)
SLEEPS = kernel("sleeps", alone, sleeps, env=own)
LOSES = kernel("loses", alone, loses, env=own)
LOUD = kernel("loud", alone, lambda x, r: os.write(1, b"loud\\n") and r, env=own)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


Start = Callable[..., PeerProcess]


@pytest.fixture
def process(kernels: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a peer; MHC_TEST_MINE is set here, as in a worker of MINE, and not among what it may inherit."""
    started: list[PeerProcess] = []
    bare = dict(os.environ)

    def start(name: str, limits: Limits | None = None) -> PeerProcess:
        spec = f"{kernels}:{name}"
        peers = Peers(peers=(Peer.of(spec, load(spec)),), limits=limits or Limits(), log=tmp_path / "mine.log", gpu=None)
        started.extend(start_peers(peers, "cpu", bare, lambda message: None, serve))
        return started[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MHC_TEST_MINE", "1")
        yield start
    for one in started:
        one.stop()


def test_it_has_its_own_environment_and_log(process: Start, tmp_path: Path) -> None:
    answer = process("LOUD").run(CASE)
    assert isinstance(answer, PeerResult)
    assert answer.failure is None
    assert (tmp_path / "mine@loud.log").read_text(encoding="utf-8") == "loud\n"
    assert os.environ["MHC_TEST_MINE"] == "1"
    assert "MHC_TEST_OTHER" not in os.environ


@pytest.mark.parametrize(("name", "symptom"), [("ENDS", "SIGABRT"), ("SLEEPS", "hang")])
def test_one_that_ends_or_hangs_is_replaced_and_left_alone_in_the_end(
    process: Start, name: str, symptom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "_MOST_CRASHES", 2)
    other = process(name, Limits(run=0.5, compile=0.0))
    fine = default_case(B=1, S=2, n=2, D=1, dtype="float32")
    answers = [other.run(case) for case in (CASE, fine, CASE, CASE, fine)]
    told = [one.symptom if isinstance(one, Verdict) else "fine" for one in answers]
    assert told == [symptom, "fine", symptom, symptom, "not asked"]


def test_one_that_lost_its_device_is_replaced_before_it_has_ended(process: Start) -> None:
    """Its end may take longer than its pipe's; the next case is not to blame for it."""
    other = process("LOSES")
    first = other.run(CASE)
    assert isinstance(first, PeerResult)
    assert first.failure is not None
    assert other._process is not None
    assert other._process.connection.poll(60)  # closed
    second = other.run(default_case(B=1, S=2, n=2, D=1, dtype="float32"))
    assert isinstance(second, PeerResult)
    assert second.failure is None


def test_one_that_cannot_be_loaded_is_a_fault(process: Start, kernels: Path) -> None:
    other = process("SAME")
    kernels.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(HarnessError, match="ZeroDivisionError"):
        other.run(CASE)


@pytest.mark.slow
def test_a_worker_and_its_peers_have_each_their_own_process(kernels: Path) -> None:
    """Two that need different environments, and one that dies: none is blamed for another."""
    specs = {name: f"{kernels}:{name}" for name in ("MINE", "SAME", "ENDS")}
    peers = [Peer.of(specs[name], load(specs[name])) for name in ("SAME", "ENDS")]
    worker = WorkerClient(specs["MINE"], load(specs["MINE"]), "cpu", peers=peers)
    worker.start(CASE, Level.PLAIN)
    verdicts = worker.finish()
    worker.stop()
    assert not worker.retired
    assert not [one for one in verdicts if one.status is Status.FAIL]
    assert compared(verdicts) == ("compared with same", "not compared with ends: SIGABRT")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_peer_dies_with_its_worker(kernels: Path) -> None:
    """Also one that hangs: nothing is left behind by a campaign that is at its end."""
    spec, other = f"{kernels}:MINE", f"{kernels}:SLEEPS"
    worker = WorkerClient(spec, load(spec), "cpu", peers=[Peer.of(other, load(other))])
    worker.start(CASE, Level.PLAIN)
    assert worker._process is not None
    pid = worker._process._process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    soon = time.monotonic() + 60
    while not (born := [one for one in children.read_text(encoding="ascii").split() if _serves(one)]):
        assert time.monotonic() < soon
        time.sleep(0.1)
    worker.stop()
    soon = time.monotonic() + 10
    while any(_serves(one) for one in born):
        assert time.monotonic() < soon
        time.sleep(0.1)


def _serves(pid: str) -> bool:
    """Whether the process is there and a worker, not the one that keeps track of shared memory."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def fuzz(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.slow
def test_a_campaign_finds_it_once_makes_it_small_and_replays_it(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimise, "RUNS", 1)
    monkeypatch.setattr(campaign, "_MINIMISE_SECONDS", 600.0)  # the tests beside this one may take most of the cores
    out = tmp_path / "runs"
    chosen = ("--impl", f"{kernels}:MINE", "--against", f"{kernels}:OFF")
    result = fuzz("--cases", 6, "--seed", 0, "--workers", 1, "--out", out, *chosen)
    assert result.exit_code == 1, result.output
    assert "checking mine against off on cpu" in result.output
    for text in (result.output, next(out.glob("*/summary.md")).read_text(encoding="utf-8")):
        assert "\n- mine compared with off on 5 cases, not on 1: nothing to compare 1\n" in text, "one case has no elements"
    assert "Compared with one another" in next(out.glob("*/report.html")).read_text(encoding="utf-8")
    (path,) = out.glob("*/*.json")
    small = json.loads(path.read_text(encoding="utf-8"))
    assert list(small["fingerprint"].values()) == ["mhc_pre", "mine", "pair", "h_post", "value", "off"]
    assert small["against"] == f"{kernels}:OFF"
    assert [small["case"][name] for name in ("B", "S", "n", "D")] == [1, 1, 2, 3], result.output
    assert small["reduction"]["reproduced"] == small["reduction"]["runs"] == 1
    command = f"replay {path} --impl {kernels}:MINE --against {kernels}:OFF"
    assert f"python -m mhc.fuzz {command}\n" in result.output
    again = fuzz(*command.split())
    assert again.exit_code == 1
    assert "pair with off h_post: FAIL: h_post[0, 0, 0] = " in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "nobody"], "--against nobody: no such implementation; known are triton, "),
        (["--against", "absent.py:IMPL"], "--against absent.py: no such file"),
        (["--against", "triton"], "--against triton: triton runs on cuda, not on cpu"),
        (
            ["--impl", "golden", "--against", "golden"],
            "--against golden: --impl names 'golden' too, and nothing is compared",
        ),
        (["--against", "golden", "--against", "golden"], "--against golden: another one is named 'golden' too"),
    ],
)
@pytest.mark.parametrize("verb", [[], ["replay"]])
def test_bad_usage_exits_2_and_says_why(verb: list[str], arguments: list[str], message: str, tmp_path: Path) -> None:
    case = tmp_path / "case.json"
    case.write_text(CASE.to_json(), encoding="utf-8")
    result = fuzz(*verb, *([case] if verb else ["--out", tmp_path / "runs"]), *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "runs").exists()


def test_without_impl_everything_else_is_compared_with_it() -> None:
    alone, none = load_pairs((), (), "cpu")
    chosen, peers = load_pairs((), ("golden",), "cpu")
    assert [one.name for one in peers] == ["golden"]
    assert none == ()
    assert [name for name, _ in chosen] == [name for name, _ in alone if name != "golden"]


def test_a_finding_is_not_compared_with_what_impl_names(tmp_path: Path) -> None:
    """Nor minimised there, nor promoted."""
    case = default_case(B=1, S=1, n=1, D=1, dtype="float32")
    failure = Verdict(oracle="pair", subject="h_in", status=Status.FAIL, symptom="value", against="golden")
    path = tmp_path / "found.json"
    path.write_text(finding("manual", MANUAL, case, failure, "golden").to_json(), encoding="utf-8")
    result = fuzz("replay", path, "--impl", "golden")
    assert result.exit_code == 0, result.output
    assert "not compared with golden, which it was found to differ from: --impl names it" in result.output
    for verb in ("minimise", "promote"):
        refused = fuzz(verb, path, "--impl", "golden")
        assert refused.exit_code == 2
        assert "is compared with golden, not with itself" in refused.output


@pytest.mark.slow
def test_a_run_goes_on_against_what_it_began_with(tmp_path: Path) -> None:
    first = fuzz("--cases", 2, "--workers", 1, "--impl", "manual", "--against", "golden", "--out", tmp_path)
    assert "manual compared with golden on 2 cases" in first.output
    (run,) = tmp_path.iterdir()
    again = fuzz("--resume", run, "--cases", 4, "--workers", 1)
    assert "manual compared with golden on 4 cases" in again.output
    refused = fuzz("--resume", run, "--against", "golden")
    assert refused.exit_code == 2
    assert "give none of them" in refused.output
