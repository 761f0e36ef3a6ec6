"""The sequence gate finds what a kernel keeps from call to call under too few of the sizes."""

import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, default_case, materialise, operator
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import sequence
from mhc.oracles.gates import RARE
from mhc.oracles.sequence import another_dtype, other_scalars, other_sizes
from mhc.oracles.trial import Gate
from mhc.oracles.verdict import Status
from mhc.recipe import Layout
from mhc.reference import ReferenceRaised
from tests.support.helpers import altered, gate_symptoms, gate_verdicts

Function = Callable[[Tensor], Tensor]
CASE = default_case(B=1, S=2, n=2, D=3, dtype="float32")
REWRITTEN, DTYPE, SCALARS, VALUES, SIZES = sequence.GATES


@operator(x="[T, D] float32", D=(1, 40))
def unit_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def right() -> Function:
    return lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def compiled_for_the_first_width() -> Function:
    widths: list[int] = []

    def function(x: Tensor) -> Tensor:
        widths.append(x.shape[-1])
        return x * torch.rsqrt(x[:, : widths[0]].square().sum(-1, keepdim=True) + 1e-6)

    return function


def buffer_of_the_widest() -> Function:
    """A buffer is kept and grows; what a wider call left in it is added up too."""
    buffers: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        rows, width = x.shape
        if not buffers or buffers[-1].shape[0] < rows or buffers[-1].shape[1] < width:
            old = buffers[-1].shape if buffers else (0, 0)
            buffers.append(torch.zeros(max(rows, old[0]), max(width, old[1])))
        buffers[-1][:rows, :width] = x.detach()
        squares = buffers[-1][:rows].square()
        rest = squares.sum(-1, keepdim=True) - squares[:, :width].sum(-1, keepdim=True)
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + rest + 1e-6)

    return function


def norm_case(**sizes: Any) -> Case:
    """A case of the operator, which an implementation of it makes known."""
    implementation = Implementation(name="one", operator=unit_norm, function=right())
    return default_case(operator=str(implementation.operator), dtype="float32", **sizes)


def case_that(grows: bool) -> Case:
    cases = (with_tensor(norm_case(T=5, D=20), "x", seed=seed) for seed in range(40))
    return next(case for case in cases if (other_sizes(case).sizes["D"] > 20) == grows)


def symptoms(function: Function, case: Case) -> set[str]:
    implementation = Implementation(name="one", operator=unit_norm, function=function)
    verdicts = check(implementation, case, "cpu", Level.FULL).verdicts
    assert any(one.oracle == sequence.NAME for one in verdicts)
    assert {one.oracle for one in verdicts if one.status is Status.FAIL} <= {sequence.NAME}
    return {one.symptom for one in verdicts if one.status is Status.FAIL}


@pytest.mark.parametrize("grows", [True, False])
def test_a_kernel_that_keeps_nothing_passes(grows: bool) -> None:
    assert symptoms(right(), case_that(grows)) == set()


@pytest.mark.parametrize(
    ("make", "grows", "symptom"),
    [
        (compiled_for_the_first_width, True, "wrong after others"),
        (buffer_of_the_widest, False, "wrong after others"),
        (buffer_of_the_widest, True, "changed by others"),
    ],
)
def test_what_is_kept_under_too_few_of_the_sizes_is_found(make: Callable[[], Function], grows: bool, symptom: str) -> None:
    assert symptoms(make(), case_that(grows)) == {symptom}


def test_a_failure_in_another_case_names_it() -> None:
    case = case_that(grows=True)
    implementation = Implementation(name="one", operator=unit_norm, function=compiled_for_the_first_width())
    failures = check(implementation, case, "cpu", Level.FULL).failures
    other = other_sizes(case)
    assert {one.subject for one in failures} == {"y", "dx"}
    for wrong in failures:
        assert wrong.message.endswith(f"(run: other sizes, {other.id})")
        assert wrong.other == other


def wrong_from(width: int) -> Function:
    """Nothing is kept."""
    return lambda x: right()(x) * (2 if x.shape[-1] >= width else 1)


def raises_from(width: int) -> Function:
    def function(x: Tensor) -> Tensor:
        if x.shape[-1] >= width:
            raise ValueError("too wide")
        return right()(x)

    return function


def raises_again_from(width: int) -> Function:
    """A forward and a backward are wrong, and what follows them raises."""
    wide: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        if x.shape[-1] >= width:
            wide.append(x)
        return (raises_from if len(wide) > 2 else wrong_from)(width)(x)

    return function


