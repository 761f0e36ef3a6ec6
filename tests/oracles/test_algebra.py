"""The algebra gate: each relation, and a wrong implementation that it finds."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from mhc import Case, default_case, materialise, reference
from mhc.case import with_tensor
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import algebra
from mhc.oracles.bound import tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.reindex import Reindexing, index_map
from mhc.oracles.trial import Gate
from mhc.oracles.verdict import Status
from mhc.strategies.cases import cases
from tests.support.helpers import altered, gate_symptoms, gate_verdicts, scaled_case

GATES = {gate.variant: gate for gate in algebra.GATES if gate.variant != "declared relation"}
CASE = scaled_case(B=2, S=3, n=3, D=5, dtype="float32")

Edit = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


def by_position(out: tuple[Tensor, ...], _: Any) -> Any:
    """The first token of a call is another one's."""
    h_post = out[1].clone()
    if h_post.numel():
        h_post[0, 0] = h_post[-1, -1]
    return (out[0], h_post, *out[2:])


def mean_over_tokens(out: tuple[Tensor, ...], _: Any) -> Any:
    """dbias averaged, where it is a sum."""
    return (*out[:3], out[3] / max(1, out[0].shape[0] * out[0].shape[1]), out[4])


def first_stream(out: tuple[Tensor, ...], _: Any) -> Any:
    """Stream 0 alone has its gate."""
    h_post = out[1].clone()
    h_post[..., 1:] = h_post[..., 1:] + 1e-3
    return (out[0], h_post, *out[2:])


def small_x(out: tuple[Tensor, ...], arguments: tuple[Any, ...]) -> Any:
    """Wrong for large x alone."""
    x = arguments[0]
    return (out[0] * (1.0 if float(x.abs().max()) < 1 else 1.01), *out[1:])


def gamma_matters_not(out: tuple[Tensor, ...], arguments: tuple[Any, ...]) -> Any:
    """dphi without gamma."""
    gamma = arguments[-1]
    return (out[0], out[1] if gamma is None else out[1] / gamma.reshape(-1), *out[2:])


def never_zero(out: tuple[Tensor, ...], _: Any) -> Any:
    return (out[0], out[1] + 1e-30, *out[2:])


WRONG: dict[str, dict[str, Edit]] = {
    "permuted tokens": {"forward": by_position},
    "sliced tokens": {"forward": by_position},
    "repeated tokens": {"backward": mean_over_tokens},
    "permuted streams": {"forward": first_stream},
    "scaled x": {"forward": small_x},
    "gamma folded": {"backward": gamma_matters_not},
    "alpha zero": {"backward": never_zero},
    "upstream zero": {"backward": never_zero},
}


@pytest.mark.parametrize("variant", GATES)
def test_each_relation_finds_a_wrong_implementation_and_passes_the_right_one(variant: str) -> None:
    gate = GATES[variant]
    found = set()
    for S in (3, 4, 5, 7):
        case = scaled_case(B=2, S=S, n=3, D=5, dtype="float32")
        found |= {(oracle, symptom) for oracle, _, symptom in gate_symptoms(gate, altered(MANUAL, **WRONG[variant]), case)}
        verdicts = gate_verdicts(gate, MANUAL, case)
        assert not [one for one in verdicts if one.status is Status.FAIL]
        assert [one for one in verdicts if one.status is Status.PASS]
    assert found == {("algebra", variant)}


