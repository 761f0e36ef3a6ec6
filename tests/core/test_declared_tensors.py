"""Integers, booleans, ranges, optional tensors and sizes that follow, in declared operators."""

import ctypes
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mhc import Case, CaseError, Implementation, default_case, materialise, operator
from mhc.case import with_sizes, with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.minimise.search import search
from mhc.notation import DeclarationError
from mhc.operator import Role, Values, register
from mhc.operator_json import encode_operator, known_operator
from mhc.oracles.verdict import Status
from mhc.recipe import INTEGER_KINDS, RECIPE_KINDS, Layout
from mhc.strategies.regions import labels, regions
from tests.support.declared import drawn, of


@operator(logits="[T, V] storage", target="[T] int64 in 0..V or -100", weight="[V] float32 constant optional", tokens="T")
def declared_loss(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return cross_entropy(logits.float(), target, weight, reduction="none")


@operator(x="[T, D]", order="[T] int32 permutation", mask="[T, D] bool", bias="[D] storage optional")
def declared_moves(x: Tensor, order: Tensor, mask: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    y = x[order.long()] * mask
    return y if bias is None else y + bias, mask.sum(-1)


@operator(q="[T, H, D]", k="[T, Hkv, D]", offsets="[E1] int32 in 0..T+1 offsets", H="Hkv*G", E1="E+1", T=(1, 64), E=(1, 9))
def declared_groups(q: Tensor, k: Tensor, offsets: Tensor) -> Tensor:
    shared = q.float() * k.float().repeat_interleave(q.shape[1] // k.shape[1], 1)
    place = torch.arange(len(q), device=q.device)
    inside = (place >= offsets[:-1, None]) & (place < offsets[1:, None])
    return (inside.float() @ shared.flatten(1)).reshape(len(inside), *shared.shape[1:])


@operator(x="[T, D]", T=(0, 20), window=(4, 1, -1), causal=(True, False), scale=(1, 0.5))
def declared_window(x: Tensor, *, window: int, causal: bool, scale: float) -> Tensor:
    assert [type(one) for one in (window, causal)] == [int, bool]
    assert isinstance(scale, float)
    steps = [x.roll(step, 0) for step in range(window)]  # range takes integers only
    return sum(steps if causal else steps[::-1], x * 0.0) * scale


def ignores_nothing(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return cross_entropy(logits.float(), target.clamp(min=0), weight, reduction="none")


def counts_all(x: Tensor, order: Tensor, mask: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    y, _ = declared_moves.forward(x, order, mask, bias)
    return y, torch.full_like(mask[:, 0], mask.shape[1], dtype=torch.int64)


LOSS, MOVES, GROUPS = of(declared_loss), of(declared_moves), of(declared_groups)


def test_scalars_keep_the_type_of_their_choices() -> None:
    implementation = of(declared_window)
    cases = drawn(declared_window, 40)
    values = {name: {one.scalars[name] for one in cases} for name in declared_window.scalars}
    assert values == {"window": {4, 1, -1}, "causal": {True, False}, "scale": {1.0, 0.5}}
    for case in cases[:5]:
        again = Case.from_json(case.json)
        assert [(one, type(value)) for one, value in again.scalars.items()] == [
            (one, type(value)) for one, value in case.scalars.items()
        ]
        assert again == case
        assert not check(implementation, case, "cpu", Level.PLAIN).failures
    assert default_case(operator="declared_window", scalars={"window": 2.0}).scalars["window"] == 2
    for name, value, allowed in (
        ("window", 1.5, "an int >= -1"),
        ("window", -2, "an int >= -1"),
        ("causal", 2, "a bool >= 0"),
    ):
        with pytest.raises(CaseError, match=f"scalars.{name}: must be {allowed}"):
            default_case(operator="declared_window", scalars={name: value})
    text = encode_operator(declared_window)["scalars"]
    assert [type(one) for values in text.values() for one in values] == [int] * 3 + [bool] * 2 + [float] * 2


def test_the_notation_of_integers_booleans_and_optional_tensors() -> None:
    _, target, weight = declared_loss.inputs
    assert (target.role, target.values) == (Role.INT64, Values("0", "V", -100))
    assert (weight.role, weight.optional, weight.differentiable) == (Role.ACCUMULATE, True, False)
    assert [spec.name for spec in declared_loss.gradients] == ["dlogits"]
    assert declared_loss.backward_arguments == ("logits", "target", "dy", "weight")
    _, order, mask, _ = declared_moves.inputs
    assert (order.values, mask.values) == (Values("0", "T", None, "permutation"), Values())
    assert [(spec.name, spec.role) for spec in declared_moves.outputs] == [("y0", Role.STORAGE), ("y1", Role.INT64)]
    assert [spec.name for spec in (*declared_moves.upstream, *declared_moves.gradients)] == ["dy0", "dx", "dbias"]
    assert declared_groups.axis_names == ("T", "D", "Hkv", "G", "E")
    assert declared_groups.sizes({"T": 2, "D": 3, "Hkv": 4, "E": 5, "G": 6})["H"] == 24


_SIZES = {
    "declared_loss": {"T": 29, "V": 40},
    "declared_moves": {"T": 29, "D": 40},
    "declared_groups": {"T": 29, "D": 4, "Hkv": 2, "G": 2, "E": 8},
}


@pytest.mark.parametrize("kind", INTEGER_KINDS)
@pytest.mark.parametrize("name", ["target", "offsets", "order", "mask"])
def test_integers_lie_in_their_range_and_have_their_order(kind: str, name: str) -> None:
    table = next(one for one in (declared_loss, declared_moves, declared_groups) if name in one.forward_arguments)
    spec = table.argument_specs[name]
    case = with_sizes(default_case(operator=table.name), **_SIZES[table.name])
    if kind not in spec.kinds:
        with pytest.raises(CaseError, match=f"tensors.{name}.kind"):
            with_tensor(case, name, kind=kind)
        return
    tensor = materialise(with_tensor(case, name, kind=kind, seed=3)).tensors[name]
    assert tensor is not None
    assert spec.values is not None
    values = set(tensor.flatten().tolist())
    inside = spec.values.range(case.sizes)
    assert values <= {*inside, spec.values.sentinel}
    assert len(values) == 1 or kind not in {"zero", "constant", "sentinel"} or name in {"order", "offsets"}
    if spec.values.order == "sorted":
        assert torch.equal(tensor, tensor.sort(-1).values)
    if spec.values.order == "offsets":
        assert torch.equal(tensor, tensor.sort(-1).values)
        assert [tensor[0], tensor[-1]] == [inside.start, inside.stop - 1]
    if spec.values.order == "permutation":
        assert sorted(tensor.tolist()) == list(inside)
    if name == "target":
        assert kind not in {"prefix", "suffix", "multiples", "repeated", "ends", "uniform", "sentinel"} or -100 in values
        assert kind not in {"zero", "constant", "ascending", "consecutive"} or -100 not in values


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("target", {"scale": 2.0}, "tensors.target.scale: must be 1.0"),
        ("target", {"rows": 3}, "tensors.target.rows: must be 0"),
        ("target", {"literals": (((0,), 5.0),)}, r"tensors.target.literals\[0\]: must be in 0..5"),
        ("target", {"kind": "normal"}, "tensors.target.kind: must be one of zero, constant, sentinel"),
        ("logits", {"kind": "uniform"}, "tensors.logits.kind: must be one of zero, constant, normal"),
    ],
)
def test_a_recipe_of_integers_is_validated(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(CaseError, match=message):
        with_tensor(default_case(operator="declared_loss", T=3, V=5), name, **changes)


def test_a_permutation_is_not_expanded_and_has_no_literals() -> None:
    case = default_case(operator="declared_moves", T=3, D=5)
    with pytest.raises(CaseError, match="literals"):
        with_tensor(case, "order", literals=(((0,), 1.0),))
    with pytest.raises(CaseError, match="expand"):
        with_tensor(case, "order", layout=Layout(expand=(0,)))
    with pytest.raises(CaseError, match="period"):
        with_tensor(case, "order", period=2)


def test_a_wide_range_is_compared_with_its_ends() -> None:
    """Python looks for a float among the values of a range, one after the other, and hears no Ctrl-C meanwhile."""
    wide = Values(least="-2147483648", end="2147483648", sentinel=-(2**40))
    possible = [-(2.0**31), 2.0**31 - 1, -(2.0**40)]
    assert [one for one in (*possible, 2.0**31, 0.5, math.inf, math.nan) if wide.may_be(one, {})] == possible


def test_a_literal_may_be_the_sentinel_and_unreached_memory_holds_no_index() -> None:
    case = with_tensor(default_case(operator="declared_loss", T=3, V=5), "target", literals=(((1,), -100.0),))
    inputs = materialise(with_tensor(case, "target", layout=Layout(step=2)))
    assert inputs.tensors["target"] is not None
    assert inputs.tensors["target"].tolist()[1] == -100
    assert inputs.storages["target"][1] == torch.iinfo(torch.int64).max


def test_a_case_of_integers_is_read_from_its_json() -> None:
    case = with_tensor(default_case(operator="declared_groups", T=3, Hkv=2, G=2, E=2), "offsets", kind="ends")
    assert Case.from_json(case.to_json()) == case
    assert '"derived":[["H","Hkv*G"],["E1","E+1"]]' in case.json


@pytest.mark.parametrize(
    "right", [MOVES, *(pytest.param(one, marks=pytest.mark.slow) for one in (LOSS, GROUPS))], ids=lambda one: one.operator
)
def test_right_implementations_pass_on_drawn_cases(right: Implementation) -> None:
    seen: Counter[str] = Counter()
    for case in drawn(right.table, rounds=11):
        seen.update(regions(case))
        judgement = check(right, case, "cpu", Level.FULL)
        assert not judgement.failures, case.json
        seen.update(f"{one.subject} {one.oracle} judged" for one in judgement.verdicts if one.status is Status.PASS)
    assert set(seen) - set(labels(right.table)) == {one for one in seen if one.endswith(" judged")} | {
        "schedule: pinned"
    } & set(seen)
    for spec in right.table.result_specs.values():
        assert seen[f"{spec.name} bound judged"] or spec.name == "dk", spec.name
    for spec in right.table.inputs:
        assert not spec.optional or 30 < seen[f"{spec.name}: absent"] < 80
        if spec.values is not None:
            assert {f"{spec.name}: {kind}" for kind in spec.kinds} <= set(seen)


def test_a_target_that_is_not_ignored_is_found_and_minimised() -> None:
    wrong = of(declared_loss, ignores_nothing)

    def holds(case: Case) -> bool:
        return any((one.oracle, one.subject) == ("bound", "y") for one in check(wrong, case, "cpu", Level.PLAIN).failures)

    found = next(case for case in drawn(declared_loss) if holds(case))
    least = search(found, holds)
    assert (dict(least.sizes), least.dtype, least.has("weight")) == ({"T": 1, "V": 2}, "float32", False)
    assert least.tensors["target"] == replace(least.tensors["target"], kind="sentinel", seed=0, literals=())
    assert least.tensors["logits"].kind == "zero"


def test_an_integer_output_must_be_equal() -> None:
    case = with_tensor(default_case(operator="declared_moves", T=2, D=5, dtype="float32"), "mask", kind="constant")
    case = with_tensor(case, "mask", literals=(((1, 2), 0.0),))
    failures = check(of(declared_moves, counts_all), case, "cpu").failures
    assert [(one.oracle, one.subject, one.message) for one in failures] == [("bound", "y1", "y1[1] = 5, expected 4")]


@operator(
    p="[T, D] storage in 0..1", g="[T] float32 in -inf..0", s="[D] storage in 0.3..inf constant", T=(1, 99), tokens="T"
)
def declared_ranges(p: Tensor, g: Tensor, s: Tensor) -> Tensor:
    """log(p + exp(g) / s), which has no value outside of the ranges."""
    return (p.float() + g.exp().unsqueeze(-1) / s.float()).log().to(p.dtype)


register(declared_ranges)


@pytest.mark.parametrize("kind", RECIPE_KINDS)
@pytest.mark.parametrize(("name", "least", "most"), [("p", 0.0, 1.0), ("g", -math.inf, 0.0), ("s", 0.3, math.inf)])
def test_floating_point_numbers_lie_in_their_range(kind: str, name: str, least: float, most: float) -> None:
    case = default_case(operator="declared_ranges", T=7, D=64, dtype="bfloat16")
    spec = declared_ranges.argument_specs[name]
    if kind not in spec.kinds:
        assert (kind, name in "ps") == ("masked", True)
        return
    for scale in (1.0, 2.0**-20, 2.0**9):
        tensor = materialise(with_tensor(case, name, kind=kind, seed=3, scale=scale)).tensors[name]
        assert tensor is not None
        assert least <= float(tensor.double().min()) <= float(tensor.double().max()) <= most
        if kind == "normal" and scale >= 1:
            assert len({*tensor.flatten().tolist()}) > 5, "reflected, and not clamped"


def test_a_range_holds_for_special_elements_and_is_part_of_a_case() -> None:
    case = default_case(operator="declared_ranges", T=3, D=2)
    with pytest.raises(CaseError, match=r"tensors.p.literals\[0\]: must be in 0.0..1.0, was inf"):
        with_tensor(case, "p", literals=(((0, 0), math.inf),))
    assert with_tensor(case, "g", literals=(((0,), -math.inf),)) != case
    assert Case.from_json(case.json) == case
    assert [one.within for one in declared_ranges.gradients] == [None, None]
    assert {"within": (None, 0.0)}.items() <= encode_operator(declared_ranges)["inputs"][1].items()
    assert known_operator(encode_operator(declared_ranges)) == "declared_ranges"


def test_a_right_kernel_passes_on_values_in_their_ranges() -> None:
    right = Implementation(name="ranges", operator=declared_ranges, function=declared_ranges.function)
    judged = [one for case in drawn(declared_ranges, rounds=4) for one in check(right, case, "cpu", Level.DRAWN).verdicts]
    assert not [one for one in judged if one.status is Status.FAIL]
    assert sum(one.status is Status.PASS and one.subject == "y" for one in judged) > 40


def plain(x: Tensor, i: Tensor) -> Tensor:
    return x[i] if i.dtype != torch.bool else x * i


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"i": "[T] int64"}, r'"\[T\] int64 in 0..V", which excludes V'),
        ({"i": "[T] storage in 0..T"}, "its range must be two numbers"),
        ({"i": "[T] int64 in 0..T permutation"}, "a permutation is of all indices of its last axis"),
        ({"i": "[T] int64 in 0..T", "D": "T**2"}, "operator other than"),
        ({"i": "[T] int64 in 0..f(T)"}, "only symbols, integers"),
        ({"i": "[T] int64 in 0..T", "D": "E+1", "E": "D"}, "these sizes depend on themselves: D = E"),
        ({"i": "[T] int64 in 0..T", "tokens": "T"}, "tokens: T, on which the values of i depend"),
        ({"x": "[D, T]", "i": "[D] int64 in 0..1", "tokens": "T"}, "tokens: T must be the first axes of x"),
        ({"i": "[D] int64 in 0..T-5"}, "i has no value: its range is 0..0"),
    ],
)
def test_a_bad_declaration_of_tensors_says_what_is_wrong(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        operator(**{"x": "[T, D]", **declared})(plain)


def test_outputs_need_symbols_and_known_dtypes() -> None:
    def doubled(x: Tensor) -> Tensor:
        return torch.cat([x, x])

    with pytest.raises(DeclarationError, match=r"y has an axis of 10 for T = 5, which is no symbol; declare one"):
        operator(x="[T]")(doubled)
    assert operator(x="[T]", T2="2*T")(doubled).outputs[0].symbols == ("T2",)
    with pytest.raises(DeclarationError, match=r"output y must be a tensor .*, was torch.float64"):
        operator(x="[T]")(lambda x: x.double())


def test_the_output_has_another_name_where_y_is_an_argument() -> None:
    def added(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    assert operator(x="[T]", y="[T]")(added).outputs[0].name == "out"
    with pytest.raises(DeclarationError, match="dx is the name of a gradient or an output"):
        operator(x="[T]", dx="[T]")(lambda x, dx: x + dx)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(CaseError, match=r"sizes: offsets has values 0\.\.4294967296, beyond int32"):
        default_case(operator="declared_wide", T=2**32)


@operator(offsets="[D] int32 in 0..T+1", x="[D]", T=(1, 2**33))
def declared_wide(offsets: Tensor, x: Tensor) -> Tensor:
    return x * (offsets + 1)


WIDE = of(declared_wide)


@operator(logits="[T, V]", target="[T] int64 in 0..V", mutates=("logits",))
def declared_overwritten(logits: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(logits.float(), target)


def overwrites(logits: Tensor, target: Tensor) -> Tensor:
    logits.sub_(logits.detach().amax(-1, keepdim=True))
    return cross_entropy(logits.float(), target)


def leaves_zeros(logits: Tensor, target: Tensor) -> tuple[Tensor]:
    loss = cross_entropy(logits.float(), target)
    logits.zero_()
    return (loss,)


def writes_beside(logits: Tensor, target: Tensor) -> tuple[Tensor]:
    logits.as_strided((1,), (1,), logits.numel()).fill_(2.0)
    return (cross_entropy(logits.float(), target),)


def writes_in_front(logits: Tensor, target: Tensor) -> tuple[Tensor]:
    ctypes.c_float.from_address(logits.data_ptr() - 4 * logits.stride(0)).value = 2.0
    return (cross_entropy(logits.float(), target),)


def test_an_input_may_be_written_where_the_operator_says_so() -> None:
    case = default_case(operator="declared_overwritten", T=3, V=8, dtype="float32")
    narrow = replace(of(declared_overwritten, overwrites), dtypes=("float32",))  # it rounds what it writes
    judgement = check(narrow, case, "cpu", Level.FULL)
    assert not judgement.failures
    assert {one.subject for one in judgement.verdicts if one.oracle == "bound"} == {"y", "dlogits"}
    apart = replace(of(declared_overwritten), forward=leaves_zeros)
    assert not check(apart, case, "cpu", Level.FULL).failures
    beside = replace(apart, forward=writes_beside)
    (failure,) = check(beside, case, "cpu", Level.PLAIN).failures
    assert failure.message == "wrote beside logits: 1 element after its last"
    ahead = replace(apart, forward=writes_in_front)
    (failure,) = check(ahead, case, "cpu", Level.PLAIN).failures
    assert failure.message == "wrote in front of logits: 1 element, 8 before its first, where logits[-1, 0] would be"
    strict = of(replace(declared_overwritten, name="strict", mutates=frozenset()), overwrites)
    failures = check(strict, replace(case, operator="strict"), "cpu", Level.PLAIN).failures
    assert [(one.oracle, one.symptom) for one in failures][-1] == ("memory", "written")
    with pytest.raises(DeclarationError, match="mutates must name some of logits, was 'logits'"):
        operator(logits="[T]", mutates="logits")(lambda logits: logits * 2)


OVERWRITTEN = of(declared_overwritten)


def test_dtypes_of_a_case_that_mean_the_same_are_one() -> None:
    """`order` and `mask` have dtypes of their own; a float32 tensor differs in float64 alone."""
    every = ("float32", "float16", "bfloat16", "float64")
    assert declared_moves.different(every) == every
    assert declared_groups.different(every) == every

    @operator(x="[T, D] float32", at="[T] int64 in 0..D", D=(2, 64))
    def picked(x: Tensor, at: Tensor) -> Tensor:
        return x.gather(1, at[:, None])

    @operator(at="[T, D] int64 in 0..D")
    def counted(at: Tensor) -> Tensor:
        return at.cumsum(1)

    assert picked.different(every) == ("float32", "float64")
    assert picked.different(("float16", "bfloat16")) == ("float16",)
    assert counted.different(every) == ("float32",)
