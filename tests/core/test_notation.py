"""The notation of tensors, sizes and keywords of `@operator`: what each text gives, and what is refused."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import expression, operator
from mhc.dense import bits, dense
from mhc.notation import DeclarationError, all_symbols, ordered, spec_of, starred_symbols, symbols_of
from mhc.operator import Regime, Relation, Role, TensorSpec, Values
from mhc.recipe import Recipe

STORAGE, FLOAT32, INT32, INT64, BOOL = Role.STORAGE, Role.ACCUMULATE, Role.INT32, Role.INT64, Role.BOOL
SPECS: Mapping[str, TensorSpec] = {
    "[]": TensorSpec("a", (), STORAGE),
    "  [T]  ": TensorSpec("a", ("T",), STORAGE),
    "[T, D] storage": TensorSpec("a", ("T", "D"), STORAGE),
    "[*B, 3] float32": TensorSpec("a", ("B0", "B1", "B2", "3"), FLOAT32),
    "[T] constant": TensorSpec("a", ("T",), STORAGE, differentiable=False),
    "[T] optional": TensorSpec("a", ("T",), STORAGE, optional=True),
    "[T] float32 constant optional": TensorSpec("a", ("T",), FLOAT32, optional=True, differentiable=False),
    "[T] bool": TensorSpec("a", ("T",), BOOL, values=Values("0", "2")),
    "[T] bool optional": TensorSpec("a", ("T",), BOOL, optional=True, values=Values("0", "2")),
    "[T] int32 in 0..V": TensorSpec("a", ("T",), INT32, values=Values("0", "V")),
    "[T] int64 in T-1..2*V or -100": TensorSpec("a", ("T",), INT64, values=Values("T-1", "2*V", -100)),
    "[T] int64 in 0..V or 0": TensorSpec("a", ("T",), INT64, values=Values("0", "V", 0)),
    "[T] int32 in 0..V sorted": TensorSpec("a", ("T",), INT32, values=Values("0", "V", None, "sorted")),
    "[S1] int32 in 0..T+1 offsets": TensorSpec("a", ("S1",), INT32, values=Values("0", "T+1", None, "offsets")),
    "[T] int8 in -128..128": TensorSpec("a", ("T",), Role.INT8, values=Values("-128", "128")),
    "[T] uint8 in 0..V": TensorSpec("a", ("T",), Role.UINT8, values=Values("0", "V")),
    "[] int32 in 0..V": TensorSpec("a", (), INT32, values=Values("0", "V")),
    "[T] float32 in -8..0": TensorSpec("a", ("T",), Role.ACCUMULATE, within=(-8.0, 0.0)),
    "[T] storage in 0.5..inf constant": TensorSpec("a", ("T",), Role.STORAGE, differentiable=False, within=(0.5, math.inf)),
    "[T] storage in -inf..1e-3 optional": TensorSpec("a", ("T",), Role.STORAGE, optional=True, within=(-math.inf, 1e-3)),
    "[T, D] int64 permutation": TensorSpec("a", ("T", "D"), INT64, values=Values("0", "D", None, "permutation")),
}


@pytest.mark.parametrize("text", SPECS)
def test_a_text_gives_its_tensor(text: str) -> None:
    found = spec_of("op", "a", text)
    assert found == SPECS[text]
    assert found.differentiable == (SPECS[text].differentiable and found.floating)


RANGE = "its range must be two numbers, the first less than the second"
ORDER = "only integers have a sentinel or an order, and booleans have no range"
PERMUTATION = "a permutation is of all indices of its last axis"
EXCLUDES = "which excludes V"
LAST = '"constant" and "optional" are last, in this order'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[(text, "must be declared as") for text in ("T", "[T", "[T] int4", "[T] storage optional constant", "", 3, None)],
        *[
            (f"[T] {text}", ORDER)
            for text in ("bool in 0..2", "bool or 1", "storage or 0", "bool sorted", "storage in 0..1 sorted")
        ],
        ("[T] float32 permutation", ORDER),
        *[(f"[T] float32 in {text}", RANGE) for text in ("0..V", "1..0", "0..0", "nan..1", "0..T+1")],
        *[(f"[T] {text}", LAST) for text in ("float32 in 0..inf optional constant", "int32 in 0..V optional sorted")],
        *[(text, PERMUTATION) for text in ("[T] int32 in 0..T permutation", "[T] int32 or 0 permutation")],
        ("[] int64 permutation", PERMUTATION),
        ("[T] int32 in 0..9 or -1 offsets", "offsets have no sentinel"),
        *[(text, EXCLUDES) for text in ("[T] int32", "[T] int64 sorted", "[T] int32 or -1", "[] int32 in 0..V sorted")],
    ],
)
def test_a_text_that_is_no_notation_is_shown(text: object, message: str) -> None:
    with pytest.raises(DeclarationError, match=r"^op: a (must|is)") as raised:
        spec_of("op", "a", text)
    assert message in str(raised.value)
    assert repr(text) in str(raised.value)


def test_symbols_of_lists_and_of_tensors_come_once_and_in_order() -> None:
    assert symbols_of(" T , D,, 3") == ("T", "D", "3")
    assert symbols_of("*B") == ("B0", "B1", "B2")
    assert symbols_of("") == ()
    inputs = [spec_of("op", "x", "[T, 3, D]"), spec_of("op", "i", "[D] int64 in L..V+T")]
    assert all_symbols("op", inputs, {"K": "D+G"}) == ["T", "D", "L", "V", "K", "G"]
    with pytest.raises(DeclarationError, match=r"^op: 'D!' is no expression"):
        all_symbols("op", inputs, {"K": "D!"})


def test_formulas_are_put_behind_those_of_their_symbols() -> None:
    assert [*ordered("op", {"C": "B+A", "B": "A", "A": "T"}, ["T"])] == ["A", "B", "C"]
    assert ordered("op", {}, ["T"]) == {}
    with pytest.raises(DeclarationError, match=r"^op: these sizes depend on themselves: C = D, D = C$"):
        ordered("op", {"A": "T", "C": "D", "D": "C"}, ["T"])


def test_leading_axes_are_named_in_brackets_only() -> None:
    assert starred_symbols("op", ["[*B, D]", "[D]", "[*B]"], []) == {"B0": "B", "B1": "B", "B2": "B"}
    assert starred_symbols("op", ["[T, D]"], ["T+1"]) == {}
    for texts, formulas in (
        (["[*B]", "[B1]"], []),
        (["[*B]", "[B]"], []),
        (["[*B]", "[T] int64 in 0..B2"], []),
        (["[*B]"], ["B0*2"]),
        (["[*B]"], ["B*2"]),
    ):
        with pytest.raises(
            DeclarationError, match=r"op: a case may have no axis B\d, so that only \*B in brackets names it"
        ):
            starred_symbols("op", texts, formulas)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7", 7),
        ("T", 5),
        ("T+D*2", 11),
        ("(T+D)*2", 16),
        ("T-D-1", 1),
        ("T//2*D", 6),
        (" T - 6 ", -1),
        ("D*D", 9),
        ("-T", -5),
        ("D*-2", -6),
    ],
)
def test_an_expression_has_its_value(text: str, wanted: int) -> None:
    assert expression.evaluate(text, {"T": 5, "D": 3}) == wanted


def test_expressions_have_symbols_and_no_more_than_arithmetic() -> None:
    assert expression.symbols("D*T+D-1") == ("D", "T")
    assert expression.symbols("4") == ()
    for text in ("T**2", "T/2", "T%2", "T<<1"):
        with pytest.raises(expression.ExpressionError, match="has an operator other than"):
            expression.symbols(text)
    for text in ("+T", "f(T)", "1.5", "True", "T[0]", "'a'", "T if D else 1"):
        with pytest.raises(expression.ExpressionError, match="only symbols, integers and"):
            expression.evaluate(text, {"T": 5})
    for text in ("", "T T", "1 +", "T = 1"):
        with pytest.raises(expression.ExpressionError, match="is no expression"):
            expression.symbols(text)
    with pytest.raises(ZeroDivisionError):
        expression.evaluate("T//D", {"T": 5, "D": 0})


def scaled(x: Tensor, w: Tensor, *, eps: float) -> Tensor:
    return x * w + eps


PLAIN: Mapping[str, Any] = {"x": "[T, D]", "w": "[D]", "eps": (0.5, 2)}


def test_what_is_not_declared_is_the_default() -> None:
    table = operator(**PLAIN)(scaled)
    assert [(axis.name, axis.least, axis.most, axis.leading) for axis in table.axes] == [
        ("T", 1, 8192, False),
        ("D", 1, 8192, False),
    ]
    assert (table.name, table.tokens, table.mutates, table.saved) == ("scaled", (), frozenset(), ())
    assert (table.usual_exponents({}), table.regimes, table.model_sizes, table.relations) == ({}, {}, {}, ())
    assert (table.residuals, table.exact_recipes, table.exact_scalars, table.described) == ({}, {}, {}, False)
    assert table.scalar_choices == {"eps": (0.5, 2.0)}
    assert all(type(one) is float for one in table.scalar_choices["eps"])


def test_a_relation_has_powers_of_two_and_changes_nothing_else() -> None:
    relation = Relation(name="one", factors=lambda sizes, power: {})
    assert relation.powers == (2.0, 0.5, 16.0, 0.0625, 512.0, 2.0**-9)
    assert (relation.scalars(2.0), relation.ones, relation.silent) == ({}, frozenset(), frozenset())


def test_keywords_come_into_the_record() -> None:
    regime, recipe = Regime(tensors={"x": (None, 3, 4)}, scalars={"eps": 0.5}), Recipe(kind="exact")
    residual = scaled
    table = operator(
        **{**PLAIN, "T": (0, 9), "eps": 2},
        name="other",
        tokens="T",
        mutates=["x"],
        usual={"dy": -3},
        regimes={"far": regime},
        production={"D": [4096, 64]},
        exact={"x": recipe, "eps": 4},
        residuals={"y": residual},
    )(scaled)
    assert (table.name, table.tokens, table.mutates) == ("other", ("T",), frozenset({"x"}))
    assert (table.usual_exponents({"T": 1}), table.regimes) == ({"dy": -3}, {"far": regime})
    assert (table.model_sizes, table.residuals) == ({"D": (4096, 64)}, {"y": residual})
    assert (table.exact_recipes, table.exact_scalars) == ({"x": recipe}, {"eps": 4.0})
    assert (table.axis("T").least, table.axis("T").most) == (0, 9)
    assert table.scalars == {"eps": 2.0}
    by_size = operator(**PLAIN, usual=lambda sizes: {"x": sizes["D"]})(scaled)
    assert by_size.usual_exponents({"D": 7}) == {"x": 7}


@pytest.mark.parametrize(
    ("keyword", "given"),
    [
        ("mutates", ["dy"]),
        ("mutates", "x"),
        ("usual", {"y": 1}),
        ("production", {"S": (1,)}),
        ("residuals", {"x": scaled}),
        ("exact", {"y": 1.0}),
        ("regimes: far: tensors", {"far": Regime(tensors={"y": (None, 0, 1)})}),
        ("regimes: far: tensors", {"far": Regime(tensors={"eps": (None, 0, 1)})}),
        ("regimes: far: scalars", {"far": Regime(tensors={}, scalars={"x": 1.0})}),
    ],
)
def test_a_keyword_names_what_there_is(keyword: str, given: Any) -> None:
    with pytest.raises(DeclarationError, match=f"^scaled: {keyword} must name some of .*, was "):
        operator(**PLAIN, **{keyword.partition(":")[0]: given})(scaled)


@pytest.mark.parametrize("given", [(2, 1), (-1, 2), (1, 2, 3), (1,), [1, 2], (True, 2), (1, 2.0), 3, "3"])
def test_the_range_of_an_axis_is_a_pair_of_integers(given: object) -> None:
    if isinstance(given, str):  # a formula
        assert operator(**{**PLAIN, "D": given})(scaled).formulas == {"D": "3"}
        return
    with pytest.raises(DeclarationError, match="scaled: D must be a pair of integers, least and most, was "):
        operator(**{**PLAIN, "D": given})(scaled)


@pytest.mark.parametrize("given", [(), (True, 1), (1.0, "2"), None, (1.0, math.inf)])
def test_a_scalar_has_numbers_to_choose_from(given: object) -> None:
    with pytest.raises(DeclarationError, match="scaled: eps must be a number or a tuple of numbers, the default first"):
        operator(**{**PLAIN, "eps": given})(scaled)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"x": "[D, T]", "w": "[D, 1]"}, "tokens: T must be the first axes of x, or none of its axes"),
        ({"x": "[T, T]", "w": "[1]"}, "tokens: T must be the first axes of x"),
        ({"x": "[T, D]", "w": "[D]", "S": "T+1"}, r"tokens: T, on which S = T\+1 depends"),
        ({"x": "[T, D]", "w": "[D]", "T": "D*1"}, r"tokens: T, on which T = D\*1 depends"),
        ({"x": "[T, D]", "w": "[D] int64 in 0..T"}, "tokens: T, on which the values of w depend"),
        ({"x": "[T]", "w": "[T] int64 in 0..9 sorted"}, "tokens: T, on which the values of w depend"),
        ({"x": "[T]", "w": "[T] int64 permutation"}, "tokens: T, on which the values of w depend"),
    ],
)
def test_nothing_but_leading_axes_depends_on_tokens(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        operator(**declared, tokens="T", eps=1.0)(scaled)


def test_an_order_within_each_token_is_allowed() -> None:
    table = operator(x="[T, D]", w="[T, D] int64 in 0..9 sorted", tokens="T", eps=1.0)(scaled)
    assert all(table.per_token(spec) for spec in table.drawn)


Function = Callable[..., Any]


@pytest.mark.parametrize(
    ("declared", "function", "wanted"),
    [
        ({"x": "[T, D]"}, lambda x: x.mT, [("y", ("D", "T"), STORAGE, True)]),
        ({"x": "[T, D]"}, lambda x: x.float(), [("y", ("T", "D"), FLOAT32, True)]),
        ({"x": "[T, D]"}, lambda x: [x.sum(), x > 0], [("y0", (), STORAGE, True), ("y1", ("T", "D"), BOOL, False)]),
        ({"x": "[T, D]", "D": (4, 4)}, lambda x: x, [("y", ("T", "4"), STORAGE, True)]),
        ({"x": "[T, 3]"}, lambda x: x[:, :2], [("y", ("T", "2"), STORAGE, True)]),
        ({"x": "[T, D] constant"}, lambda x: x.clone(), [("y", ("T", "D"), STORAGE, False)]),
        ({"x": "[T, D]", "D": (1, 3)}, lambda x: x.sum(0), [("y", ("D",), STORAGE, True)]),
        ({"x": "[T, D]", "T": (17, 20), "D": (0, 40)}, lambda x: x.sum(1), [("y", ("T",), STORAGE, True)]),
        ({"x": "[T, H]", "H": "2*D"}, lambda x: x.chunk(2, 1)[0], [("y", ("T", "D"), STORAGE, True)]),
        ({"x": "[T]", "dy": "[T]"}, lambda x, dy: x + dy, [("out", ("T",), STORAGE, True)]),
        (
            {"x": "[T]", "y1": "[T]"},
            lambda x, y1: (x, y1),
            [("out0", ("T",), STORAGE, True), ("out1", ("T",), STORAGE, True)],
        ),
        ({"x": "[T]", "y1": "[T]"}, lambda x, y1: x + y1, [("y", ("T",), STORAGE, True)]),
        ({"x": "[T]"}, lambda x: (x > 0).sum(0).int(), [("y", (), INT32, False)]),
    ],
)
def test_outputs_are_found_by_calls(declared: dict[str, Any], function: Function, wanted: list[Any]) -> None:
    table = operator(**declared)(function)
    assert [(one.name, one.symbols, one.role, one.differentiable) for one in table.outputs] == wanted


@pytest.mark.parametrize(
    ("declared", "function", "message"),
    [
        (
            {"x": "[T]"},
            lambda x: 3.0,
            "output y must be a tensor in the dtype of the case, float32, int8, uint8, int16, int32, int64, bool, was float",
        ),
        ({"x": "[T]"}, lambda x: x.half(), "was torch.float16"),
        ({"x": "[T]"}, lambda x: x[: len(x) // 2], "y has an axis of 2 for T = 5, which is no symbol"),
        ({"x": "[T]"}, lambda x: x[None] if len(x) == 5 else x, "output y must be a tensor"),
        ({"x": "[T, D]", "D": "T"}, lambda x: x[0], "for T = 5, D = 5, which may be T or D"),
        ({"x": "[T, E]", "E": "T*1"}, lambda x: x[0], "which may be T or E"),
        ({"x": "[T]", "w": "[T] optional"}, lambda x, w: x if w is None else x.float(), "y is .* without w for T = 5"),
        ({"x": "[T]", "w": "[T] optional"}, lambda x, w: x + w, r"the function fails on x \(5,\), without w: TypeError"),
        (
            {"x": ", ".join(["[A"] + [f"A{at}" for at in range(10)]) + "]"},
            lambda x: x,
            "at most 10 axes are supported, was 11",
        ),
        ({"x": "[T]", "i": "[T] int64 in 0..E", "E": "T-99"}, lambda x, i: x, "for T = 5: E = T-99 is -94"),
        ({}, lambda: 1.0, "the function has no tensor argument"),
    ],
)
def test_outputs_that_cannot_be_described_are_refused(declared: dict[str, Any], function: Function, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        operator(**declared)(function)


@pytest.mark.parametrize(
    ("ranges", "first", "second"),
    [
        ({}, (5, 7), (7, 11)),
        ({"T": (6, 99)}, (7, 11), (11, 13)),
        ({"T": (50, 60)}, (50, 7), (50, 11)),
        ({"D": (1, 3)}, (5, 3), (7, 3)),
        ({"D": (7, 7)}, (5, 7), (7, 7)),
        ({"D": (5, 5)}, (5, 5), (7, 5)),
        ({"T": (1, 4), "D": (1, 4)}, (4, 3), (4, 3)),
        ({"T": (1, 1), "D": (1, 1)}, (1, 1), (1, 1)),
    ],
)
def test_a_declaration_is_called_with_a_prime_for_each_axis_where_there_is_one(
    ranges: dict[str, Any], first: tuple[int, int], second: tuple[int, int]
) -> None:
    seen: list[tuple[int, ...]] = []

    def watched(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return x.sum() * 1.0

    operator(**{"x": "[T, D]", **ranges})(watched)
    assert seen[:2] == [first, second]


def test_a_declaration_leaves_the_number_of_threads() -> None:
    before, seen = torch.get_num_threads(), []

    def watched(x: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return x

    try:
        torch.set_num_threads(2)
        operator(x="[T]")(watched)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_tensor_is_copied_where_it_is_strided_or_misaligned() -> None:
    storage = torch.arange(64.0)
    at = next(one for one in range(16) if (storage.data_ptr() + 4 * one) % 64 == 0)
    aligned, shifted, half = (storage[at + by : at + by + 8] for by in (0, 1, 8))
    strided = storage[at : at + 16 : 2]
    found = dense(aligned, shifted, strided, half)
    assert found[0] is aligned
    for one, copy in zip((shifted, strided, half), found[1:], strict=True):
        assert copy.data_ptr() != one.data_ptr(), "32 bytes are half a vector"
        assert copy.is_contiguous()
        assert torch.equal(copy, one)
    assert dense(storage[:0].requires_grad_())[0].requires_grad


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_bits_are_integers_of_the_same_size(dtype: torch.dtype) -> None:
    found = bits(torch.tensor([0, 1, 1], dtype=dtype))
    assert found.element_size() == torch.empty((), dtype=dtype).element_size()
    assert not found.is_floating_point()
    assert found[0] == 0
    assert found[1] == found[2] != 0
