"""`--against`: what is checked is compared with another implementation too, which has a process of its own."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mhc import Case, Implementation, Refused, default_case, load
from mhc.fuzz.campaign import campaign
from mhc.fuzz.check.check import check
from mhc.fuzz.check.differential import Peer, PeerResult, RunningPeer, compared
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.options import load_pairs
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import finding, read_against, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.minimise import minimise
from mhc.fuzz.worker import peer as peer_module
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.limits import Limits, Peers
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.peer import PeerProcess, start_peers
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Message
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from oracles import liveness
from oracles.verdict import Status, Verdict
from tests.support.helpers import ROOT, altered, scaled_case

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


class Here:
    """A peer without a process."""

    def __init__(self, implementation: Implementation) -> None:
        self.peer = Peer.of(f"{implementation.name}.py:IMPL", implementation)
        self._implementation = implementation

    def run(self, case: Case) -> PeerResult | Verdict:
        said: list[Message] = []
        peer_module.run(self._implementation, case.json, "cpu", said.append)
        answer = said[-1]
        assert isinstance(answer, PeerResult)
        return answer


class Dead:
    """A peer whose process is gone."""

    peer = Peer.of("dead.py:IMPL", replace(MANUAL, name="dead"))

    def run(self, case: Case) -> Verdict:
        return liveness.died("SIGSEGV")


def off(name: str, index: int = 1, **fields: Any) -> Implementation:
    """`manual` with an output that is much too large."""
    return replace(
        altered(MANUAL, forward=lambda returned, _: (*returned[:index], returned[index] * 1.5, *returned[index + 1 :])),
        name=name,
        **fields,
    )


def pairs(verdicts: list[Verdict]) -> dict[str, Verdict]:
    return {one.subject: one for one in verdicts if one.oracle == "pair"}


@pytest.mark.parametrize("depth", list(Level))
def test_a_disagreement_fails_and_says_who_is_wrong_by_itself(depth: Level) -> None:
    told = pairs(check(MANUAL, CASE, "cpu", depth, peers=[Here(off("other"))]).verdicts)
    failures = [one for one in told.values() if one.status is Status.FAIL]
    assert [(one.subject, one.symptom, one.against) for one in failures] == [("h_post", "value", "other")]
    assert " manual, " in failures[0].message
    assert failures[0].message.endswith("; other fails bound by itself")
    assert sum(one.status is Status.PASS for one in told.values()) == 10
    assert compared(list(told.values())) == ("compared with other",)


def test_what_the_bound_says_already_is_not_told_twice() -> None:
    verdicts = check(off("mine"), CASE, "cpu", Level.PLAIN, peers=[Here(MANUAL), Here(off("other", index=0))]).verdicts
    failures = [(one.oracle, one.subject, one.against) for one in verdicts if one.status is Status.FAIL]
    assert failures == [("bound", "h_post", ""), ("pair", "h_in", "other")]
    (told,) = [one for one in verdicts if one.against == "manual" and one.subject == "h_post"]
    assert (told.status, told.message) == (Status.NOT_APPLICABLE, "fails bound by itself")


def test_a_peers_faults_are_not_the_subjects() -> None:
    def raises(*_: object, **__: object) -> Sequence[Any]:
        raise ZeroDivisionError("theirs")

    refuses = replace(MANUAL, name="refuses", supports=lambda case: Refused("never"))
    peers: list[RunningPeer] = [Here(refuses), Here(replace(MANUAL, name="raises", forward=raises)), Dead()]
    verdicts = check(MANUAL, CASE, "cpu", Level.PLAIN, peers=peers).verdicts
    assert not [one for one in verdicts if one.status is Status.FAIL]
    assert [one.message for one in verdicts if one.against] == [
        "refuses refused: never",
        "raises: forward raised ZeroDivisionError: theirs",
        "dead: its process ended in the middle of the case: SIGSEGV",
    ]
    assert compared(verdicts) == (
        "not compared with refuses: refused",
        "not compared with raises: raises ZeroDivisionError",
        "not compared with dead: SIGSEGV",
    )


def test_what_fails_itself_asks_no_peer() -> None:
    def raises(*_: object, **__: object) -> Sequence[Any]:
        raise ZeroDivisionError("mine")

    verdicts = check(replace(MANUAL, name="mine", forward=raises), CASE, "cpu", peers=[Dead()]).verdicts
    assert [one.message for one in verdicts if one.against] == ["mine raised ZeroDivisionError"]
    assert compared(verdicts) == ("not compared with dead: failed itself",)


def test_a_peer_that_recomputes_is_allowed_its_own_tolerance() -> None:
    """Its gradients contain the forward's error."""
    case = scaled_case(B=1, S=1, n=1, D=1, dtype="float32")
    wrong = altered(MANUAL, backward=lambda returned, _: (returned[0] * 1.5, *returned[1:]))
    bounds = []
    for recomputes in (False, True):
        other = replace(wrong, name="other", recomputes_forward=recomputes)
        told = pairs(check(MANUAL, case, "cpu", Level.PLAIN, peers=[Here(other)]).verdicts)["dx"]
        bounds.append([float(number) for number in told.message.split("bound ")[1].split(";")[0].split(" + ")])
    assert bounds[0][0] == bounds[0][1] == bounds[1][0] < bounds[1][1]


