"""Every case in tests/regressions on every implementation that runs here, by every gate: what was wrong once stays right.

A finding's file, or a case's: both are copied there as they are. regressions/README.md says what each one was.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from mhc import CaseError, Implementation, load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import finding, read_against, read_case
from mhc.fuzz.findings.known_issues import expected
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.report import write_finding
from mhc.fuzz.worker.limits import Limits, Peers
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.peer import PeerProcess, start_peers
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles.verdict import Status, failed
from mhc.registry import built_in
from tests.support.helpers import ON_CPU, ON_CUDA, ROOT, device_of, failure_text, scaled_case

FOLDER = ROOT / "tests" / "regressions"
LARGE = 200
"""Elements of x above which a case takes seconds in Triton's interpreter."""


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def depth(implementation: Implementation, found_on: str | None) -> Level:
    """All gates; of what others found one run in Triton's interpreter, where every further one takes up to a second."""
    slow = implementation.name == "triton-interpreted" and found_on != implementation.name
    return Level.PLAIN if slow else Level.FULL


def replayed(path: Path, implementation: Implementation) -> str:
    """What fails first, and the command that shows everything again; empty where nothing does."""
    case, found_on = read_case(path)
    device = device_of(implementation)
    with peer_processes(read_against(path), implementation, device) as peers:
        verdicts = check(implementation, case, device, depth(implementation, found_on), peers=peers).verdicts
    failures = [one for one in verdicts if one.status is Status.FAIL]
    if not failures:
        return ""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    more = "" if len(failures) == 1 else f"\n    and {len(failures) - 1} more"
    found = finding(implementation.name, implementation, case, failures[0])
    chosen = f" --impl {implementation.name}" if implementation.name in built_in() else ""  # others are named already
    return failure_text(found, shown, device) + chosen + more


@contextmanager
def peer_processes(against: str | None, implementation: Implementation, device: str) -> Iterator[list[PeerProcess]]:
    """What the finding was compared with, where this is not it and it runs there."""
    if against is None or against == implementation.name or device not in load(against).devices:
        yield []
        return
    beside = Peers(peers=(Peer.of(against, load(against)),), limits=Limits(), log=None, gpu=None)
    (peer,) = start_peers(beside, device, os.environ, lambda message: None, serve)
    try:
        yield [peer]
    finally:
        peer.stop()


def replays() -> list[ParameterSet]:
    """Return each file with each implementation; large cases in Triton's interpreter are slow."""
    return [
        pytest.param(path, one, id=f"{path.stem}-{one.name}", marks=[pytest.mark.slow] if slow else [])
        for path in files(FOLDER)
        for one in (*ON_CPU, *ON_CUDA)
        for slow in [one.name == "triton-interpreted" and elements(read_case(path)[0]) > LARGE]
    ]


@pytest.mark.parametrize(("path", "implementation"), replays())
def test_it_stays_right(path: Path, implementation: Implementation) -> None:
    failures = replayed(path, implementation)
    entry = expected(path.name, implementation.name)
    if entry is not None:
        kind = entry.fingerprint
        assert f": {kind.subject}: {kind.symptom} ({kind.oracle})\n" in failures, (
            f"not as the known issue says: {entry}\n{failures}"
        )
        pytest.xfail(str(entry))
    if failures:
        pytest.fail(failures, pytrace=False)


def test_each_file_is_explained() -> None:
    explained = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in files(FOLDER) if f"`{path.name}`" not in explained] == []


def test_the_suite_executes_nothing_that_a_file_names() -> None:
    """A file that somebody sends is copied there as it is, and loaded by name."""
    named = [name for path in files(FOLDER) for name in (read_case(path)[1], read_against(path)) if name is not None]
    assert set(named) <= set(built_in())
    assert named


CASE = scaled_case(B=1, S=1, n=2, D=3, dtype="float32")


def test_a_finding_and_a_bare_case_are_replayed(tmp_path: Path) -> None:
    wrong = load("mhc.oracles.mutants.load:post_without_its_2")
    (failure,) = [one for one in check(wrong, CASE, "cpu", Level.PLAIN).verdicts if one.status is Status.FAIL]
    found = write_finding(tmp_path, finding("manual", MANUAL, CASE, failure))
    bare = tmp_path / "bare.json"
    bare.write_text(CASE.to_json(), encoding="utf-8")
    (tmp_path / "README.md").write_text("no case", encoding="utf-8")
    assert files(tmp_path) == sorted([found, bare])
    for path in files(tmp_path):
        assert replayed(path, GOLDEN) == ""
        lines = replayed(path, wrong).splitlines()
        assert lines[0] == "FOUND post_without_its_2: h_post: value (bound)"
        assert lines[1].startswith("    h_post[0, 0, ")
        device = "" if device_of(wrong) == "cpu" else " --device cuda"
        assert lines[3] == f"    python -m mhc.fuzz replay {path}{device} --impl post_without_its_2"
        assert max(len(line.replace(str(tmp_path), "tests/regressions")) for line in lines) <= 120


def test_a_finding_of_the_pair_gate_is_compared_again(tmp_path: Path) -> None:
    beside = "mhc.oracles.mutants.load:post_without_its_2"
    failure = failed("pair", "h_post", "value", "as found")
    found = write_finding(tmp_path, finding("manual", MANUAL, CASE, replace(failure, against=load(beside).name), beside))
    assert replayed(found, MANUAL).startswith("FOUND manual: h_post: value (pair with post_without_its_2)\n    h_post[")


def test_an_empty_folder_has_no_tests(tmp_path: Path) -> None:
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"case": {"schema": 1, "n": 99}}', "n: must be in 1..16"),
        ("{}", "schema: missing"),
    ],
)
def test_a_file_that_is_no_case_fails_its_own_test(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CaseError, match=message):
        replayed(path, MANUAL)
