"""The ordering gate: on streams that are not there, and on a GPU."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mhc import Case, Implementation, default_case, load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.memory import NAN_FILL
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import ordering, refusal
from mhc.oracles.mutants.effects import STREAMS
from mhc.oracles.verdict import Status
from mhc.registry import built_in
from mhc.stream_order import call_late
from tests.support.helpers import altered, gate_symptoms, gate_verdicts, scaled_case, symptoms, with_layout
from tests.support.late_stream import Streams, launched

CASE = default_case(B=2, S=3, n=2, D=5, dtype="float32")
OUTPUTS = tuple(spec.name for spec in CASE.table.outputs)
FORWARD = replace(MANUAL, backward=None)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    made = Streams()
    for module in ("mhc.oracles.ordering", "mhc.fuzz.check.check"):
        monkeypatch.setattr(f"{module}.new_stream", lambda device: made)
    return made


UNORDERED = {("ordering", name, "unordered") for name in OUTPUTS}


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"waits": False}, UNORDERED),
        ({"awaited": False}, UNORDERED),
        ({"waits": False, "awaited": False}, UNORDERED),
        ({}, set()),
        ({"on_side": False, "waits": False, "awaited": False}, set()),
    ],
    ids=["reads too early", "is not awaited", "neither", "both wait", "on the current stream"],
)
def test_a_stream_that_does_not_wait_fails(how: dict[str, bool], found: set[Any], streams: Streams) -> None:
    implementation = launched(FORWARD, streams, **how)
    assert gate_symptoms(ordering.GATES[0], implementation, CASE) == found


def test_without_the_delay_it_would_not_be_seen(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "delay", lambda seconds: None)
    assert gate_symptoms(ordering.GATES[0], launched(FORWARD, streams, waits=False), CASE) == set()


def test_inputs_that_are_read_after_the_call_are_overwritten_by_then(streams: Streams) -> None:
    """What the stream has as the next thing is right. Then the other stream computes h_in once more."""
    ordered = launched(FORWARD, streams, on_side=False, waits=False, awaited=False)

    def again(out: Any, arguments: tuple[Any, ...]) -> Any:
        def late() -> None:
            out[0].copy_(FORWARD.forward(*arguments, norm_eps=1e-6, hc_eps=1e-6)[0])  # type: ignore[misc]

        streams.ordered(streams.side, streams.current)
        streams.side.items.append(late)
        if not streams.busy:
            streams.wait()
        return out

    verdicts = gate_verdicts(ordering.GATES[0], altered(ordered, forward=again), CASE)
    assert symptoms(verdicts) == {("ordering", "h_in", "unordered")}
    (message,) = [one.message for one in verdicts if one.status is Status.FAIL]
    assert message.startswith("h_in[0, 0, 0] = ")
    assert message.endswith("nan in a run whose inputs came late on the current stream and were overwritten behind the call")


def test_integers_that_come_late_are_within_their_range_before(streams: Streams) -> None:
    target = torch.tensor([[7, 3, 9], [9, -100, 1], [9, 9, 9]])[:2, :2]
    seen = []

    def unordered(target: torch.Tensor) -> tuple[torch.Tensor]:
        seen.append(target.tolist())
        return (target.double(),)

    call_late(unordered, [target], {}, streams)
    assert seen == [[[-100, -100], [-100, -100]]] * 2


def test_a_result_that_is_no_tensor_has_no_early_copy(streams: Streams) -> None:
    x = torch.tensor([1.0, 2.0])
    returned, early = call_late(lambda x, absent: (x * 2, None, x + 1), [x, None], {}, streams)
    assert [one is None for one in early] == [one is None for one in returned] == [False, True, False]
    assert call_late(lambda x: x * 2, [x], {}, streams)[1] == [], "not a tuple of results, which is against the contract"


def test_what_the_first_call_wrote_into_an_argument_is_gone_before_the_second(streams: Streams) -> None:
    seen = []

    def writes(x: torch.Tensor) -> tuple[torch.Tensor]:
        seen.append(bool(x.isnan().all()))
        return (x.zero_().clone(),)

    call_late(writes, [torch.ones(2, 3)], {}, streams)
    assert seen == [True, True]


def test_a_kernel_that_differs_from_run_to_run_is_not_judged(streams: Streams) -> None:
    calls = iter(range(1000))
    unsteady = altered(FORWARD, forward=lambda out, _: (out[0] * 2.0 ** next(calls), *out[1:]))
    wrong = launched(unsteady, streams, waits=False)
    verdicts = {one.subject: one for one in gate_verdicts(ordering.GATES[0], wrong, CASE)}
    assert verdicts["h_in"].status is Status.NOT_APPLICABLE
    assert verdicts["h_post"].status is Status.FAIL


def test_strides_and_offsets_stay(streams: Streams) -> None:
    seen: list[tuple[Any, ...]] = []

    def edit(out: Any, arguments: tuple[Any, ...]) -> Any:
        seen.append(tuple((one.stride(), one.storage_offset()) for one in arguments if one is not None))
        return out

    case = with_layout(CASE, "x", order=(1, 0, 2, 3), pad=1, offset=3)
    case = with_layout(with_layout(case, "phi", step=2), "bias", expand=(0,))
    gate_verdicts(ordering.GATES[0], altered(FORWARD, forward=edit), case)
    assert len(seen) == 4  # first, repeat, on NaN, late
    assert len(set(seen)) == 1


def test_on_the_cpu_it_says_that_it_does_not_apply() -> None:
    (verdict,) = gate_verdicts(ordering.GATES[0], MANUAL, CASE)
    assert (verdict.status, verdict.message) == (
        Status.NOT_APPLICABLE,
        "on this device a call returns when its work is done",
    )


# On a GPU

CUDA = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: tests/support/late_stream.py stands for one"
)
LARGER = scaled_case(B=4, S=64, n=4, D=256, dtype="float32")


def on_a_side_stream(*, waits: bool, awaited: bool, record: bool = False, work: int = 0) -> Implementation:
    """The manual forward on a stream of its own."""
    assert MANUAL.forward is not None

    def forward(*arguments: Any, **keywords: Any) -> Any:
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        if waits:
            side.wait_stream(current)
        with torch.cuda.stream(side):
            torch.cuda._sleep(work)  # type: ignore[no-untyped-call]
            results = MANUAL.forward(*arguments, **keywords)  # type: ignore[misc]
        if awaited:
            current.wait_stream(side)
        if record:
            for one in results:
                one.record_stream(current)
        return results

    return replace(MANUAL, name="on_a_side_stream", forward=forward, devices=("cuda",))


def that_synchronises() -> Implementation:
    """Works on the default stream, waits for everything before and behind."""

    def forward(*arguments: Any, **keywords: Any) -> Any:
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.default_stream()):
            results = MANUAL.forward(*arguments, **keywords)  # type: ignore[misc]
        torch.cuda.synchronize()
        return results

    return replace(MANUAL, name="that_synchronises", forward=forward, devices=("cuda",))


WRONG: dict[str, Callable[[], Implementation]] = {
    "does not wait": lambda: on_a_side_stream(waits=False, awaited=True),
    "is not awaited": lambda: on_a_side_stream(waits=True, awaited=False),
    "reads late": lambda: on_a_side_stream(waits=True, awaited=False, work=1 << 22),
    **{one.name: (lambda name=one.name: load(f"mhc.oracles.mutants.load:{name}")) for one in STREAMS},  # type: ignore[misc]
}
RIGHT: dict[str, Callable[[], Implementation]] = {
    **{one.name: (lambda one=one: one) for one in built_in("mhc_pre").values() if "cuda" in one.devices},  # type: ignore[misc]
    "waits": lambda: on_a_side_stream(waits=True, awaited=True),
    "waits and records": lambda: on_a_side_stream(waits=True, awaited=True, record=True),
    "synchronises": that_synchronises,
}


@CUDA
@pytest.mark.parametrize("case", [CASE, LARGER], ids=["small", "larger"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_on_a_gpu(name: str, case: Case) -> None:
    found = symptoms(check(WRONG[name](), case, "cuda", Level.FULL).verdicts)
    assert ("ordering", "unordered") in {(gate, symptom) for gate, _, symptom in found}


@CUDA
@pytest.mark.parametrize("case", [CASE, LARGER], ids=["small", "larger"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_on_a_gpu(name: str, case: Case) -> None:
    verdicts = check(RIGHT[name](), case, "cuda", Level.FULL).verdicts
    if refusal.refused(verdicts):
        pytest.skip(verdicts[0].message)
    assert symptoms(verdicts) == set()
    assert any(one.oracle == "ordering" and one.status is Status.PASS for one in verdicts)


def test_the_poison_is_a_nan() -> None:
    assert torch.full((4,), NAN_FILL, dtype=torch.uint8).view(torch.float32).isnan().all()


def test_the_inputs_are_later_than_a_call_takes_on_the_host(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(streams, "delay", delays.append)

    def slowly() -> tuple[()]:
        time.sleep(0.05)
        return ()

    call_late(slowly, [], {}, streams)
    assert len(delays) == 1
    assert 0.1 <= delays[0] < 0.4, "twice as long, and not so long that a campaign waits for it"
