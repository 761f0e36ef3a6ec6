"""The implementations that tests/oracles/test_pairs.py compares, and one case run by all of them."""

import itertools
import multiprocessing
import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import hypothesis
import torch
from hypothesis.strategies import SearchStrategy

from mhc import Case, Implementation, Observation, load, materialise, observe, reference
from mhc.oracles import pair
from mhc.oracles.bound import tolerances
from mhc.oracles.pair import Side
from mhc.oracles.verdict import Status, Verdict
from mhc.registry import built_in
from mhc.strategies.rounds import quiet
from tests.support.device import ASKED
from tests.support.helpers import ON_CPU, ON_CUDA, device_of


@dataclass(frozen=True)
class Participant:
    """An implementation on a device.

    Attributes:
        apart: in a process of its own, with the environment that it needs and this one has not.
    """

    implementation: Implementation
    device: str
    apart: bool = False


def participants() -> list[Participant]:
    """Return every implementation that can run here; with a GPU beside the CPU, on each device that it takes."""
    every = [Participant(one, device_of(one)) for one in (*ON_CPU, *ON_CUDA)]
    if ON_CUDA and ASKED.device == "auto":
        every += [Participant(one, "cuda") for one in ON_CPU if "cuda" in one.devices]
        every += [
            Participant(one, "cpu", apart=True)
            for one in built_in("mhc_pre").values()
            if "cpu" in one.devices and one not in ON_CPU
        ]
    return every


def sides(case: Case, those: Sequence[Participant]) -> list[Side]:
    """Run each on `case`, in memory of its own; return the observations and their tolerances."""
    inputs = materialise(case)
    right = reference(inputs)
    allowed = {
        declared: tolerances(inputs, right, declared=declared) for declared in {one.implementation.declared for one in those}
    }
    return [Side(observation=_observe(one, case), allowed=allowed[one.implementation.declared]) for one in those]


def _observe(one: Participant, case: Case) -> Observation:
    if not one.apart:
        inputs = materialise(case, one.device)
        return observe(one.implementation, inputs, reference(inputs).saved)
    pickled = _process(one.implementation.name).submit(_observe_by_name, one.implementation.name, case.json).result()
    empty = observe(one.implementation, materialise(case), {}, stages=())
    return replace(empty, **pickle.loads(pickled))


@cache
def _process(name: str) -> ProcessPoolExecutor:
    """Return the process of one implementation; it starts at the first call, which must find the environment set."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with _environment_variables(load(name).env):
        pool.submit(int).result()
    return pool


def _observe_by_name(name: str, text: str) -> bytes:
    """Return an observation as plain bytes: PyTorch would send tensors through shared memory."""
    torch.set_num_threads(1)
    inputs = materialise(Case.from_json(text))
    done = observe(load(name), inputs, reference(inputs).saved)
    fields: Mapping[str, Any] = {field: getattr(done, field) for field in ("outputs", "gradients", "refused", "failure")}
    return pickle.dumps(fields)


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A case on which two are too far apart."""

    pair: tuple[Participant, Participant]
    case: Case
    verdict: Verdict

    @property
    def key(self) -> tuple[str, str]:
        return self.verdict.subject, self.verdict.symptom


class _ApartError(AssertionError):
    """What Hypothesis shrinks."""


def hunt(
    those: Sequence[Participant], strategy: SearchStrategy[Case], examples: int, seed: int | None, compared: Counter[str]
) -> Apart | None:
    """Compare all pairs on drawn cases; return a case shrunk for the first pair that is too far apart, or None.

    `compared` counts, by pair, the cases on which something of the two could be compared.
    """
    found: list[Apart] = []

    def body(case: Case) -> None:
        who = found[0].pair if found else those
        ran = zip(who, sides(case, who), strict=True)
        for (left, one), (right, other) in itertools.combinations(ran, 2):
            verdicts = pair.judge(one, other)
            compared[title(left, right)] += any(verdict.status is Status.PASS for verdict in verdicts)
            for verdict in verdicts:
                apart = Apart(pair=(left, right), case=case, verdict=verdict)
                if verdict.status is Status.FAIL and (not found or apart.key == found[0].key):
                    found.append(apart)
                    raise _ApartError

    test = quiet(examples)(hypothesis.given(strategy)(body))
    try:
        (test if seed is None else hypothesis.seed(seed)(test))()
    except _ApartError:
        return found[-1]
    return None


def title(left: Participant, right: Participant) -> str:
    return " and ".join(f"{one.implementation.name} on {one.device}" for one in (left, right))


@contextmanager
def _environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and put the old ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