def width_of_the_last_call() -> Function:
    """The first call of a greater width is wrong, and the second one right."""
    widths: list[int] = []

    def function(x: Tensor) -> Tensor:
        widths.append(x.shape[-1])
        return x * torch.rsqrt(x[:, : widths[-2:][0]].square().sum(-1, keepdim=True) + 1e-6)

    return function


@pytest.mark.parametrize("make", [wrong_from, raises_from, raises_again_from])
def test_of_a_drawn_case_another_one_that_is_wrong_by_itself_is_judged_in_its_place(make: Callable[[int], Function]) -> None:
    case = case_that(grows=True)
    implementation = Implementation(name="one", operator=unit_norm, function=make(21))
    judged = check(implementation, case, "cpu", Level.DRAWN, rare=RARE.index(SIZES))
    assert judged.failures
    assert judged == check(implementation, other_sizes(case), "cpu", Level.PLAIN)
    every = check(implementation, case, "cpu", Level.FULL)
    assert every.case == case, "only campaigns draw"
    assert {one.other for one in every.failures} == {other_sizes(case)}


def test_what_is_right_by_itself_is_wrong_after_others() -> None:
    case = case_that(grows=True)
    implementation = Implementation(name="one", operator=unit_norm, function=width_of_the_last_call())
    judged = check(implementation, case, "cpu", Level.DRAWN, rare=RARE.index(SIZES))
    assert judged.case == case
    assert {(one.oracle, one.symptom, one.other) for one in judged.failures} == {
        ("sequence", "wrong after others", other_sizes(case))
    }


def test_another_case_is_run_alone_only_where_it_fails() -> None:
    calls: list[int] = []

    def function(x: Tensor) -> Tensor:
        calls.append(x.shape[-1])
        return right()(x)

    implementation = Implementation(name="one", operator=unit_norm, function=function)
    assert not check(implementation, case_that(grows=True), "cpu", Level.DRAWN, rare=RARE.index(SIZES)).failures
    assert 21 in calls
    assert calls[-1] == 20


@operator(x="[T, D] storage", cosine="[T, D] float32", D=(1, 40))
def rotated(x: Tensor, cosine: Tensor) -> Tensor:
    return (x.to(cosine.dtype) * cosine).to(x.dtype)


@operator(x="[T] float32", i="[T] int64 in 0..T", T=(1, 40))
def gathered(x: Tensor, i: Tensor) -> Tensor:
    return x[i]


def table_of_the_first_dtype() -> Callable[[Tensor, Tensor], Tensor]:
    """A buffer is kept for a shape, in the dtype of the first call."""
    kept: dict[torch.Size, torch.dtype] = {}

    def function(x: Tensor, cosine: Tensor) -> Tensor:
        dtype = kept.setdefault(x.shape, x.dtype)
        return (x.to(dtype).to(cosine.dtype) * cosine).to(x.dtype)

    return function


def test_what_is_kept_without_its_dtype_is_found() -> None:
    for function, found in ((rotated.function, set()), (table_of_the_first_dtype(), {"wrong after others"})):
        implementation = Implementation(name="one", operator=rotated, function=function, dtypes=("bfloat16", "float32"))
        case = default_case(operator="rotated", dtype="bfloat16", T=5, D=20)
        assert {symptom for _, _, symptom in gate_symptoms(DTYPE, implementation, case)} == found
    other = another_dtype(case, implementation.dtypes)
    assert other is not None
    implementation = replace(implementation, forward=table_of_the_first_dtype())
    wrong = [one for one in gate_verdicts(DTYPE, implementation, case) if one.status is Status.FAIL]
    assert wrong
    for one in wrong:
        assert one.message.endswith(f"(run: another dtype, {other.id})")
        assert one.other == other


def test_another_dtype_is_not_tried_where_there_is_none() -> None:
    for table, dtypes in ((rotated, ("bfloat16",)), (gathered, ("bfloat16", "float32"))):
        implementation = Implementation(name="one", operator=table, function=table.function, dtypes=dtypes)
        case = default_case(operator=table.name, dtype="bfloat16", T=5)
        (verdict,) = gate_verdicts(DTYPE, implementation, case)
        assert verdict.status is Status.NOT_APPLICABLE


@operator(x="[T] storage", factor=(1.0, 2.0, 4.0))
def scaled(x: Tensor, *, factor: float) -> Tensor:
    return x * factor


