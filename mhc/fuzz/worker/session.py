"""A round: one run of Hypothesis in a worker process, over one implementation."""

import gc
import time
from collections.abc import Callable, Sequence

import hypothesis
from hypothesis import Phase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from mhc.case import Case
from mhc.fuzz.check.check import check, taken
from mhc.fuzz.check.differential import Other, compared
from mhc.fuzz.check.level import Depth
from mhc.fuzz.check.timing import Clock
from mhc.fuzz.findings.finding import fingerprint
from mhc.fuzz.findings.known_issues import Known, identified
from mhc.fuzz.worker.compile_count import compiles
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Failure, Found, Message, Round, Running
from mhc.implementation import Implementation
from oracles import liveness, refusal
from oracles.judge import outcomes
from oracles.verdict import Status, Verdict
from strategies.cases import cases
from strategies.reach import Reach
from strategies.regions import regions
from strategies.rounds import quiet

GUIDED = 50
"""Cases of a round that looks for large |error| / bound and rare regions; Hypothesis climbs only in longer ones."""


_WORST = 1e30  # Hypothesis takes no infinity, which a wrong value has where the bound is 0


class FoundBug(Exception):
    """Base of the exceptions through which Hypothesis tells bugs apart: one subclass for each fingerprint."""


def play(
    implementation: Implementation,
    device: str,
    request: Round,
    say: Callable[[Message], None],
    partners: Sequence[Other] = (),
) -> bool:
    """Draw and judge the cases of a round, shrink what fails, and tell everything. False: the device is lost.

    What fails where sizes reach far is told as it is: to shrink it takes longer than a round, and is left to the minimiser.

    Args:
        partners: what every case is compared with.
    """
    far = request.reach is not Reach.USUAL
    fresh: dict[str, Found] = {}
    classes: dict[str, type[FoundBug]] = {}
    checking = 0.0
    drawn = 0
    stop_shrinking = float("inf")
    lost = False
    faults: list[BaseException] = []

    def body(case: Case) -> None:
        nonlocal checking, drawn, stop_shrinking, lost
        shrinking = bool(classes)
        number = -1 if shrinking else drawn
        if not shrinking:
            drawn += 1
        if lost or (not shrinking and not request.skip <= number < request.count) or time.monotonic() > stop_shrinking:
            return
        say(Begun(case=case.json, number=number))
        clock, before = Clock(on_run=lambda nth: say(Running(nth=nth))), compiles(implementation)
        depth = Depth.CLEAN if shrinking else Depth.DRAWN
        verdicts = check(implementation, case, device, depth, clock, partners=partners)
        checking += clock.checking
        case = taken(implementation, case, verdicts)
        failures = tuple(shorten(implementation, case, one, request.ledger) for one in verdicts if one.status is Status.FAIL)
        checked = summarise(case, verdicts, failures, clock, compiles(implementation) - before, probe=shrinking)
        say(checked)
        lost = broken(verdicts)
        if lost:
            gc.disable()  # to free what lies on a lost device may abort the process, before it has told what it found
        if request.rare is not None and not shrinking and not lost:
            _climb(checked, request.rare)
        for failure in checked.failures:
            id_ = fingerprint(implementation, case, failure).id
            if id_ not in request.known and (not far or id_ not in fresh):
                fresh[id_] = Found(case=case.json, failure=failure)
                if far:
                    continue
                if lost:
                    return
                if not classes:
                    stop_shrinking = time.monotonic() + request.shrink
                raise classes.setdefault(id_, type(f"Bug{id_}", (FoundBug,), {}))(failure.message)

    drawn_from = hypothesis.given(_strategy(implementation, request))
    test = hypothesis.seed(request.seed)(_configured(request)(drawn_from(_guarded(body, faults))))
    started = time.perf_counter()
    _run(test, faults)
    for found in fresh.values():
        say(found)
    say(Done(drawing=max(0.0, time.perf_counter() - started - checking), lost=lost))
    return not lost


def _guarded(body: Callable[[Case], None], faults: list[BaseException]) -> Callable[[Case], None]:
    """`body` until it raises what is no bug of a kernel, which is kept: Hypothesis would call it flaky and go on."""

    def test(case: Case) -> None:
        if faults:
            return
        try:
            body(case)
        except FoundBug:
            raise
        except BaseException as error:  # what a kernel left running may raise anything, anywhere
            faults.append(error)

    return test


def _run(test: Callable[[], None], faults: Sequence[BaseException]) -> None:
    """Let Hypothesis draw and shrink; bugs were told as they were met.

    Raises:
        BaseException: the first of `faults`, or whatever else went wrong that is no bug of a kernel.
    """
    try:
        test()
    except (FoundBug, Flaky):
        pass
    except BaseExceptionGroup as group:
        _, others = group.split((FoundBug, Flaky))
        if others is not None:
            raise others from None
    if faults:
        raise faults[0]


def _configured(request: Round) -> hypothesis.settings:
    guided = request.rare is not None
    phases = (Phase.generate, Phase.target, Phase.shrink) if guided else (Phase.generate, Phase.shrink)
    return quiet(max(request.count, GUIDED if guided else 0), phases=phases)


def _strategy(implementation: Implementation, request: Round) -> SearchStrategy[Case]:
    spaces = {implementation.name: implementation.schedule} if implementation.schedule else {}
    like = None if request.like is None else Case.from_json(request.like)
    return cases(max_elements=request.max_elements, spaces=spaces, like=like, reach=request.reach)


def _climb(checked: Checked, rare: frozenset[str]) -> None:
    """Tell Hypothesis what to look for: errors near their bounds, and regions where few cases were."""
    if checked.ratios:
        worst = max(checked.ratios.values())
        hypothesis.target(worst if worst < _WORST else _WORST, label="largest error / bound")
    hypothesis.target(float(len(checked.regions & rare)), label="rare regions")


def summarise(
    case: Case, verdicts: Sequence[Verdict], failures: tuple[Failure, ...], clock: Clock, compiled: int, *, probe: bool
) -> Checked:
    """The verdicts on a case, as the main process needs them."""
    ratios: dict[str, float] = {}
    for verdict in verdicts:
        if verdict.ratio is not None and not verdict.against:
            ratios[verdict.subject] = max(ratios.get(verdict.subject, 0.0), verdict.ratio)
    return Checked(
        case=case.json,
        refused=refusal.refused(verdicts),
        probe=probe,
        failures=failures,
        ratios=ratios,
        regions=frozenset() if probe else regions(case),
        sizes={} if probe or refusal.refused(verdicts) else dict(case.sizes),
        seconds={
            "running": clock.running,
            "reference": clock.reference,
            "checking": clock.checking,
            "comparing": clock.comparing,
            "compiling": clock.checking if compiled else 0.0,
        },
        compiled=compiled,
        compared=compared(verdicts),
        outcomes=outcomes(verdicts),
    )


def shorten(implementation: Implementation, case: Case, verdict: Verdict, ledger: Sequence[Known]) -> Failure:
    """A failing verdict as it is sent and kept; what a kernel said may be long."""
    message = verdict.message if len(verdict.message) <= 2000 else verdict.message[:2000] + "..."
    return Failure(
        oracle=verdict.oracle,
        subject=verdict.subject,
        symptom=verdict.symptom,
        message=message,
        against=verdict.against,
        outside=identified(fingerprint(implementation, case, verdict), case, ledger).outside,
    )


def broken(verdicts: Sequence[Verdict]) -> bool:
    """Whether the device is of no more use to this process: an error on CUDA stays."""
    return any(verdict.status is Status.FAIL and verdict.symptom in liveness.LASTING for verdict in verdicts)