@pytest.mark.parametrize("variant", ["permuted tokens", "repeated tokens", "permuted streams"])
def test_what_is_right_on_the_first_inputs_alone_is_found(variant: str) -> None:
    first: list[Any] = []

    def right_once(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        first.append(arguments[0].clone())
        same = torch.equal(first[0], arguments[0])
        return out if same else (out[0], out[1] + 1e-3, *out[2:])

    case = scaled_case(B=2, S=3, n=3, D=5, dtype="float32")
    assert ("algebra", "h_post", variant) in gate_symptoms(GATES[variant], altered(MANUAL, forward=right_once), case)


def test_a_failure_says_which_relation_and_where() -> None:
    wrong = altered(MANUAL, backward=mean_over_tokens)
    message = next(one.message for one in gate_verdicts(GATES["repeated tokens"], wrong, CASE) if one.status is Status.FAIL)
    assert message.startswith("repeated tokens: dbias[")
    assert ", float64 " in message


def test_one_token_is_repeated_too() -> None:
    one = scaled_case(B=1, S=1, n=3, D=5, dtype="float32")
    wrong = altered(MANUAL, forward=lambda out, _: (out[0] * (1 + 0.01 * (len(out[0]) - 1)), *out[1:]))
    assert gate_symptoms(GATES["repeated tokens"], wrong, one) == {("algebra", "h_in", "repeated tokens")}


@pytest.mark.parametrize("variant", ["permuted tokens", "sliced tokens"])
def test_two_tokens_are_moved_and_one_is_not(variant: str) -> None:
    (alone,) = gate_verdicts(GATES[variant], MANUAL, scaled_case(B=1, S=1, n=3, D=5, dtype="float32"))
    assert (alone.status, alone.message) == (Status.NOT_APPLICABLE, "fewer than two tokens")
    two = gate_verdicts(GATES[variant], MANUAL, scaled_case(B=1, S=2, n=3, D=5, dtype="float32"))
    assert {"h_in", "dx"} <= {one.subject for one in two if one.status is Status.PASS}


@pytest.mark.parametrize("variant", ["scaled x", "permuted streams"])
def test_a_precision_that_is_declared_is_allowed_for(variant: str) -> None:
    forward: Any = MANUAL.forward

    def coarse(x: Tensor, phi: Tensor, *rest: Any, **scalars: float) -> Any:
        return forward(x, phi.bfloat16().float(), *rest, **scalars)

    for precision, fails in (("float32", True), ("bfloat16", False)):
        rounded = replace(MANUAL, forward=coarse, backward=None, precision={"matmul": precision})
        assert bool(gate_symptoms(GATES[variant], rounded, CASE)) is fails, precision


@pytest.mark.parametrize("variant", GATES)
def test_what_has_no_tokens_or_one_stream_is_not_a_pass(variant: str) -> None:
    verdicts = gate_verdicts(GATES[variant], MANUAL, default_case(B=0, S=1, n=1, D=1))
    passed = {one.subject for one in verdicts if one.status is Status.PASS}
    assert not passed & {"h_in", "h_post", "dx"}


def test_an_axis_of_blocks_is_moved_block_by_block() -> None:
    order = torch.tensor([1, 0])
    assert index_map([("n",), ("n", "n")], {"n": 2}, "n", order).tolist() == [1, 0, 5, 4, 3, 2]
    assert index_map([("n", "D")], {"n": 2, "D": 3}, "n", order).tolist() == [3, 4, 5, 0, 1, 2]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(cases(dtypes=("float64",), special=False, max_elements=1 << 10))
def test_the_reference_itself_obeys_the_moves(case: Case) -> None:
    """The float64 formula on permuted streams is the permuted result, within twice what float64 rounding allows."""
    if case.sizes["n"] < 2:
        return
    inputs = materialise(case)
    order = torch.arange(case.sizes["n"]).roll(1)
    table = case.table
    blocks = {table.streams: ((table.streams,),), **table.blocks}
    axes = {symbol: index_map(parts, case.sizes, table.streams, order) for symbol, parts in blocks.items()}
    move = Reindexing(table=table, axes=axes)
    before = reference(inputs)
    after = table.forward(
        *(None if t is None else move.move(t, s) for s, t in ((s, inputs.tensors[s.name]) for s in table.inputs)),
        **case.scalars,
    )
    allowed = tolerances(inputs, before)
    for spec, value in zip(table.outputs, after, strict=True):
        wanted, error = (move.move(t, spec) for t in (before.outputs[spec.name], allowed.outputs[spec.name].error))
        promised = wanted.isfinite() & error.isfinite()
        assert ((value - wanted).abs() <= 2 * error)[promised].all(), spec.name


def test_a_relation_out_of_range_is_not_applicable() -> None:
    huge = with_tensor(CASE, "x", scale=8e37)
    (verdict,) = gate_verdicts(GATES["scaled x"], MANUAL, huge)
    assert verdict.status is Status.NOT_APPLICABLE
    assert verdict.message == "x leaves the range of its dtype"


def test_every_relation_has_a_gate_of_its_own() -> None:
    assert {*WRONG, "declared relation"} == {gate.variant for gate in algebra.GATES}
    assert all(isinstance(gate, Gate) and gate.name == "algebra" for gate in algebra.GATES)


def test_a_scaled_reference_is_compared_where_both_have_a_tolerance() -> None:
    def number(*pairs: tuple[float, float], finite: bool = False) -> ErrorNumber:
        value, error = (torch.tensor([one[at] for one in pairs], dtype=torch.float64) for at in (0, 1))
        return ErrorNumber(value, error, torch.float32, finite=finite)

    inf = math.inf
    before = number((3.0, 0.5), (3.0, inf), (3.0, 0.5), (inf, 0.0))
    fresh = number((7.0, 0.25), (7.0, 0.25), (7.0, inf), (7.0, 0.25))
    found = algebra._scale(fresh, before, 2.0)
    assert found.value.tolist() == [6.0, 6.0, 6.0, inf]
    assert found.error.tolist() == [0.25, inf, inf, inf]
    among_finite = algebra._scale(number(*[(7.0, 0.25)] * 2, finite=True), number((3.0, 0.5), (3.0, inf)), 2.0)
    assert among_finite.error.tolist() == [0.25, inf]
    sure = algebra._scale(number((7.0, 0.25), finite=True), number((3.0, 0.5), finite=True), torch.tensor([4.0]))
    assert (sure.value.tolist(), sure.error.tolist(), sure.dtype) == ([12.0], [0.25], torch.float32)
    for one, factor in ((None, 2.0), (before, None)):
        assert algebra._scale(fresh, one, factor) is fresh, "nothing is predicted"