def first_factor() -> Callable[..., Tensor]:
    """A factor is kept for a shape."""
    kept: dict[torch.Size, float] = {}
    return lambda x, *, factor: x * kept.setdefault(x.shape, factor)


def test_what_is_kept_without_a_scalar_is_found() -> None:
    for function, found in ((scaled.function, set()), (first_factor(), {"wrong after others"})):
        implementation = Implementation(name="one", operator=scaled, function=function)
        case = default_case(operator="scaled", dtype="float32", T=5, scalars={"factor": 4.0})
        assert {symptom for _, _, symptom in gate_symptoms(SCALARS, implementation, case)} == found
    other = other_scalars(case)
    assert other is not None
    assert (other.scalars["factor"], other.sizes, other.dtype) == (1.0, case.sizes, case.dtype)
    wrong = [one for one in gate_verdicts(SCALARS, implementation, case) if one.status is Status.FAIL]
    assert wrong
    assert {one.other for one in wrong} == {other}
    beside = other_scalars(replace(case, scalars={"factor": 3.0}))
    assert beside is not None
    assert beside.scalars["factor"] == 1.0


@operator(x="[T] storage", step=(1, 2), beta=(0.5, 0.25), rate=(1.0, 2.0))
def corrected(x: Tensor, *, step: int, beta: float, rate: float) -> Tensor:
    return x / (1 - beta**step) * rate


def test_of_several_scalars_some_stay() -> None:
    """A correction that is kept for a step alone shows where the step stays and beta does not."""
    assert Implementation(name="one", operator=corrected, function=corrected.function).operator == "corrected"
    cases = [default_case(operator="corrected", dtype="float32", T=size) for size in range(1, 40)]
    kept = [
        {name for name, value in case.scalars.items() if value == other.scalars[name]}
        for case in cases
        if (other := other_scalars(case))
    ]
    assert len({frozenset(one) for one in kept}) == 2**3 - 1, "every selection but all of them"


def test_other_scalars_are_not_tried_where_there_are_none() -> None:
    implementation = Implementation(name="one", operator=gathered, function=gathered.function)
    (verdict,) = gate_verdicts(SCALARS, implementation, default_case(operator="gathered", T=5))
    assert verdict.message == "no scalar has another value"


def kept_by_object() -> Function:
    """The norms are kept for a tensor, and found by its identity."""
    kept: list[tuple[Tensor, Tensor]] = []

    def function(x: Tensor) -> Tensor:
        if not kept or kept[-1][0] is not x:
            kept.append((x, x.square().sum(-1, keepdim=True).detach()))
        return right()(x) if x.requires_grad else x * torch.rsqrt(kept[-1][1] + 1e-6)

    return function


def kept_by_address() -> Function:
    """The gradient's factor is kept for the memory of a tensor."""
    kept: dict[int, tuple[Tensor, Tensor]] = {}  # with the tensor itself, so that its address is not used again

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return right()(x)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            _, sums = kept.setdefault(x.data_ptr(), (x, x.square().sum(-1, keepdim=True) + 1e-6))
            gradient: Tensor = (dy - x * (dy * x).sum(-1, keepdim=True) / sums) / sums.sqrt()
            return gradient

    function: Function = Norm.apply
    return function


def found_by_rewriting(function: Function, case: Case) -> set[tuple[str, str, str]]:
    implementation = Implementation(name="one", operator=unit_norm, function=function)
    return gate_symptoms(REWRITTEN, implementation, case)


@pytest.mark.parametrize(("make", "subject"), [(kept_by_object, "y"), (kept_by_address, "dx")])
def test_what_is_kept_of_a_tensor_that_is_rewritten_is_found(make: Callable[[], Function], subject: str) -> None:
    spread = with_tensor(norm_case(T=5, D=20), "x", layout=Layout(step=2, offset=3))
    for case in (norm_case(T=5, D=20), spread):
        assert found_by_rewriting(right(), case) == set()
        assert found_by_rewriting(make(), case) == {("sequence", subject, "stale inputs")}


@operator(x="[T, D] float32", w="[D] float32", D=(1, 40))
def squared(x: Tensor, w: Tensor) -> Tensor:
    return x * w.square()


def squared_by_the_first(kept: dict[tuple[int, ...], Tensor]) -> Implementation:
    """The squares of the first w of a size serve all later ones of that size."""

    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * kept.setdefault(tuple(w.shape), w.square())

    return Implementation(name="one", operator=squared, forward=forward)