def test_without_a_peer_nothing_is_compared() -> None:
    assert not [one for one in check(MANUAL, CASE, "cpu", Level.FULL).verdicts if one.oracle == "pair" or one.against]


def test_fingerprints_tell_peers_apart_and_are_what_they_were_without_one() -> None:
    verdicts = check(MANUAL, CASE, "cpu", Level.PLAIN, peers=[Here(off("one")), Here(off("two"))]).verdicts
    one, two = (Fingerprint.of(verdict, CASE.operator, MANUAL.name) for verdict in verdicts if verdict.status is Status.FAIL)
    assert one.id != two.id
    assert replace(one, against="two") == two
    assert str(one) == "manual: h_post: value (pair with one)"
    (first,) = [verdict for verdict in verdicts if one.fits(verdict)]
    assert first.against == "one"
    plain = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")
    fields = {name: value for name, value in asdict(plain).items() if name != "against"}
    assert plain.id == hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]


def test_a_finding_remembers_what_it_was_compared_with(tmp_path: Path) -> None:
    (failure,) = [
        one
        for one in check(MANUAL, CASE, "cpu", Level.PLAIN, peers=[Here(off("other"))]).verdicts
        if one.status is Status.FAIL
    ]
    found = finding("manual", MANUAL, CASE, failure, "other.py:IMPL")
    path = tmp_path / "found.json"
    path.write_text(found.to_json(), encoding="utf-8")
    assert read_finding(path) == found
    assert read_against(path) == "other.py:IMPL"
    alone = replace(found, against=None, fingerprint=replace(found.fingerprint, against=""))
    path.write_text(alone.to_json(), encoding="utf-8")
    assert '"against"' not in path.read_text(encoding="utf-8")
    assert read_against(path) is None
    regressions = ROOT / "tests" / "regressions"
    assert fixtures.folder_for(found, tmp_path) == tmp_path
    assert fixtures.folder_for(replace(found, against="golden"), tmp_path) == regressions
    assert fixtures.folder_for(alone, tmp_path) == regressions


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


def test_a_campaign_finds_it_once_makes_it_small_and_replays_it(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimise, "RUNS", 1)
    monkeypatch.setattr(campaign, "_MINIMISE_SECONDS", 600.0)  # the tests beside this one may take most of the cores
    out = tmp_path / "runs"
    chosen = ("--impl", f"{kernels}:MINE", "--against", f"{kernels}:OFF")
    result = fuzz("--cases", 6, "--seed", 2, "--workers", 1, "--out", out, *chosen)
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
