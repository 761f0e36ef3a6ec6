"""The plain loop, a test without this framework: Hypothesis draws shapes, `assert_close` on N(0, 1) with golden judges.

It runs in one process, as warm at its start as a campaign's, without limits, a database or gates. A failure counts
if the correct implementation passes on the same example; the time of that run is not counted.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import hypothesis
from hypothesis import Phase, assume
from hypothesis import strategies as st

from mhc.bench.apart import Ended, run_apart
from mhc.bench.detection.suites import COMPARATORS, Fixed, Test, judge
from mhc.case import Case, default_case, with_sizes
from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, Operator
from mhc.operators.mhc_pre.table import PRE
from mhc.registry import load
from mhc.strategies.rounds import ROUND, quiet

_LAST_EXAMPLE = 120.0  # seconds that an example may take which is begun at the last moment
DTYPES = tuple(STORAGE_DTYPES)
_SMALL, _LARGE = 1 << 15, 1 << 18  # elements
_TOKENS, _WIDTH, _LAYER = 8, 256, 8192  # the most of an axis: of tokens, another one, one as large as a layer's


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


@st.composite
def declared(draw: st.DrawFn, table: Operator) -> Case:
    """Return the same for an operator beside mHC pre: sizes of its axes, and tensors N(0, 1) or uniform integers."""
    large = draw(st.integers(0, 9)) == 9
    limit = left = _LARGE if large else _SMALL
    layer = draw(st.sampled_from(table.axis_names)) if large else ""
    sizes = {}
    for axis in draw(st.permutations(table.axes)):
        most = _LAYER if axis.name == layer else _TOKENS if axis.name in table.tokens else _WIDTH
        least = max(1, axis.least)
        sizes[axis.name] = draw(st.integers(least, max(least, min(axis.most, most, left))))
        left //= sizes[axis.name]
    assume(table.problem(sizes) is None)
    every = table.sizes(sizes)
    assume(max(math.prod(spec.shape(every)) for spec in table.drawn) <= limit)
    return with_sizes(default_case(operator=table.name, dtype=draw(st.sampled_from(DTYPES))), **sizes)


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
    correct: str | None = None,
) -> Loop:
    """Draw examples until `seconds` or `cases` are over, or every comparator has found something.

    Args:
        correct: names what `implementation` should be; without it nothing counts as found.
    """
    right = None if correct is None else load(correct)
    done, asking = 0, 0.0
    kills: dict[str, float] = {}
    started = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - started - asking

    def over() -> bool:
        return spent() >= seconds or done >= cases or len(kills) == len(COMPARATORS)

    def body(example: Test) -> None:
        nonlocal done, asking
        if over():
            return
        said = judge(implementation, [example])
        done += 1
        found = [name for name, failures in said.items() if failures and name not in kills]
        if right is None or not found:
            return
        at, before = spent(), time.perf_counter()
        fails = judge(right, [example])
        kills.update({name: at for name in found if not fails[name]})
        asking += time.perf_counter() - before

    configured = quiet(ROUND, phases=(Phase.generate,))
    table = implementation.table
    tests: st.SearchStrategy[Test] = fixed() if table is PRE else declared(table)
    while not over():
        hypothesis.seed(seed)(configured(hypothesis.given(tests)(body)))()
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
    task = partial(loop, seconds=seconds, cases=cases, seed=seed, correct=correct)
    try:
        result: Loop = run_apart(task, spec, limit=seconds + _LAST_EXAMPLE, variables=variables)
    except Ended as ended:
        if ended.status is None:  # without a limit, a hang is found only when a person looks
            return Loop(seconds=seconds, ended="hangs")
        kills = dict.fromkeys(COMPARATORS, ended.seconds) if ended.seconds <= seconds else {}
        return Loop(seconds=min(ended.seconds, seconds), kills=kills, ended="ends the process")
    return result
