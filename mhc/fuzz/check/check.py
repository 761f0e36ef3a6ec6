"""One check: a case on one implementation, judged by every gate."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mhc.case import Case
from mhc.fuzz.check.differential import RunningPeer, against
from mhc.fuzz.check.level import Level
from mhc.fuzz.check.timing import Timing
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.observation import Observation, observe
from mhc.oracles import liveness, memory, ordering, refusal
from mhc.oracles.gates import GATES, rare_gate
from mhc.oracles.judge import SIDE_EFFECT_GATES, judge, judge_without_reference, measured
from mhc.oracles.tolerances import tolerances
from mhc.oracles.trial import Gate, Run, Trial
from mhc.oracles.verdict import Status, Verdict, located, not_applicable
from mhc.reference import reference
from mhc.stream_order import new_stream
from mhc.triton_interpreter import VARIABLE, in_lockstep
from mhc.triton_lockstep import Order

IN_TURN = 512
"""Programs of a case in Triton's interpreter that run one after the other in a few seconds."""
IN_TURN_ONCE = 2048
"""The same where only one run is made."""


@dataclass(frozen=True)
class Judgement:
    """A case with its verdicts: the one that was drawn, the same without the schedule that was refused, or another one.

    It is another one where a gate ran that beside the one that was drawn, and it is wrong by itself.
    """

    case: Case
    verdicts: list[Verdict]

    @property
    def failures(self) -> list[Verdict]:
        """Return the verdicts that fail."""
        return [one for one in self.verdicts if one.status is Status.FAIL]


def check(
    implementation: Implementation,
    case: Case,
    device: str,
    depth: Level = Level.DRAWN,
    clock: Timing | None = None,
    *,
    peers: Sequence[RunningPeer] = (),
    measure: bool = False,
    rare: int = -1,
    locate: Callable[[Verdict], bool] = lambda verdict: False,
) -> Judgement:
    """Run `implementation` on `case` and return the judged case with its verdicts; a refused case costs no tolerance.

    Where only the schedule that the case pins is refused, the case without it is judged. Gates with further runs judge what
    ran to its end in the first run; in campaigns only where nothing was wrong with it, since they would report the same bug
    in other words. Shared memory and changed settings (`SIDE_EFFECT_GATES`) do not count there: they would hide all else.

    Where a gate of a campaign ran another case and that fails, it is judged alone, twice. If the same result is wrong then
    too, or it does not run, that judgement is returned. What is kept for longer may still be the cause: the minimiser sees.

    An error of the device that the harness meets later counts against the case too: its kernel runs asynchronously.

    In Triton's interpreter the programs of a launch run together, which is quicker, unless every gate is asked for. What
    fails there with at most `IN_TURN` programs is judged again with one program after the other, as the interpreter runs
    them by itself: then the gate of ordering says whether that makes the difference. More would take a minute: only the
    first run is made again, with up to `IN_TURN_ONCE` in turn, else from the last to the first.

    Args:
        clock: adds up the time, and is called before each call of the implementation.
        peers: the pair gate compares the first run with them.
        measure: the bound gate's verdicts carry the errors of each output against float64.
        rare: the number of a rare gate (`mhc.oracles.gates.RARE`) that judges the case whatever it draws; -1: none.
        locate: returns whether a failing verdict is to have its map of where it fails.
    """
    clock = clock or Timing()

    def judged() -> Judgement:
        return _judged(implementation, case, device, depth, clock, peers=peers, measure=measure, rare=rare, locate=locate)

    lockstep = depth is not Level.FULL and implementation.env.get(VARIABLE) == "1"
    judgement = _in_lockstep(implementation, device, judged) if lockstep else judged()
    if depth is not Level.DRAWN:
        return judgement
    for other in dict.fromkeys(one.other for one in judgement.failures if one.other is not None):
        wrong = {one.subject for one in judgement.failures if one.other == other}
        for _ in range(2):  # before the second time, no other case has run
            alone = check(implementation, other, device, Level.PLAIN, clock, peers=peers, measure=measure, locate=locate)
        if any(one.subject in wrong or one.oracle == liveness.NAME for one in alone.failures):
            return alone
    return judgement


def _in_lockstep(implementation: Implementation, device: str, judged: Callable[[], Judgement]) -> Judgement:
    """Return what `judged` does with all programs of a launch together; where that fails, with one after the other."""
    with in_lockstep() as launched:
        together = judged()
        if together.failures and launched.programs > IN_TURN:
            order = Order.IN_TURN if launched.programs <= IN_TURN_ONCE else Order.REVERSED
            return _with_races(implementation, together, device, order)
    return judged() if together.failures else together


def _with_races(implementation: Implementation, judgement: Judgement, device: str, order: Order) -> Judgement:
    """Return a failing judgement in lockstep; where values are others in another order, with that in place of what fails."""
    inputs = materialise(judgement.case, device)
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted, declared=implementation.declared)
    run = partial(Run, label=ordering.NAME, inputs=inputs, saved=wanted.saved)
    first, again, moved = (rerun(implementation, run(order=one)) for one in (Order.TOGETHER, Order.TOGETHER, order))
    races = ordering.races(allowed, first, again, moved, order)
    if not races:
        return judgement
    return replace(judgement, verdicts=[one for one in judgement.verdicts if one.status is not Status.FAIL] + races)


