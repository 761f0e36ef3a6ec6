"""Differential testing: the pair gate compares the first run with a peer's result on the same case."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from mhc.case import Case
from mhc.declared import AS_REFERENCE, Declared
from mhc.implementation import Implementation
from mhc.observation import Failure, Observation
from mhc.oracles import bound, liveness, nonfinite, pair
from mhc.oracles.pair import Side
from mhc.oracles.tolerances import Tolerances, tolerances
from mhc.oracles.trial import Trial, results
from mhc.oracles.verdict import Status, Verdict, not_applicable

_JUDGES = (bound.NAME, nonfinite.NAME)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An implementation that others are compared with: what processes that never load it must know of it.

    Attributes:
        spec: how it was named on the command line.
    """

    spec: str
    name: str
    variables: Mapping[str, str]
    declared: Declared = AS_REFERENCE

    @classmethod
    def of(cls, spec: str, implementation: Implementation) -> Self:
        return cls(
            spec=spec,
            name=implementation.name,
            variables=dict(implementation.env),
            declared=implementation.declared,
        )


@dataclass(frozen=True, kw_only=True)
class PeerResult:
    """What a peer computed. tensors: outputs and gradients, pickled: PyTorch would send them through shared memory."""

    refused: str | None
    failure: Failure | None
    tensors: bytes


class RunningPeer(Protocol):
    """What a check asks of `mhc.fuzz.worker.peer.PeerProcess`."""

    @property
    def peer(self) -> Peer: ...

    def run(self, case: Case) -> PeerResult | Verdict:
        """Return the peer's result on a case, or the liveness verdict on its process where that gave no answer."""
        ...


def against(other: RunningPeer, trial: Trial, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the pair gate's verdicts on a trial that already has `verdicts`.

    An output that fails by itself is reported once, by the gate that found it. A crash or refusal of the peer gives a
    verdict "not applicable" with the peer's symptom.
    """
    mine, peer = trial.observation, other.peer
    if mine.failure is not None:
        return [_not_compared(peer, "failed itself", f"{mine.implementation} raised {mine.failure.type}")]
    answer = other.run(trial.case)
    if isinstance(answer, Verdict):
        return [_not_compared(peer, answer.symptom, f"{peer.name}: {answer.message}")]
    if answer.refused is not None:
        return [_not_compared(peer, "refused", f"{peer.name} refused: {answer.refused}")]
    if answer.failure is not None:
        reason = f"{peer.name}: {answer.failure.stage} raised {answer.failure.type}: {answer.failure.message}"
        return [_not_compared(peer, liveness.symptom(answer.failure), reason)]
    outputs, gradients = pickle.loads(answer.tensors)
    theirs = replace(mine, implementation=peer.name, outputs=outputs, gradients=gradients)
    allowed = trial.allowed
    if peer.declared != trial.declared:
        allowed = tolerances(trial.inputs, trial.reference, declared=peer.declared)
    wrong = {one.subject: one.oracle for one in verdicts if one.status is Status.FAIL and one.oracle in _JUDGES}
    judged = []
    for verdict in pair.judge(Side(observation=mine, allowed=trial.allowed), Side(observation=theirs, allowed=allowed)):
        one = _explained(verdict, theirs, allowed)
        if verdict.subject in wrong:
            one = not_applicable(pair.NAME, verdict.subject, f"fails {wrong[verdict.subject]} by itself")
        judged.append(replace(one, against=peer.name))
    return judged


def _explained(verdict: Verdict, theirs: Observation, allowed: Tolerances) -> Verdict:
    """Add to a disagreement whether the peer's result fails by itself: one of the two is wrong, or the reference is."""
    value = results(theirs).get(verdict.subject)
    wanted = {**allowed.outputs, **allowed.gradients}.get(verdict.subject)
    if verdict.status is not Status.FAIL or value is None or wanted is None:
        return verdict
    alone = (bound.judge_tensor(verdict.subject, value, wanted), nonfinite.judge_tensor(verdict.subject, value, wanted))
    failing = [one.oracle for one in alone if one.status is Status.FAIL]
    note = f"{theirs.implementation} fails {' and '.join(failing)} by itself" if failing else "neither fails by itself"
    return replace(verdict, message=f"{verdict.message}; {note}")


def _not_compared(peer: Peer, symptom: str, reason: str) -> Verdict:
    return replace(not_applicable(pair.NAME, "case", reason, symptom), against=peer.name)


def compared(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return, in words that the store counts, with which peers a case was compared, and with which not and why."""
    words = []
    for name in dict.fromkeys(one.against for one in verdicts if one.against):
        own = [one for one in verdicts if one.against == name]
        if any(one.status is not Status.NOT_APPLICABLE for one in own):
            words.append(f"compared with {name}")
        else:
            words.append(f"not compared with {name}: {own[0].symptom or 'nothing to compare'}")
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How often one implementation was compared with another. missing: how often not, by reason."""

    name: str
    against: str
    cases: int
    missing: Mapping[str, int]

    def __str__(self) -> str:
        line = f"{self.name} compared with {self.against} on {self.cases} cases"
        why = ", ".join(f"{words} {n}" for words, n in self.missing.items())
        return f"{line}, not on {sum(self.missing.values())}: {why}" if self.missing else line


def pairs(peers: Sequence[str], counts: Mapping[str, Mapping[str, float]]) -> list[Pair]:
    """Return a `Pair` for each implementation of a campaign and each peer, by name, from the store's counts."""
    found = []
    for name, own in counts.items():
        for peer in peers:
            start = f"not compared with {peer}: "
            missing = {words.removeprefix(start): round(n) for words, n in own.items() if words.startswith(start)}
            cases = round(own.get(f"compared with {peer}", 0))
            found.append(Pair(name=name, against=peer, cases=cases, missing=missing))
    return found
