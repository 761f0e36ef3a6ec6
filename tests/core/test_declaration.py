"""Operators declared by a plain PyTorch function: notation, reference, bounds, and a whole check of one."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import (
    Case,
    DeclarationError,
    Implementation,
    ImplementationError,
    default_case,
    load,
    materialise,
    operator,
    reference,
)
from mhc.declaration import Backward, InTuple
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operator import OPERATORS, Operator, Role
from mhc.oracles.bound import tolerances
from mhc.oracles.verdict import Status
from mhc.reference import ReferenceRaised

F64 = torch.float64


@operator(x="[*B, D] storage", weight="[D] storage", D=(1, 8192), eps=(1e-6, 1e-5, 0.0), tokens="*B")
def declared_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def by_division(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    v = x.float()
    return (v / (v.square().mean(-1, keepdim=True) + eps).sqrt()).to(x.dtype) * weight


def drops_the_last_column(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    v = torch.cat([x[..., :-1], x[..., -1:] * 0], -1)
    return by_division(v, weight, eps=eps)


RIGHT = Implementation(name="by division", operator=declared_norm, function=by_division)
WRONG = Implementation(name="drops", operator=declared_norm, function=drops_the_last_column)


def test_the_notation_gives_the_record_of_the_operator() -> None:
    assert declared_norm.axis_names == ("B0", "B1", "B2", "D")
    assert (declared_norm.axis("D").least, declared_norm.axis("D").most) == (1, 8192)
    assert declared_norm.tokens == ("B0", "B1", "B2")
    assert [(spec.name, spec.symbols, spec.role) for spec in declared_norm.outputs] == [
        ("y", ("B0", "B1", "B2", "D"), Role.STORAGE)
    ]
    assert [spec.name for spec in (*declared_norm.upstream, *declared_norm.gradients)] == ["dy", "dx", "dweight"]
    assert declared_norm.scalars == {"eps": 1e-6}
    assert declared_norm.scalar_choices == {"eps": (1e-6, 1e-5, 0.0)}


def test_a_declared_operator_is_still_the_function() -> None:
    x, weight = torch.randn(3, 8), torch.ones(8)
    assert torch.allclose(declared_norm(x, weight, eps=0.0), by_division(x, weight, eps=0.0))
    with pytest.raises(TypeError, match="operator mhc_pre was not declared by a function"):
        OPERATORS["mhc_pre"](x)


def test_an_output_in_float32_and_several_outputs_are_seen() -> None:
    @operator(a="[T, V]")
    def two(a: Tensor) -> tuple[Tensor, Tensor]:
        return torch.logsumexp(a.float(), -1), a.softmax(-1)

    assert [(spec.name, spec.symbols, spec.role) for spec in two.outputs] == [
        ("y0", ("T",), Role.ACCUMULATE),
        ("y1", ("T", "V"), Role.STORAGE),
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_reference_is_float64_whatever_the_function_converts_to(dtype: str) -> None:
    case = default_case(operator="declared_norm", B0=2, B1=3, D=37, dtype=dtype)
    inputs = materialise(case)
    x, weight, dy = (inputs.tensors[name].double().clone() for name in ("x", "weight", "dy"))  # type: ignore[union-attr]
    x.requires_grad_()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    (dx,) = torch.autograd.grad(y, x, dy)
    found = reference(inputs)
    torch.testing.assert_close(found.outputs["y"], y.detach(), rtol=1e-14, atol=0)
    assert found.gradients["dx"] is not None
    torch.testing.assert_close(found.gradients["dx"], dx, rtol=1e-12, atol=1e-15)
    allowed = tolerances(inputs, found).results
    assert set(allowed) == {"y", "dx", "dweight"}
    torch.testing.assert_close(allowed["y"].value, y.detach(), rtol=1e-14, atol=0)


def test_a_right_implementation_passes_and_a_wrong_one_fails_in_output_and_gradients() -> None:
    case = default_case(operator="declared_norm", B0=2, B1=3, D=37, dtype="bfloat16")
    right = check(RIGHT, case, "cpu").verdicts
    assert not [one for one in right if one.status is Status.FAIL]
    assert {one.subject for one in right if one.oracle == "bound" and one.status is Status.PASS} == {"y", "dx", "dweight"}
    wrong = {(one.oracle, one.subject) for one in check(WRONG, case, "cpu").failures}
    assert {("bound", "y"), ("bound", "dx"), ("bound", "dweight")} <= wrong


def test_a_file_that_is_imported_again_replaces_its_operator(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(
        "from mhc import Implementation, operator\n"
        "@operator(x='[T, D]')\n"
        "def doubled(x):\n"
        "    return x * 2\n"
        "IMPL = Implementation(name='mine', operator=doubled, function=lambda x: x + x)\n",
        encoding="utf-8",
    )
    for _ in range(2):
        assert load(f"{path}:IMPL").table is OPERATORS["doubled"]

    @operator(x="[T, D]")
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    with pytest.raises(
        ValueError, match=r"operator 'doubled': another one has this name \(in .*twice.py\); give one of them name="
    ):
        Implementation(name="other", operator=doubled, function=lambda x: x + x)


def test_what_a_declaration_lacks_is_said() -> None:
    def halved(x: Tensor) -> Tensor:
        return x / 2

    with pytest.raises(
        DeclarationError, match=r'operator needs the notation of each tensor, as in @operator\(x="\[T, D\]"\)'
    ):
        operator(halved)
    with pytest.raises(DeclarationError, match=r"halved: x is declared as '\[T D\]'; write commas between its axes"):
        operator(x="[T D]")(halved)
    with pytest.raises(ImplementationError, match=r"operator must be declared, by @mhc.operator\(...\) above the function"):
        Implementation(name="mine", operator=halved, function=halved)  # type: ignore[arg-type]


def test_an_operator_with_the_name_of_a_built_in_one_has_the_name_of_its_file_too() -> None:
    @operator(x="[T, D]")
    def rms_norm(x: Tensor) -> Tensor:
        return x

    mine = Implementation(name="mine", operator=rms_norm, function=lambda x: x.clone())
    assert mine.operator == "test_declaration.rms_norm"
    assert len(OPERATORS["rms_norm"].inputs) == 2
    case = default_case(operator="test_declaration.rms_norm", T=2, D=3)
    assert Case.from_json(case.json) == case


def plain(x: Tensor, *, eps: float) -> Tensor:
    return x + eps


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"x": "[T]"}, "plain: eps is an argument of the function, and is not declared"),
        ({"eps": 1.0}, "plain: x is an argument of the function, and is not declared"),
        ({"x": "T", "eps": 1.0}, r'plain: x must be declared as "\[axes\] dtype"'),
        ({"x": "[T] int3", "eps": 1.0}, "with a dtype out of storage, float32, int8, uint8, int16, int32, int64, bool, was"),
        ({"x": "[T] constant bool", "eps": 1.0}, "further words come in this order: .in 0..N., .or -1., .sorted"),
        ({"x": "[T]", "eps": 1.0, "T": "2*eps"}, "plain: eps is a scalar, and sizes are computed of axes alone"),
        ({"x": "[T]", "eps": 1.0, "D": (1, 2)}, "plain: D is neither an argument of the function nor an axis"),
        ({"x": "[T]", "eps": 1.0, "T": (2, 1)}, "plain: T must be a pair of integers, least and most"),
        ({"x": "[T]", "eps": "small"}, "plain: eps must be a number or a tuple of numbers"),
        ({"x": "[T]", "eps": 1.0, "tokens": "S"}, "plain: tokens: S is no axis of its tensors, which are T"),
    ],
)
def test_a_bad_declaration_says_what_was_expected(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        operator(**declared)(plain)


def test_an_argument_may_not_have_the_name_of_a_keyword_of_the_decorator() -> None:
    def picked(x: Tensor, tokens: Tensor, name: Tensor) -> Tensor:
        return x + tokens + name

    with pytest.raises(DeclarationError, match="picked: tokens is a keyword of @operator itself; name the argument"):
        operator(x="[T]", tokens="T", name="[T] float32")(picked)


def test_no_size_of_an_output_may_depend_on_a_scalar() -> None:
    def top(x: Tensor, *, k: int) -> Tensor:
        return x.topk(k, -1).values

    with pytest.raises(DeclarationError, match=r"top: y is \(5, 2\) with k = 2, \(5, 4\) with 4, for .*: no size may"):
        operator(x="[T, D]", k=(2, 4))(top)
    assert operator(x="[T, D]", k=(2,))(top).outputs[0].symbols == ("T", "2")
    assert operator(x="[T, D]", k=(2, 2000))(top).outputs[0].symbols == ("T", "2"), "these sizes are no case for 2000"


def test_a_function_that_fails_on_its_shapes_is_shown_with_them() -> None:
    def mismatched(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    with pytest.raises(DeclarationError, match=r"mismatched: the function fails on x \(5, 7\), y \(5, 7\): RuntimeError"):
        operator(x="[T, D]", y="[T, D]")(mismatched)


@pytest.mark.parametrize("given", [{"forward": by_division}, {"backward": by_division}])
def test_a_function_stands_in_place_of_forward_and_backward(given: dict[str, Callable[..., Any]]) -> None:
    with pytest.raises(ImplementationError, match="function stands in place of forward and backward"):
        Implementation(name="both", operator=declared_norm, function=by_division, **given)  # type: ignore[arg-type]


def test_the_built_in_operators_start_no_threads() -> None:
    """A process that is forked from one whose OpenMP threads have run may hang; workers are forked after this import."""
    code = (
        "import os, torch; a = os.listdir('/proc/self/task'); import mhc.registry; assert os.listdir('/proc/self/task') == a"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "2"}, check=True)


def test_a_derived_backward_differentiates_what_has_a_gradient_and_nothing_else() -> None:
    seen: list[list[bool | None]] = []

    def mixed(x: Tensor, i: Tensor, w: Tensor | None, b: Tensor | None, *, by: float) -> tuple[Tensor, ...]:
        seen.append([None if one is None else one.requires_grad for one in (x, i, w, b)])
        y = x[i] * by
        y = y if w is None else y * w
        return y, i.clone(), (x * x if b is None else x * x + b)

    declared: dict[str, Any] = {"x": "[T]", "i": "[T] int64 permutation", "w": "[T] constant optional", "b": "[T] optional"}
    table = operator(**declared, by=3.0)(mixed)
    assert table.backward_arguments == ("x", "i", "dy0", "dy2", "w", "b")
    assert [spec.name for spec in table.gradients] == ["dx", "db"]
    x, i, w, b = torch.tensor([1.0, 2.0]), torch.tensor([1, 0]), torch.tensor([5.0, 7.0]), torch.tensor([0.0, 0.0])
    dy0, dy2 = torch.tensor([10.0, 100.0]), torch.tensor([1.0, 1.0])
    seen.clear()
    dx, db = table.backward(x, i, dy0, dy2, w, b, by=3.0)
    assert dx.tolist() == [100 * 7 * 3 + 2, 10 * 5 * 3 + 4]
    assert db.tolist() == [1.0, 1.0]
    dx, db = table.backward(x, i, dy0, dy2, None, None, by=2.0)
    assert (dx.tolist(), db) == ([100 * 2 + 2, 10 * 2 + 4], None)
    assert seen == [[True, False, False, True], [True, False, None, None]]
    assert not x.requires_grad
    with torch.no_grad():
        assert table.backward(x, i, dy0, dy2, w, b, by=3.0)[0].tolist() == [2102.0, 154.0]


def test_a_derived_backward_leaves_its_arguments_and_says_what_does_not_depend() -> None:
    def overwrites(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        return x * x

    backward = Backward(overwrites, declared_pair.inputs, declared_pair.outputs, ("x",))
    x, w, dy = torch.tensor([3.0]), torch.tensor([5.0]), torch.tensor([1.0])
    dx, dw = backward(x, w, dy)
    assert dx is not None
    assert (dx.tolist(), dw, x.tolist()) == ([24.0], None, [3.0])
    x_w = [declared_pair.inputs[0], replace(declared_pair.inputs[1], optional=True)]
    backward = Backward(lambda x, w: x * 2 if w is None else w.mul_(3) * x, x_w, declared_pair.outputs, ("w",))
    absent, present = backward(x, dy, None), backward(x, dy, w)
    assert [[None if one is None else one.tolist() for one in found] for found in (absent, present)] == [
        [[2.0], None],
        [[15.0], [9.0]],
    ]
    assert w.tolist() == [5.0]
    nothing = Backward(
        overwrites, [replace(one, differentiable=False) for one in declared_pair.inputs], declared_pair.outputs
    )
    assert nothing(x, w, dy) == ()
    nothing = Backward(
        overwrites, declared_pair.inputs, [replace(one, differentiable=False) for one in declared_pair.outputs]
    )
    assert nothing(x, w) == ()


@operator(x="[T, D] storage constant", z="[T, D] storage optional", T=(1, 40))
def gated_if_there(x: Tensor, z: Tensor | None) -> Tensor:
    return x.clone() if z is None else x * z


@operator(x="[T, D] storage", first="[T, D] storage optional", T=(1, 40))
def sums_from(x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    before = torch.zeros_like(x) if first is None else first.clone()
    return before, before + x


@operator(x="[T] storage", T=(1, 40))
def sums_before(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of one token, the sum before it is 0 and depends on nothing."""
    return torch.zeros_like(x) if len(x) == 1 else x.cumsum(0) - x, x.clone()