def _judged(
    implementation: Implementation,
    case: Case,
    device: str,
    depth: Level,
    clock: Timing,
    *,
    peers: Sequence[RunningPeer],
    measure: bool,
    rare: int,
    locate: Callable[[Verdict], bool],
) -> Judgement:
    verdicts: list[Verdict] = []
    with clock.spent("checking"):
        try:
            verdicts += _check(implementation, case, device, depth, clock, peers, measure, rare)
            if any(one.oracle == refusal.NAME and one.subject == refusal.SCHEDULE for one in verdicts):
                others = {name: pinned for name, pinned in case.schedules.items() if name != implementation.name}
                case = replace(case, schedules=others)
                verdicts += _check(implementation, case, device, depth, clock, peers, measure, rare)
            verdicts = [located(one, locate) for one in verdicts]
        except RuntimeError as error:
            late = liveness.device_error(error)
            if late is None:
                raise
            verdicts = [*(located(one, lambda _: False) for one in verdicts), late]
    return Judgement(case, verdicts)


def _refused_again(implementation: Implementation, case: Case, device: str) -> str | None:
    """Return the reason of a second refusal; None if the case is accepted then."""
    try:
        again = implementation.refusal(case, device)
    except BaseException as error:  # its `supports` is code from outside
        return f"its `supports` raised {type(error).__name__}"
    return None if again is None else again.reason


def _check(
    implementation: Implementation,
    case: Case,
    device: str,
    depth: Level,
    clock: Timing,
    peers: Sequence[RunningPeer],
    measure: bool,
    rare: int,
) -> list[Verdict]:
    inputs = materialise(case, device)
    with clock.spent("reference"):
        wanted = reference(inputs)
    if depth is Level.REFERENCE:
        tolerances(inputs, wanted, declared=implementation.declared)
        return []
    clock.run_begins()
    observation = observe(implementation, inputs, wanted.saved)
    clock.run_ended(sum(observation.seconds.values()))
    if observation.refused is not None and implementation.name in case.schedules:
        # not asked again: that a pinned schedule is too large may show only at compilation
        return [refusal.unpinned(observation.refused)]
    if observation.refused is not None:
        return [refusal.judge(observation.refused, _refused_again(implementation, case, observation.device.type))]
    if liveness.device_lost(observation):
        return judge_without_reference(observation)
    allowed = tolerances(inputs, wanted, declared=implementation.declared)
    verdicts = judge(observation, allowed)
    if measure:
        verdicts = measured(verdicts, observation, allowed)
    fails = [verdict for verdict in verdicts if verdict.status is Status.FAIL and verdict.oracle not in SIDE_EFFECT_GATES]
    wrong = depth not in {Level.MEMORY, Level.FULL} and bool(fails)
    trial = Trial(
        inputs=inputs,
        reference=wanted,
        allowed=allowed,
        observation=observation,
        declared=implementation.declared,
        dtypes=implementation.dtypes,
        by_autograd=implementation.by_autograd,
    )
    if depth is not Level.PLAIN and observation.failure is None and not wrong:
        chosen = (memory.GATE,) if depth is Level.MEMORY else GATES
        gates = [gate for gate in chosen if depth is not Level.DRAWN or gate.drawn(case) or gate in rare_gate(rare)]
        verdicts += further(implementation, trial, gates, clock)
    for peer in peers:
        with clock.spent("comparing"):
            verdicts += against(peer, trial, verdicts)
    return verdicts


def further(
    implementation: Implementation, trial: Trial, gates: Iterable[Gate], clock: Timing | None = None
) -> list[Verdict]:
    """Return the verdicts of `gates`, which need more than the first run. A run that two gates need is made once.

    The results of the first run must stay unchanged through all runs. A run that loses the device is the last one.
    """
    clock = clock or Timing()
    done: dict[str, Observation] = {}
    verdicts: list[Verdict] = []
    reported = {_key(one) for one in _failing(trial.observation)}
    for gate in gates:
        plan = gate.plan(trial)
        if isinstance(plan, list):
            verdicts += plan
            continue
        broken: list[Verdict] = []
        for run in plan.runs:
            fresh = run.label not in done
            if fresh:
                clock.run_begins()
                done[run.label] = rerun(implementation, run)
                clock.run_ended(sum(done[run.label].seconds.values()))
            if not plan.probes:
                failing = _failing(done[run.label])
                wrong = [one for one in failing if fresh and _key(one) not in reported]
                verdicts += [one for one in wrong if one.oracle in SIDE_EFFECT_GATES]
                reported |= {_key(one) for one in wrong if one.oracle in SIDE_EFFECT_GATES}
                broken += _unfit(gate, run, done[run.label], failing, fresh, trial.case)
            if liveness.device_lost(done[run.label]):
                return verdicts + broken
        verdicts += broken or plan.judge(done)
    return verdicts + memory.judge_kept(trial.observation, list(done))


def rerun(implementation: Implementation, run: Run) -> Observation:
    """Make one of the further runs of a gate."""
    stream = new_stream(run.inputs.device) if run.late else None
    return observe(
        implementation,
        run.inputs,
        run.saved,
        stages=run.stages,
        fill=run.fill,
        stream=stream,
        autograd=run.autograd,
        before=run.before,
        order=run.order,
    )


def _failing(observation: Observation) -> list[Verdict]:
    """Return the failures of a run by itself."""
    return [one for one in judge_without_reference(observation) if one.status is Status.FAIL]


def _key(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.oracle, verdict.subject, verdict.symptom


def _unfit(
    gate: Gate, run: Run, observation: Observation, failing: Iterable[Verdict], fresh: bool, case: Case
) -> list[Verdict]:
    """Return why the gate cannot judge a further run. The run's own failures are reported once."""
    if observation.refused is not None:
        return [not_applicable(gate.name, run.label, f"refused: {observation.refused}")]
    wrong = [one for one in failing if one.oracle not in SIDE_EFFECT_GATES]
    if wrong and fresh:
        other = None if run.inputs.case == case else run.inputs.case
        return [replace(one, message=f"{one.message} (run: {run.label})", run=run.label, other=other) for one in wrong]
    return [not_applicable(gate.name, run.label, "its run failed")] if observation.failure is not None else []