def test_what_is_kept_of_the_first_values_of_a_size_is_found_and_its_tensor_named() -> None:
    implementation = squared_by_the_first({})
    case = default_case(operator=str(implementation.operator), dtype="float32", T=5, D=20)
    failures = [one for one in gate_verdicts(VALUES, implementation, case) if one.status is Status.FAIL]
    assert [(one.subject, one.symptom, one.other) for one in failures] == [("y", "stale inputs", None)]
    assert "as if w had its values of the call before" in failures[0].message
    assert gate_symptoms(VALUES, replace(implementation, forward=squared), case) == set()
    constant = functools.reduce(lambda one, name: with_tensor(one, name, kind="constant"), ("x", "w", "dy"), case)
    assert {one.status for one in gate_verdicts(VALUES, squared_by_the_first({}), constant)} == {Status.NOT_APPLICABLE}


@pytest.mark.parametrize("gate", [REWRITTEN, VALUES])
def test_values_that_the_reference_does_not_take_are_no_findings_on_a_kernel(gate: Gate) -> None:
    @operator(x="[T] storage", at="[T] int64 in 0..9", T=(4, 8))
    def picked(x: Tensor, at: Tensor) -> Tensor:
        return x[at]

    implementation = Implementation(name="one", operator=picked, forward=lambda x, at: x[at])
    plain = default_case(operator=str(implementation.operator), T=4)
    cases = (with_tensor(plain, "at", seed=seed) for seed in range(10000))
    tensors = (materialise(one).tensors["at"] for one in cases)
    inside = (at is not None and int(at.max()) < 4 for at in tensors)
    seed = next(at for at, (one, other) in enumerate(pairwise(inside)) if one and not other)
    case = with_tensor(plain, "at", seed=seed)
    with pytest.raises(ReferenceRaised, match="IndexError"):
        gate_verdicts(gate, implementation, case)


def test_what_is_wrong_for_other_values_is_a_finding_on_them() -> None:
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w.square() * (1 if x.flatten()[0] == first else 2)

    implementation = Implementation(name="one", operator=squared, forward=forward)
    case = default_case(operator=str(implementation.operator), dtype="float32", T=5, D=20)
    x = materialise(case).tensors["x"]
    assert x is not None
    first = x.flatten()[0].clone()
    failures = [one for one in gate_verdicts(VALUES, implementation, case) if one.status is Status.FAIL]
    assert [(one.subject, one.symptom) for one in failures] == [("y", "wrong after others")]
    assert failures[0].other is not None
    assert failures[0].other.tensors["x"].seed == case.tensors["x"].seed + 1


