"""The loop that one would otherwise write: Hypothesis draws shapes, x ~ N(0, 1), and `assert_close` with golden judges.

It runs in one process, as warm at its start as a campaign's, without limits, a database or gates. What it finds counts
where the correct implementation passes on the same example; the time that finding this out takes is not counted.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import MappingProxyType

import hypothesis
import torch
from hypothesis import Phase
from hypothesis import strategies as st

from mhc.bench.detection.suites import COMPARATORS, Fixed, judge
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.registry import load
from strategies.rounds import ROUND, quiet

_START_LIMIT = 120.0
DTYPES = tuple(STORAGE_DTYPES)
_LARGE = 1 << 18


def fixed() -> st.SearchStrategy[Fixed]:
    """Return shapes of up to 2^15 elements of x; one of ten is as large as a model's layer."""
    small = st.builds(
        Fixed,
        B=st.integers(1, 2),
        S=st.integers(1, 8),
        n=st.integers(1, 8),
        D=st.integers(1, 256),
        dtype=st.sampled_from(DTYPES),
    )
    return st.integers(0, 9).flatmap(lambda tenth: _large() if tenth == 9 else small)


@st.composite
def _large(draw: st.DrawFn) -> Fixed:
    """Return streams, widths and tokens of models, of up to `_LARGE` elements of x."""
    n, D = draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 8192))
    S = draw(st.integers(1, max(1, min(4096, _LARGE // (n * D)))))
    return Fixed(1, S, n, D, draw(st.sampled_from(DTYPES)))


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The result of a plain loop.

    Attributes:
        cases: examples run. seconds: that they took, with drawing.
        kills: by comparator, seconds until it first found what the correct implementation passes.
        ended: how its process ended on an example, in a word, or nothing.
    """

    cases: int = 0
    seconds: float = 0.0
    kills: Mapping[str, float] = field(default_factory=dict)
    ended: str = ""


def loop(
    implementation: Implementation,
    *,
    seconds: float,
    cases: float = float("inf"),
    seed: int = 0,
    correct: Implementation | None = None,
) -> Loop:
    """Draw examples until `seconds` or `cases` are over, or every comparator has found something.

    Args:
        correct: what `implementation` should be; without it nothing counts as found.
    """
    done, asking = 0, 0.0
    kills: dict[str, float] = {}
    started = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - started - asking

    def over() -> bool:
        return spent() >= seconds or done >= cases or len(kills) == len(COMPARATORS)

    def body(example: Fixed) -> None:
        nonlocal done, asking
        if over():
            return
        said = judge(implementation, [example])
        done += 1
        found = [name for name, failures in said.items() if failures and name not in kills]
        if correct is None or not found:
            return
        at, before = spent(), time.perf_counter()
        right = judge(correct, [example])
        kills.update({name: at for name in found if not right[name]})
        asking += time.perf_counter() - before

    configured = quiet(ROUND, phases=(Phase.generate,))
    while not over():
        hypothesis.seed(seed)(configured(hypothesis.given(fixed())(body)))()
        seed += 1
    return Loop(cases=done, seconds=spent(), kills=kills)


def apart(
    spec: str,
    *,
    seconds: float,
    cases: float = float("inf"),
    seed: int = 0,
    correct: str | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Loop:
    """Run `loop` in a process of its own, which a bug may end or hang: that counts as found by every comparator.

    Args:
        variables: of the environment, beside those of the implementation.
    """
    own = {**load(spec).env, **variables}
    here, there = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_serve, args=(there, spec, own, seconds, cases, seed, correct))
    process.start()
    there.close()
    try:
        if not here.poll(_START_LIMIT):
            raise TimeoutError(f"the plain loop over {spec} did not start in {_START_LIMIT:.0f} s")
        here.recv()
        started = time.perf_counter()
        if here.poll(seconds + _START_LIMIT):  # an example may be begun at the last moment, and take its time
            result: Loop = here.recv()
            return result
        ended, at = "hangs", float("inf")  # without a limit, a hang is found only when a person looks
    except (EOFError, ConnectionResetError):
        ended, at = "ends the process", time.perf_counter() - started
    finally:
        process.kill()
        process.join()
        here.close()
    return Loop(seconds=min(at, seconds), kills=dict.fromkeys(COMPARATORS, at) if at <= seconds else {}, ended=ended)


def _serve(
    connection: Connection,
    spec: str,
    variables: Mapping[str, str],
    seconds: float,
    cases: float,
    seed: int,
    correct: str | None,
) -> None:
    os.environ.update(variables)  # before anything of a DSL is imported
    torch.set_num_threads(1)
    implementation, right = load(spec), None if correct is None else load(correct)
    connection.send(None)
    connection.send(loop(implementation, seconds=seconds, cases=cases, seed=seed, correct=right))
