"""Run a repro on a list of releases: which fail, which pass, and between which two that changed.

Each release gets several runs. Where the list is long, its ends are run first and then the middle of every stretch whose
ends differ: a stretch whose ends agree is taken to agree within, and its releases are reported as not run.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from mhc.upstream.releases.interpreters import Interpreters, Unavailable, check_ready
from mhc.upstream.releases.releases import Release, port
from mhc.upstream.verify import RUNS, SECONDS, Outcome, run

LONG = 10
"""So many releases are all run; of more, those that bisection asks for."""
DOUBT = 0.01
"""How likely a repro that fails now and then may be taken for healed."""


class State(Enum):
    """How a repro did on a release."""

    FAILS = "fails"  # it reproduces, each time
    PASSES = "passes"  # it does not, in none of the runs
    FLAKY = "flaky"  # both
    OTHER = "other"  # something else went wrong, in one run at least
    SKIPPED = "skipped"  # no interpreter, or one that cannot run anything of the kind
    UNTRIED = "not run"  # bisection had no need of it

    @property
    def bad(self) -> bool:
        return self in {State.FAILS, State.FLAKY}

    @property
    def judged(self) -> bool:
        """Return whether it says that the finding is there, or that it is not."""
        return self.bad or self is State.PASSES


@dataclass(frozen=True, kw_only=True)
class Row:
    """One release.

    Attributes:
        outcomes: of the runs. packages: versions that the interpreter has, if it printed them.
        reason: why it is skipped, or what else went wrong. ported: how the program was changed for it.
        install: what pip was asked for; empty for an interpreter that was given.
    """

    version: str
    outcomes: tuple[Outcome, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    ported: tuple[str, ...] = ()
    install: tuple[str, ...] = ()

    @property
    def reproduced(self) -> int:
        return sum(one.reproduced for one in self.outcomes)

    @property
    def summary(self) -> str:
        """Return how many of its runs reproduce, and the reason."""
        runs = f"{self.reproduced} of {len(self.outcomes)} runs reproduce" if self.outcomes else ""
        return "; ".join(filter(None, (runs, self.reason)))

    @property
    def state(self) -> State:
        if not self.outcomes:
            return State.SKIPPED if self.reason else State.UNTRIED
        if not all(one.reproduced or one.healed for one in self.outcomes):
            return State.OTHER
        if self.reproduced == len(self.outcomes):
            return State.FAILS
        return State.FLAKY if self.reproduced else State.PASSES


@dataclass(frozen=True)
class Change:
    """Two releases, one after the other as far as is known, that differ.

    Attributes:
        between: releases between the two that say nothing.
    """

    before: Row
    after: Row
    between: tuple[str, ...]

    @property
    def heals(self) -> bool:
        return self.before.state.bad


def changes(rows: Sequence[Row]) -> list[Change]:
    """Return the pairs of judged releases, next to each other, that differ; a release that was not run is in none."""
    judged = [index for index, row in enumerate(rows) if row.state.judged]
    return [
        Change(rows[left], rows[right], tuple(row.version for row in rows[left + 1 : right]))
        for left, right in pairwise(judged)
        if rows[left].state.bad != rows[right].state.bad
    ]


def enough(rate: float) -> int:
    """Return how many runs without a failure show that a repro is healed, if it failed at this rate before."""
    if rate >= 1:
        return RUNS
    return max(RUNS, math.ceil(math.log(DOUBT) / math.log1p(-rate)))


class Matrix:
    """Runs a repro on releases.

    Args:
        need: of `releases.NEEDS`, what the repro needs of a machine.
        on_row: is called with each row as soon as it is known.
    """

    def __init__(
        self,
        repro: Path,
        to: str,
        need: str,
        interpreters: Interpreters,
        *,
        seconds: float = SECONDS,
        on_row: Callable[[Row], None] = lambda _: None,
    ) -> None:
        self._repro, self._to, self._need = repro, to, need
        self._interpreters, self._seconds, self._on_row = interpreters, seconds, on_row
        self._rate = 1.0

    def rows(self, releases: Sequence[Release], own: str, *, bisects: bool | None = None) -> list[Row]:
        """Return a row for each release, in their order.

        Args:
            own: the release of the finding. It is run first: its rate of failures decides how many runs the others need.
            bisects: whether only the releases are run that bisection asks for. Default: for a long list.
        """
        rows = {one.version: Row(version=one.version) for one in releases}
        known = {one.version: one for one in releases}

        def visit(version: str) -> State:
            if rows[version].state is State.UNTRIED:
                rows[version] = self.row(known[version])
                self._on_row(rows[version])
            return rows[version].state

        if own in rows and visit(own).bad:
            self._rate = rows[own].reproduced / len(rows[own].outcomes)
        names = list(rows)
        if bisects if bisects is not None else len(names) > LONG:
            bisect(names, visit, {own} & set(names))
        else:
            for name in names:
                visit(name)
        return list(rows.values())

    def row(self, release: Release) -> Row:
        """Run one release, and return its row."""
        given = release.version in self._interpreters.given
        wanted = () if given else (f"{self._to}=={release.version}", *(release.companions or ()))
        try:
            python = self._interpreters.python(self._to, release)
        except Unavailable as reason:
            return Row(version=release.version, reason=str(reason), install=wanted)
        lacks, packages = check_ready(python, self._to, release.version, self._need, seconds=self._seconds)
        if lacks:
            return Row(version=release.version, reason=lacks, packages=packages, install=wanted)
        text, ported = port(self._to, release.version, self._repro.read_text(encoding="utf-8"))
        outcomes: list[Outcome] = []
        with TemporaryDirectory() as name:
            program = Path(name) / self._repro.name
            program.write_text(text, encoding="utf-8")
            while len(outcomes) < self._wanted(outcomes):
                outcomes.append(run(program, python=(str(python),), seconds=self._seconds))
        strange = next((one for one in outcomes if not (one.reproduced or one.healed)), None)
        return Row(
            version=release.version,
            outcomes=tuple(outcomes),
            packages=packages,
            reason="" if strange is None else str(strange),
            ported=ported,
            install=wanted,
        )

    def _wanted(self, outcomes: Sequence[Outcome]) -> int:
        """Return how many runs a release needs: more where it passes and the finding is flaky."""
        return enough(self._rate) if all(one.healed for one in outcomes) else RUNS


def bisect(versions: Sequence[str], visit: Callable[[str], State], inside: Collection[str] = ()) -> None:
    """Visit the releases that show where a repro begins or ceases to fail: the ends, then the middle of each difference.

    In place of a release that says nothing, the nearest one of the same stretch is visited.

    Args:
        visit: gives the state of a release, run at the first time only. inside: releases to begin with, beside the ends.
    """
    count = len(versions)
    ends = [next((i for i in way if visit(versions[i]).judged), None) for way in (range(count), range(count - 1, -1, -1))]
    begun = {at for at in ends if at is not None}
    begun |= {at for at in range(count) if versions[at] in inside and visit(versions[at]).judged}
    known = sorted(begun)
    stretches = list(pairwise(known))
    while stretches:
        left, right = stretches.pop()
        if visit(versions[left]).bad == visit(versions[right]).bad:
            continue
        half = (left + right) // 2
        nearest = sorted(range(left + 1, right), key=lambda at, half=half: abs(at - half))  # type: ignore[misc]
        middle = next((at for at in nearest if visit(versions[at]).judged), None)
        if middle is not None:
            stretches += [(left, middle), (middle, right)]
