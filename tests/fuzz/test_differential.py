"""The pair gate: what is checked is compared with another implementation too."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from mhc import Case, Implementation, Refused, materialise, observe, reference
from mhc.fuzz.check import differential
from mhc.fuzz.check.check import check
from mhc.fuzz.check.differential import Peer, PeerResult, RunningPeer, compared
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import finding, read_against, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.worker import peer as peer_module
from mhc.fuzz.worker.protocol import Message
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import liveness
from mhc.oracles.tolerances import tolerances
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable, passed
from tests.support.helpers import ROOT, altered, scaled_case

CASE = scaled_case(B=1, S=2, n=2, D=3, dtype="float32")


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


@pytest.mark.parametrize("depth", [one for one in Level if one is not Level.REFERENCE])
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


def test_where_both_are_right_by_themselves_it_is_told() -> None:
    """The sum of both tolerances is what a pair may differ by: then the reference is wrong, or the gate."""
    disagree = failed("pair", "h_post", "value", "h_post[0] = 1, other 2")
    inputs = materialise(CASE)
    wanted = reference(inputs)
    allowed, mine = tolerances(inputs, wanted), observe(MANUAL, inputs, wanted.saved)
    right, wrong = replace(mine, implementation="other"), observe(off("other"), inputs, wanted.saved)
    nan = {name: None if one is None else one * float("nan") for name, one in mine.outputs.items()}
    for theirs, note in (
        (right, "neither fails by itself"),
        (wrong, "other fails bound by itself"),
        (replace(right, outputs=nan), "other fails nonfinite by itself"),
    ):
        told = differential._explained(disagree, theirs, allowed)
        assert told == replace(disagree, message=f"{disagree.message}; {note}")
    agree = passed("pair", "h_post")
    assert differential._explained(agree, wrong, allowed) is agree
    missing = replace(right, outputs={**right.outputs, "h_post": None})
    assert differential._explained(disagree, missing, allowed) is disagree
    assert differential._explained(disagree, wrong, replace(allowed, outputs={})) is disagree


def test_in_words_how_often_pairs_were_compared() -> None:
    counts = {
        "mine": {"compared with golden": 7.0, "not compared with golden: refused": 2.0, "checked": 9.0},
        "yours": {"not compared with other: SIGSEGV": 1.0},
    }
    told = differential.pairs(["golden", "other"], counts)
    assert [(one.name, one.against, one.cases, dict(one.missing)) for one in told] == [
        ("mine", "golden", 7, {"refused": 2}),
        ("mine", "other", 0, {}),
        ("yours", "golden", 0, {}),
        ("yours", "other", 0, {"SIGSEGV": 1}),
    ]
    assert str(told[0]) == "mine compared with golden on 7 cases, not on 2: refused 2"
    assert str(told[2]) == "yours compared with golden on 0 cases"
    nothing = replace(not_applicable("pair", "case", "none"), against="other")
    assert compared([nothing, passed("bound", "dx")]) == ("not compared with other: nothing to compare",)


def test_what_is_declared_is_known_of_a_peer() -> None:
    declared = replace(MANUAL, recomputes_forward=True, env={"A": "1"})
    peer = Peer.of("mine.py:IMPL", declared)
    assert (peer.spec, peer.name, peer.variables) == ("mine.py:IMPL", "manual", {"A": "1"})
    assert peer.declared == declared.declared != Peer.of("mine.py:IMPL", MANUAL).declared


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
