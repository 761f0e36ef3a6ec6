"""The ordering gate: checks that what is not promised an order needs none.

On CUDA, all work must be ordered on the current stream. In a further run the inputs are written late on the current stream
and overwritten right after the call (`mhc.stream_order`). Work that starts too early on another stream, or is not waited
for, changes the bits.

In Triton's interpreter the programs of a launch run one after the other; a GPU promises no order. In further runs they run
together, and from the last to the first (`mhc.triton_lockstep`), and the results must be right there too.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from mhc.observation import Observation
from mhc.oracles import determinism, pair
from mhc.oracles.judge import agree
from mhc.oracles.pair import Side
from mhc.oracles.tolerances import Tolerances
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable
from mhc.stream_order import new_stream
from mhc.triton_lockstep import Order

NAME = "ordering"
LATE = "late inputs"
RACE = "race"


def plan(trial: Trial) -> Plan | list[Verdict]:
    """Plan the late run; its results right after the call and at the end must both have the bits of the first run."""
    if new_stream(trial.inputs.device) is None:
        return [not_applicable(NAME, "case", "on this device a call returns when its work is done")]

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        first, late = trial.observation, observed[LATE]
        outputs, gradients = ({name: late.early.get(name) for name in one} for one in (late.outputs, late.gradients))
        early = replace(late, outputs=outputs, gradients=gradients)
        what = "a run whose inputs came late on the current stream"
        behind = determinism.compare(NAME, first, early, "unordered", f"{what}, read as soon as the call had returned")
        in_the_end = determinism.compare(NAME, first, late, "unordered", f"{what} and were overwritten behind the call")
        verdicts = [one if one.status is Status.FAIL else other for one, other in zip(behind, in_the_end, strict=True)]
        return determinism.settled(trial, observed, verdicts, "two runs without delay differ already")

    late = Run(label=LATE, inputs=trial.inputs, saved=trial.reference.saved, late=True)
    return Plan(runs=[determinism.repeat(trial), late], judge=judge)


def programs(order: Order, trial: Trial) -> Plan | list[Verdict]:
    """Plan a run in which the programs of each launch run in another order than in the first run."""
    if trial.observation.order in (None, order):
        return [not_applicable(NAME, "programs", "in Triton's interpreter no launch had several, or they had this order")]
    label = f"programs {order.value}"

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        failure = observed[label].failure
        if failure is not None:
            return [not_applicable(NAME, "programs", f"no results with {label}: {failure.type}")]
        verdicts = agree(NAME, RACE, observed[label], trial.allowed, first=trial.observation)
        why = f"with {label}; a GPU promises no order"
        return [replace(one, message=f"{one.message} {why}") if one.status is Status.FAIL else one for one in verdicts]

    return Plan(
        runs=[Run(label=label, inputs=trial.inputs, saved=trial.reference.saved, order=order)], judge=judge, probes=True
    )


def races(allowed: Tolerances, first: Observation, again: Observation, moved: Observation, order: Order) -> list[Verdict]:
    """Return a failure for each result that two runs agree on, and a third with its programs in another order does not."""
    base, repeated, other = (Side(observation=one, allowed=allowed) for one in (first, again, moved))
    names = f"with programs {Order.TOGETHER.value}", f"with programs {order.value}"
    return [
        failed(NAME, two.subject, RACE, f"{two.message}; a GPU promises no order", ratio=two.ratio, locate=two.locate)
        for one, two in zip(pair.judge(base, repeated), pair.judge(base, other, names=names), strict=True)
        if one.status is Status.PASS and two.status is Status.FAIL
    ]


GATES = (
    Gate(name=NAME, plan=plan, every=8),
    Gate(name=NAME, variant=Order.TOGETHER.value, plan=partial(programs, Order.TOGETHER)),
    Gate(name=NAME, variant=Order.REVERSED.value, plan=partial(programs, Order.REVERSED), every=2),
)