@pytest.mark.parametrize(
    ("table", "sizes", "absent"),
    [
        (gated_if_there, {"T": 3, "D": 4}, {"z"}),
        (gated_if_there, {"T": 3, "D": 4}, set()),
        (sums_from, {"T": 3, "D": 4}, {"first"}),
        (sums_from, {"T": 3, "D": 4}, set()),
        (sums_before, {"T": 1}, set()),
        (sums_before, {"T": 5}, set()),
    ],
)
def test_an_output_may_depend_on_no_input_in_some_cases(table: Operator, sizes: dict[str, int], absent: set[str]) -> None:
    """Its upstream gradient is not used there; an implementation that cannot be differentiated otherwise is wrong."""
    right = Implementation(name="right", operator=table, function=table.function)
    wrong = Implementation(name="wrong", operator=table, function=lambda *given: detached(table.forward(*given)))
    case = default_case(operator=table.name, dtype="float32", absent=frozenset(absent), **sizes)
    assert not check(right, case, "cpu", Level.CLEAN).failures
    differentiable = any(one is not None for one in reference(materialise(case)).gradients.values())
    assert {one.oracle for one in check(wrong, case, "cpu").failures} == ({"liveness"} if differentiable else set())


def detached(results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(one.detach() for one in results)


def test_a_single_result_may_be_returned_by_itself() -> None:
    one = Implementation(
        name="bare", operator=declared_sum, forward=lambda x: x.sum(-1), backward=lambda x, dy: dy[:, None] + 0 * x
    )
    in_a_list = replace(one, forward=lambda x: [x.sum(-1)], backward=lambda x, dy: (dy[:, None] + 0 * x,))
    derived = Implementation(name="derived", operator=declared_sum, function=lambda x: x.sum(-1))
    assert isinstance(derived.backward, Backward)
    for implementation in (one, in_a_list, derived, replace(derived, name="again"), replace(one, name="again")):
        case = default_case(operator=implementation.table.name, dtype="float32", T=3, D=4)
        assert not check(implementation, case, "cpu", Level.PLAIN).failures, implementation.name


@operator(x="[T, D]")
def declared_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


@operator(x="[T]", w="[T]")
def declared_pair(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def test_new_tensors_of_a_reference_lie_beside_its_arguments() -> None:
    there = torch.empty(2, device="meta")  # as on a GPU: a large case is judged there
    made = operator(x="[T] storage", name="beside_x", T=(1, 8))(lambda x: torch.zeros(3) if x.is_meta else x)
    assert made.forward(there)[0].is_meta
    assert torch.zeros(3).is_cpu


def test_a_forward_returns_its_outputs_in_a_tuple() -> None:
    one = torch.ones(2)
    assert InTuple(lambda x: x)(one) == (one,)
    assert InTuple(lambda x: [x, x])(one) == (one, one)
    assert torch.equal(InTuple(lambda x, *, by: x * by)(one, by=2.0)[0], one * 2)


def test_what_a_reference_raises_is_told_with_its_line_and_the_scalars() -> None:
    @operator(x="[T, D] storage", k=(1, 7))
    def few_only(x: Tensor, *, k: int) -> Tensor:
        if k == 7:
            raise ValueError("k must be at most 6")
        return x * k

    Implementation(name="mine", operator=few_only, function=few_only)
    case = default_case(operator="few_only")
    reference(materialise(case))
    told = (
        r"the reference few_only raises ValueError: k must be at most 6 \(test_declaration.py, line \d+\), where k = 7: "
        "mend it, or declare sizes, values and scalars that it takes"
    )
    with pytest.raises(ReferenceRaised, match=told):
        reference(materialise(replace(case, scalars={"k": 7})))
