"""One implementation in one test: its fixtures are replayed, then cases are drawn; the first failing one is minimised."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import Phase, Verbosity
from hypothesis.statistics import collector, describe_statistics

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.fuzz.check.check import check as check_case
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.minimise.minimise import after_others, confirm, minimise
from mhc.fuzz.minimise.sandbox import least_limit, processes
from mhc.fuzz.report import describe
from mhc.fuzz.report.unjudged import summary, unjudged
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import Implementation, ImplementationError
from mhc.loading import relative_spec, spec_of
from mhc.oracles import bound, refusal
from mhc.oracles.gates import rare_number
from mhc.oracles.judge import outcomes
from mhc.oracles.verdict import Status, Verdict
from mhc.pytest_plugin import NOT_JUDGED, running
from mhc.registry import BUILT_IN
from mhc.strategies.cases import cases_of
from mhc.strategies.rounds import quiet
from mhc.testing.options import Options

_SECONDS = 60.0
"""For minimising one finding: most kernels take a few. `python -m mhc.fuzz minimise` goes on from there."""
_LIMIT = 60.0  # seconds that one call may take in a process of its own


class _Here:
    """Checks cases in this process, as `WorkerClient` does in another."""

    retired = False

    def __init__(self, implementation: Implementation, device: str) -> None:
        self._implementation, self._device = implementation, device
        self._verdicts: list[Verdict] = []
        self.judged: Any = None

    def start(self, case: Case, depth: Level, *, rare_gate: int = -1) -> None:
        result = check_case(self._implementation, case, self._device, depth, rare=rare_gate)
        self.judged, self._verdicts = result.case, result.verdicts

    def finish(self) -> list[Verdict]:
        return self._verdicts

    def stop(self) -> None:
        """Do nothing: this process goes on."""


class _Wrong(Exception):
    """Ends the drawing: a case failed."""


class Run:
    """An implementation in one test. It runs in this process, or in one of its own if its variables are not set here.

    Raises:
        ImplementationError: they are not set, and no other process can load it.
    """

    def __init__(self, implementation: Implementation, device: str, options: Options, *, module: str = "") -> None:
        self._implementation, self._device, self._options = implementation, device, options
        self._spec = spec_of(implementation, BUILT_IN, last=module)
        missing = [f"{name}={value}" for name, value in implementation.env.items() if os.environ.get(name) != value]
        if missing and self._spec is None:
            raise ImplementationError(
                f"implementation {implementation.name!r}: set {' '.join(missing)} before Python starts, or give it a name "
                "in a module, so that another process can load it"
            )
        self._apart = bool(missing)
        self._process: _Here | WorkerClient | None = None

    def stop(self) -> None:
        """End the process that it may have."""
        if self._process is not None:
            self._process.stop()

    def _start(self, limit: float) -> _Here | WorkerClient:
        if self._apart:
            assert self._spec is not None
            return WorkerClient(self._spec, self._implementation, self._device, limit=limit)
        return _Here(self._implementation, self._device)

    def _verdicts(self, case: Case, depth: Level, rare_gate: int = -1) -> tuple[Case, list[Verdict]]:
        """Return the verdicts, and the case that was judged: without a schedule that was refused."""
        if self._process is None or self._process.retired:
            self._process = self._start(_LIMIT)
        self._process.start(case, depth, rare_gate=rare_gate)
        verdicts = self._process.finish()
        judged = self._process.judged
        return judged if isinstance(judged, Case) and not self._process.retired else case, verdicts

    def replayed(self) -> str:
        """Return which fixtures fail, and how."""
        if self._options.folder is None:
            return ""
        texts = []
        try:
            spec = self._spec and relative_spec(self._spec, self._options.root)
            found_before = [*fixtures.of(self._implementation, self._options.folder, spec)]
        except CaseError as error:
            return f"{error}\n    it cannot be replayed: repair it, or delete it"
        for path, case, against in found_before:
            wrong = [one for one in self._verdicts(case, Level.FULL)[1] if one.status is Status.FAIL]
            if wrong:
                text = self._described(self._finding(case, wrong[0]), path, wrong[1:], minimal=True)
                texts.append(text.replace("MINIMAL", "FOUND AGAIN", 1))
            elif against is not None:
                _note(f"{path.name} was not compared with {against}; `python -m mhc.fuzz replay` does that")
        return "\n".join(texts)

    def drawn(self) -> str:
        """Draw cases; return how the first failing one fails, minimised and saved, or that none was judged."""
        became, counts = Counter[str](), Counter[str]()
        wrong: list[tuple[Case, list[Verdict]]] = []
        ended: list[Exception] = []

        def one(case: Case) -> None:
            judged, verdicts = self._verdicts(case, Level.DRAWN, rare_number(became.total()))
            became[_outcome(verdicts)] += 1
            counts.update(f"{outcome}: {name}" for name, outcome in outcomes(verdicts).items())
            failing = [verdict for verdict in verdicts if verdict.status is Status.FAIL]
            if failing:
                wrong.append((judged, failing))
                raise _Wrong

        def body(case: Case) -> None:
            """Run one case. Hypothesis repeats one that fails, which then only fails again."""
            if not ended:
                try:
                    one(case)
                except Exception as error:
                    ended.append(error)
            if ended:
                raise ended[0]

        name, cases = self._implementation.name, self._options.cases
        strategy = cases_of(self._implementation, self._device)
        settings = hypothesis.settings(
            quiet(cases, phases=(Phase.generate,)), report_multiple_bugs=False, verbosity=Verbosity.quiet
        )
        with _statistics(), suppress(_Wrong):
            hypothesis.seed(self._options.seed)(settings(hypothesis.given(strategy)(body)))()
        if wrong:
            return self._minimised(*wrong[0])
        judged = became.pop("judged", 0)
        reasons = "; ".join(f"{count} {why}" for why, count in became.most_common())
        if not judged:
            return f"{name}: none of {cases} cases was judged: {reasons}"
        if reasons:
            _note(f"{became.total()} of {judged + became.total()} cases: {reasons}")
        if missing := summary(unjudged(counts)):
            _note(missing)
        return ""

    def _finding(self, case: Case, verdict: Verdict) -> Finding:
        return finding(self._spec or self._implementation.name, self._implementation, case, verdict)

    def _minimised(self, case: Case, wrong: list[Verdict]) -> str:
        """Make the case small, save it, and return how it fails."""
        found = self._finding(case, wrong[0])
        least = least_limit(self._implementation)
        small = minimise(found, self._device, start=self._start, fresh=self._apart, least=least, seconds=_SECONDS)
        note = "" if small.reduction is None else str(small.reduction)
        if not self._apart:
            small, note = self._confirmed(small, least)
        path = None
        if self._options.folder is not None:
            root = self._options.root
            stored = small if self._spec is None else replace(small, spec=relative_spec(self._spec, root))
            path = fixtures.write(stored, self._options.folder)
        return self._described(small, path, wrong[1:], note, minimal=True)

    def _confirmed(self, small: Finding, least: float) -> tuple[Finding, str]:
        """Run a case that was minimised here in fresh processes, as a replay does; return the finding, and what came out."""
        before = small.reduction
        assert before is not None
        sizes = f"{before.elements_before} -> {before.elements} elements, {before.checks} checks, {before.seconds:.0f} s"
        if self._spec is None:
            return replace(small, reduction=None), f"no module has it under a name, so no command replays it; {sizes}"
        try:
            start = processes(self._spec, self._implementation, self._device)
            again = confirm(small, start, least=least).reduction
            assert again is not None
            if not again.reproduced and (after := after_others(small, start, least)).fingerprint != small.fingerprint:
                after = minimise(after, self._device, start=start, least=least, seconds=_SECONDS)
                return after, str(after.reduction)
        except HarnessError as fault:
            return replace(small, reduction=None), f"not replayed in a fresh process: {fault}; {sizes}"
        reduction = replace(before, reproduced=again.reproduced, runs=again.runs)
        return replace(small, reduction=reduction), str(reduction)

    def _described(
        self, found: Finding, path: Path | None, others: list[Verdict], note: str = "", *, minimal: bool = False
    ) -> str:
        """Return where, got, wanted, bound, the command that replays the file, or else the case, and what else fails."""
        spec = self._spec and relative_spec(self._spec, self._options.here)
        shown = Path(os.path.relpath(path, self._options.here)) if path is not None else Path("FILE")
        text = describe(replace(found, spec=spec or found.spec), shown, self._device, minimal=minimal)
        if note:
            text += f"\n    {note}"
        if others:
            also = "; ".join(dict.fromkeys(f"{one.subject}: {one.symptom} ({one.oracle})" for one in others))
            text += f"\n    also: {also}"
        if path is None:
            text += f"\n    FILE holds the case: {found.case.json}"
        return text


def _outcome(verdicts: list[Verdict]) -> str:
    """Return "judged", or why nothing was."""
    if any(one.oracle == bound.NAME and one.status is not Status.NOT_APPLICABLE for one in verdicts):
        return "judged"
    reasons = [f"refused: {one.message}" for one in verdicts if one.oracle == refusal.NAME]
    return reasons[0] if reasons else "no result could be judged"


def _note(text: str) -> None:
    """Let the summary of pytest say what was not judged."""
    item = running()
    if item is not None:
        item.user_properties.append((NOT_JUDGED, text))


@contextmanager
def _statistics() -> Iterator[None]:
    """Let the plugin of Hypothesis show its statistics of the cases, as for a test with `@given`."""
    item = running()
    if item is None:
        yield
        return

    def note(statistics: Any) -> None:
        before = getattr(item, "hypothesis_statistics", "")  # of another check in the same test
        statistics["nodeid"] = item.nodeid
        item.hypothesis_statistics = before + describe_statistics(statistics)  # type: ignore[attr-defined]

    with collector.with_value(note):  # type: ignore[arg-type]
        yield
