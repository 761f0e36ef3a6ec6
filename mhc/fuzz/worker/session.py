"""A round: one run of Hypothesis in a worker process, over one implementation. Hypothesis draws; the minimiser minimises."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence

import hypothesis
import torch
from hypothesis import Phase
from hypothesis.strategies import SearchStrategy

from mhc.case import Case, default_case
from mhc.fuzz.check.check import Judgement, check
from mhc.fuzz.check.differential import RunningPeer, compared
from mhc.fuzz.check.level import Level
from mhc.fuzz.check.timing import Timing
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.worker.allocator import give_back
from mhc.fuzz.worker.compile_count import compile_count
from mhc.fuzz.worker.protocol import Begun, Check, Checked, Done, Judged, Message, Ran, Round, Running
from mhc.implementation import Implementation
from mhc.oracles import liveness, refusal
from mhc.oracles.gates import rare_number
from mhc.oracles.judge import outcomes
from mhc.oracles.verdict import Status, Verdict
from mhc.strategies import rounds
from mhc.strategies.cases import cases_of
from mhc.strategies.reach import Reach
from mhc.strategies.regions import regions

GUIDED = 50
"""Cases of a round that looks for large |error| / bound and rare regions; Hypothesis climbs only in longer ones."""

_CANDIDATES = 20  # cases that are drawn for a fresh program
_LOCATED = 8  # times; of several that fail in a case, the campaign takes the first that it does not know
_WORST = 1e30  # Hypothesis takes no infinity, which a wrong value has where the bound is 0


def run_session(
    spec: str,
    implementation: Implementation,
    device: str,
    request: Round,
    send: Callable[[Message], None],
    peers: Sequence[RunningPeer] = (),
    located: Counter[tuple[str, ...]] | None = None,
) -> bool:
    """Draw and judge the cases of a round, and send the result of each. Return False where the device is lost.

    Args:
        spec: how the implementation was named on the command line. peers: what every case is compared with.
        located: how often this process has located each failure, which a campaign needs once.
    """
    located = Counter() if located is None else located
    started = time.perf_counter()
    like = _like(implementation, device, request)
    checking = 0.0
    drawn = 0
    lost, compiled = False, 0
    faults: list[BaseException] = []

    def wanted(verdict: Verdict) -> bool:
        key = verdict.oracle, verdict.subject, verdict.symptom, verdict.against
        located[key] += 1
        return located[key] <= _LOCATED

    def body(case: Case) -> None:
        nonlocal checking, drawn, lost, compiled
        number = drawn
        drawn += 1
        enough = 0 < request.until_compiled <= compiled
        if lost or enough or not request.skip <= number < request.count:
            return
        send(Begun(case=case.json, number=number))
        clock, before = _clock(send), compile_count(implementation)
        rare = rare_number(number, request.rare_gate)
        judged = check(implementation, case, device, Level.DRAWN, clock, peers=peers, rare=rare, locate=wanted)
        checking += clock.checking
        checked = summarise(spec, implementation, judged, clock, compile_count(implementation) - before, peers)
        send(checked)
        compiled += checked.compiled > 0
        lost = device_lost(judged.verdicts)
        if lost:
            gc.disable()  # to free what lies on a lost device may abort the process before it has sent all results
        elif request.rare is not None:
            _climb(checked, request.rare)

    def test(case: Case) -> None:
        """Run `body`, whose exceptions are kept: Hypothesis would draw the case again, and call it flaky."""
        if not faults:
            try:
                body(case)
            except BaseException as error:  # what a kernel left running may raise anything, anywhere
                faults.append(error)

    drawn_from = hypothesis.given(_strategy(implementation, device, request, like))
    hypothesis.seed(request.seed)(_configured(request)(drawn_from(test)))()
    if faults:
        raise faults[0]
    if device == "cuda" and not lost:
        torch.cuda.empty_cache()  # an idle process must not keep memory that others need
    if request.reach is not Reach.USUAL:
        give_back()
    send(Done(drawing=max(0.0, time.perf_counter() - started - checking), lost=lost))
    return not lost


def run_check(
    implementation: Implementation,
    device: str,
    request: Check,
    send: Callable[[Message], None],
    peers: Sequence[RunningPeer] = (),
) -> bool:
    """Judge one case, and send its verdicts. Return False where the device is lost."""
    before = compile_count(implementation)
    send(Begun(case=request.case))
    clock = _clock(send)
    case = Case.from_json(request.case)
    judged = check(
        implementation,
        case,
        device,
        request.depth,
        clock,
        peers=peers,
        measure=request.measure,
        rare=request.rare_gate,
        locate=lambda _: True,
    )
    compiled = compile_count(implementation) - before
    send(Judged(case=judged.case.json, verdicts=tuple(judged.verdicts), compiled=compiled))
    return not device_lost(judged.verdicts)


def _configured(request: Round) -> hypothesis.settings:
    guided = request.rare is not None
    phases = (Phase.generate, Phase.target) if guided else (Phase.generate,)
    return rounds.quiet(max(request.count, GUIDED if guided else 0), phases=phases)


def _clock(send: Callable[[Message], None]) -> Timing:
    """Return a clock that tells when a call of the implementation begins and ends."""
    return Timing(on_run=lambda nth: send(Running(nth=nth)), on_ran=lambda: send(Ran()))


def _strategy(implementation: Implementation, device: str, request: Round, like: Case | None) -> SearchStrategy[Case]:
    alike = request.alike or request.fresh
    return cases_of(implementation, device, max_elements=request.max_elements, like=like, alike=alike, reach=request.reach)


def _like(implementation: Implementation, device: str, request: Round) -> Case | None:
    """Return the case whose programs the cases of a round share: the one given, or for a fresh program one that is drawn."""
    if request.like is not None:
        return Case.from_json(request.like)
    if not request.fresh:
        return None
    several: list[Case] = rounds.drawn(_strategy(implementation, device, request, None), _CANDIDATES, request.seed)
    return max(reversed(several), key=lambda case: len(_kept(case) - request.covered))  # the first ones are too simple


def _kept(case: Case) -> frozenset[str]:
    """Return the regions of a case that are those of its sizes, dtype and optional tensors."""
    absent = frozenset(spec.name for spec in case.table.drawn if not case.has(spec.name))
    sizes = {name: case.sizes[name] for name in case.axes}
    return regions(default_case(operator=case.operator, dtype=case.dtype, absent=absent, **sizes)) & regions(case)


def _climb(checked: Checked, rare: frozenset[str]) -> None:
    """Tell Hypothesis what to look for: errors near their bounds, and regions where few cases were."""
    if checked.ratios:
        worst = max(checked.ratios.values())
        hypothesis.target(worst if worst < _WORST else _WORST, label="largest error / bound")
    hypothesis.target(float(len(checked.regions & rare)), label="rare regions")


def summarise(
    spec: str,
    implementation: Implementation,
    judged: Judgement,
    clock: Timing,
    compiled: int,
    peers: Sequence[RunningPeer] = (),
) -> Checked:
    """Return what the main process must know of a judged case."""
    case, verdicts = judged.case, judged.verdicts
    ratios: dict[str, float] = {}
    for verdict in verdicts:
        if verdict.ratio is not None and not verdict.against:
            ratios[verdict.subject] = max(ratios.get(verdict.subject, 0.0), verdict.ratio)
    against = {one.peer.name: one.peer.spec for one in peers}
    return Checked(
        case=case.json,
        refused=refusal.reason(verdicts),
        findings=tuple(finding(spec, implementation, case, one, against.get(one.against)) for one in judged.failures),
        ratios=ratios,
        regions=regions(case),
        sizes={} if refusal.refused(verdicts) else dict(case.sizes),
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


def device_lost(verdicts: Sequence[Verdict]) -> bool:
    """Return whether the device is of no more use to this process: an error on CUDA stays."""
    return any(verdict.status is Status.FAIL and verdict.symptom in liveness.DEVICE_LOST for verdict in verdicts)
