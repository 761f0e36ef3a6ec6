"""Every implementation that this process can run, on drawn cases, judged by every gate the cases draw.

Generated from the registry: an implementation is tested by being registered. Blocks are independent, so xdist spreads them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

from mhc import Case, Implementation
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.check.timing import Timing
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.report import write_finding
from mhc.oracles.judge import outcomes
from mhc.oracles.verdict import Status
from mhc.strategies.cases import cases
from mhc.strategies.reach import Reach
from mhc.strategies.rounds import ROUND, quiet
from tests.support.helpers import ON_CPU, ON_CUDA, device_of, failure_text, report_folder

BLOCKS = {"triton-interpreted": 22}
"""Of the others 48. A case in Triton's interpreter takes as long as fifty of theirs, more with many streams."""
ELEMENTS = {"triton-interpreted": 1 << 9}
FAR = {Reach.STRETCHED: (3, 1 << 17), Reach.MODEL: (3, 1 << 18)}
"""Blocks of cases whose sizes reach far, and their elements; none in Triton's interpreter, where one takes a minute."""
QUICK = {"triton-interpreted": 1}
"""The first blocks of usual sizes, of others 12, and the first of each that reaches far, are not slow tests."""


def blocks() -> Iterator[ParameterSet]:
    """Yield implementation, block and reach; the first blocks of each are in every run."""
    every = [*ON_CPU, *ON_CUDA]
    for one in every:
        yield from _numbered(one, Reach.USUAL, BLOCKS.get(one.name, 48), QUICK.get(one.name, 12))
    for one in every:
        for reach, (count, _) in FAR.items() if one.name not in BLOCKS else ():
            yield from _numbered(one, reach, count, 1)


def _numbered(one: Implementation, reach: Reach, count: int, quick: int) -> Iterator[ParameterSet]:
    for block in range(count):
        marks = () if block < quick else (pytest.mark.slow,)
        yield pytest.param(one, block, reach, id=f"{one.name}-{block}-{reach.name.lower()}", marks=marks)


class FoundError(AssertionError):
    """What Hypothesis shrinks."""


@pytest.mark.parametrize(("implementation", "block", "reach"), list(blocks()))
def test_nothing_is_found(
    implementation: Implementation,
    block: int,
    reach: Reach,
    record_property: Callable[[str, object], None],
    tmp_path: Path,
) -> None:
    clock, found, drawn, became = Timing(), list[Finding](), 0, Counter[str]()
    device = device_of(implementation)
    spec = implementation.name if implementation.origin == "built in" else implementation.origin

    def body(case: Case) -> None:
        nonlocal drawn
        drawn += 1
        verdicts = check(implementation, case, device, Level.FULL if found else Level.DRAWN, clock).verdicts
        became.update(f"{outcome}: {name}" for name, outcome in outcomes(verdicts).items())
        failures = [verdict for verdict in verdicts if verdict.status is Status.FAIL]
        same = [
            one
            for one in failures
            if not found or finding("", implementation, case, one).fingerprint == found[0].fingerprint
        ]
        if same:
            found.append(finding(spec, implementation, case, same[0]))
            raise FoundError

    space = {implementation.name: implementation.schedule} if implementation.schedule else {}
    elements = ELEMENTS.get(implementation.name, 1 << 13) if reach is Reach.USUAL else FAR[reach][1]
    strategy = cases(max_elements=elements, spaces=space, reach=reach)
    nightly = settings().max_examples >= 1000
    test = quiet(ROUND * (50 if nightly else 1))(hypothesis.given(strategy)(body))
    started = time.perf_counter()
    try:
        (test if nightly else hypothesis.seed(block)(test))()  # other cases every night; a finding holds its own
    except FoundError:
        pass  # reported below: pytest would print that one exception came during another
    finally:
        clock.drawing = time.perf_counter() - started - clock.checking
        record_property("outcomes", [implementation.name, dict(became)])
        record_property("clock", [drawn, clock.running, clock.reference, clock.checking, clock.drawing])
    if found:
        path = write_finding(report_folder(tmp_path), found[-1])
        pytest.fail(failure_text(found[-1], path, device), pytrace=False)


def test_the_clock_adds_up() -> None:
    clock = Timing(running=3.0, reference=1.0, checking=4.5, drawing=0.5)
    assert clock.framework == pytest.approx(0.2)
    with clock.spent("running"):
        pass
    assert clock.running > 3.0
    assert Timing().framework == 0.0