def test_the_saved_tensors_of_a_backward_are_rewritten_too() -> None:
    kept: list[tuple[Tensor, Tensor]] = []
    at = CASE.table.backward_arguments.index("inv_rms")

    def backward(gradients: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not kept or kept[-1][0] is not given[at]:
            kept.append((given[at], given[at].clone()))
        return (gradients[0] * (given[at] / kept[-1][1]).mean(), *gradients[1:])

    assert gate_symptoms(REWRITTEN, altered(MANUAL, backward=backward), CASE) == {("sequence", "dx", "stale inputs")}
    assert gate_symptoms(REWRITTEN, MANUAL, CASE) == set()


def test_a_backward_that_reads_what_the_last_forward_left_is_found() -> None:
    last: list[Tensor] = []
    x = CASE.table.forward_arguments.index("x"), CASE.table.backward_arguments.index("x")

    def forward(outputs: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        last[:] = [given[x[0]].clone()]
        return outputs

    def backward(gradients: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (gradients[0] * (1 if torch.equal(last[0], given[x[1]]) else 2), *gradients[1:])

    stale = altered(MANUAL, forward=forward, backward=backward)
    assert gate_symptoms(REWRITTEN, stale, CASE) == {("sequence", "dx", "stale inputs")}


def test_a_tensor_may_be_written_where_the_operator_says_so() -> None:
    implementation = Implementation(name="one", operator=written_norm, function=lambda x, w: x.mul_(w))
    case = default_case(operator=str(implementation.operator), dtype="float32", T=3, D=4)
    verdicts = gate_verdicts(REWRITTEN, implementation, case)
    assert {one.status for one in verdicts} == {Status.PASS}


@operator(x="[T, D] float32", w="[D] float32", mutates=("x",), D=(1, 40))
def written_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def test_an_exception_in_the_earlier_call_is_a_failure_and_leaves_the_inputs_as_they_are() -> None:
    case = norm_case(T=5, D=20)
    wanted = materialise(case).tensors["x"]

    def function(x: Tensor) -> Tensor:
        if not torch.equal(x.detach(), wanted):  # type: ignore[arg-type]
            raise ValueError("other values")
        return right()(x)

    assert found_by_rewriting(function, case) == {("liveness", "forward", "raises ValueError")}


def test_values_that_no_seed_changes_are_not_rewritten() -> None:
    case = norm_case(T=5, D=20)
    for name in case.tensors:
        case = with_tensor(case, name, kind="constant")
    implementation = Implementation(name="one", operator=unit_norm, function=right())
    (verdict,) = gate_verdicts(REWRITTEN, implementation, case)
    assert (verdict.status, verdict.message) == (Status.NOT_APPLICABLE, "its values do not depend on a seed")


@operator(x="[T, K] float32", w="[K, M] float32", K=(1, 40), M=(1, 40))
def matrix_of_two(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def test_less_precision_that_is_declared_is_allowed_with_other_sizes_too() -> None:
    def narrow(x: Tensor, w: Tensor) -> Tensor:
        return x.bfloat16().float() @ w.bfloat16().float()

    honest = Implementation(name="one", operator=matrix_of_two, function=narrow, precision={"matmul": "bfloat16"})
    case = default_case(operator=str(honest.operator), dtype="float32", T=5, K=20, M=6)
    verdicts = [one for one in check(honest, case, "cpu", Level.FULL).verdicts if one.oracle == sequence.NAME]
    assert {one.status for one in verdicts if one.subject != "case"} == {Status.PASS}


def test_one_of_mhc_pre_that_keeps_its_first_number_of_tokens() -> None:
    first: list[int] = []

    def forward(out: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first.append(given[0].shape[1])
        h_in = out[0].clone()
        h_in[:, first[0] :] = 0
        return (h_in, *out[1:])

    case = default_case(B=1, S=5, n=2, D=8, dtype="float32")
    case = next(one for one in (with_tensor(case, "x", seed=seed) for seed in range(40)) if other_sizes(one).sizes["S"] > 5)
    failures = check(altered(MANUAL, forward=forward), case, "cpu", Level.FULL).failures
    assert ("sequence", "h_in", "wrong after others") in {(one.oracle, one.subject, one.symptom) for one in failures}


def test_other_sizes_keep_within_the_ranges_and_the_compiled_sizes() -> None:
    for seed in range(20):
        case = with_tensor(default_case(B=1, S=3, n=2, D=8, dtype="float32"), "x", seed=seed)
        other = other_sizes(case)
        assert (other.sizes["n"], other.sizes["D"]) == (2, 8)
        assert other.shape != case.shape
        widest = other_sizes(with_tensor(norm_case(T=1, D=40), "x", seed=seed))
        assert 1 <= widest.sizes["D"] <= 40


def test_other_sizes_keep_everything_else() -> None:
    scalars = {"norm_eps": 0.125, "hc_eps": 0.5}
    schedules = {"triton": {"BLOCK": 64}}
    plain = default_case(
        B=1, S=3, n=2, D=8, dtype="float16", absent=frozenset({"gamma"}), scalars=scalars, schedules=schedules
    )
    spoilt = with_tensor(plain, "x", kind="sparse", scale=2.0**20, literals=(((0, 0, 0, 0), float("nan")),))
    other = other_sizes(spoilt)
    assert dict(other.scalars) == scalars
    assert {name: dict(one) for name, one in other.schedules.items()} == schedules
    assert (other.operator, other.dtype, other.has("gamma")) == ("mhc_pre", "float16", False)
    assert dict(other.tensors) == dict(plain.tensors), "with plain values"


def test_sizes_shrink_to_any_smaller_one_or_grow_by_one() -> None:
    base = norm_case(T=4, D=40)
    found = [other_sizes(with_tensor(base, "x", seed=seed)).sizes for seed in range(120)]
    pairs = {(sizes["T"], sizes["D"]) for sizes in found}
    assert {T for T, _ in pairs} == {1, 2, 3, 5}
    assert max(D for _, D in pairs) == 40, "it may not grow beyond its range"
    assert all((T == 5) == (D == 40) for T, D in pairs), "all grow, or none"
    least = norm_case(T=1, D=1)
    for seed in range(8):
        sizes = other_sizes(with_tensor(least, "x", seed=seed)).sizes
        assert (sizes["T"], sizes["D"]) == (2, 2), "no axis has a smaller size"
