"""The outputs of a declared operator: found by calls of its function in sizes that tell its axes and its numbers apart."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import operator
from mhc.notation import DeclarationError
from mhc.operator import OPERATORS, UNLIMITED, Operator, Role
from mhc.outputs import Outputs


def declared(function: Callable[..., Any], **notation: Any) -> Operator:
    return operator(**notation)(function)


def symbols(table: Operator) -> list[tuple[str, ...]]:
    return [spec.symbols for spec in table.outputs]


def test_a_number_is_told_from_an_axis_of_that_size_in_one_of_the_calls() -> None:
    """Axes are 5, 7, 11, ... in the one call and 7, 11, 13, ... in the other, within their ranges."""
    for number in (1, 5, 7, 11, 13):

        def padded(x: Tensor) -> Tensor:
            return x.sum(0) + x.new_zeros(number, 1)  # noqa: B023  it is called at once

        for ranges in ({}, {"T": (1, 7)}, {"D": (1, 7)}, {"T": (1, 7), "D": (1, 7)}, {"T": (7, 11)}, {"D": (8, 64)}):
            assert symbols(declared(padded, x="[T, D]", **ranges)) == [(str(number), "D")], (number, ranges)


def test_the_sizes_of_the_calls_keep_within_the_ranges() -> None:
    seen: list[tuple[int, ...]] = []

    def remembers(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return x * 2

    for ranges, calls in (
        ({}, [(5, 7), (7, 11), (5, 7)]),
        ({"T": (6, 9)}, [(7, 11), (7, 13), (7, 11)]),
        ({"T": (7, 11)}, [(7, 11), (11, 13), (7, 11)]),
        ({"T": (64, 99)}, [(64, 7), (64, 11), (64, 7)]),
        ({"T": (1, 2)}, [(2, 7), (2, 11), (2, 7)]),
        ({"T": (3, 3), "D": (1, 5)}, [(3, 5), (3, 5), (3, 5)]),
        ({"D": (7, 7)}, [(5, 7), (7, 7), (5, 7)]),
    ):
        seen.clear()
        table = declared(remembers, x="[T, D]", **ranges)
        assert seen[:3] == calls, ranges
        assert symbols(table)[0][0] == ("3" if ranges.get("T") == (3, 3) else "T")


def test_a_third_call_tells_a_derived_size_from_an_axis_of_its_own() -> None:
    """G is 1 in the first two calls, in which H and H G are the same."""

    def grouped(q: Tensor, v: Tensor) -> Tensor:
        return v * q.sum()

    ranges = {"B": (1, 2), "H": (1, 3), "G": (1, 3)}
    table = declared(grouped, q="[B, H, G]", v="[B, HV]", HV="H*G", **ranges)
    assert symbols(table) == [("B", "HV")]
    table = declared(lambda x: x[0], x="[T, D]", T=(5, 6), D=(5, 5), name="of_a_fixed_axis")
    assert symbols(table) == [("5",)]


def test_outputs_are_named_y_unless_an_input_has_that_name() -> None:
    named: tuple[tuple[str, Callable[..., Any], list[str]], ...] = (
        ("x", lambda x: x * 2, ["y"]),
        ("x", lambda x: (x * 2, x.float()), ["y0", "y1"]),
        ("y", lambda y: y * 2, ["out"]),
        ("dy", lambda dy: dy * 2, ["out"]),
        ("y1", lambda y1: (y1 * 2, y1.float()), ["out0", "out1"]),
        ("dy1", lambda dy1: (dy1 * 2, dy1.float()), ["out0", "out1"]),
        ("y2", lambda y2: (y2 * 2, y2.float()), ["y0", "y1"]),
    )
    for name, function, wanted in named:
        assert [spec.name for spec in declared(function, **{name: "[T, D]"}).outputs] == wanted


def test_dtypes_and_gradients_of_outputs() -> None:
    def several(x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return x * 2, x.float(), x.argmax(-1), x.argmax(-1).int(), x > 0, c * 2

    found = declared(several, x="[T, D]", c="[D] float32 constant").outputs
    assert [spec.role for spec in found] == [
        *(Role.STORAGE, Role.ACCUMULATE, Role.INT64, Role.INT32, Role.BOOL, Role.ACCUMULATE)
    ]
    assert [spec.differentiable for spec in found] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x.double(),
            "output y must be a tensor in the dtype of the case, float32, int8, uint8, int16, int32, int64, bool, "
            "was torch.float64",
        ),
        (lambda x: 3, "object is not iterable|output y must be a tensor .* was int"),
        (lambda x: (x * 2, None), "output y1 must be a tensor .*, was NoneType"),
        (lambda x: x.sum(0) if x.shape[0] == 5 else x * 2, "output y must be a tensor .*, was torch.bfloat16"),
        (
            lambda x: torch.cat([x, x]),
            r"y has an axis of 10 for T = 5, D = 7, which is no symbol; declare one, as in D2='2\*D'",
        ),
    ],
)
def test_outputs_that_cannot_be_described(function: Callable[..., Any], message: str) -> None:
    with pytest.raises((DeclarationError, TypeError), match=message):
        declared(function, x="[T, D]")


def test_an_axis_that_two_symbols_fit_is_asked_for() -> None:
    with pytest.raises(DeclarationError, match="y has an axis of 7 for T = 5, D = 7, E = 7, which may be D or E"):
        declared(lambda x, w: x * w.sum(), x="[T, D]", w="[E]", E="D")
    assert symbols(declared(lambda x, w: x.sum(-1), x="[T, D]", w="[E]", E="D")) == [("T",)]


def test_ten_axes_are_supported() -> None:
    names = [f"A{at}" for at in range(11)]
    table = declared(
        lambda x: x.amax(tuple(range(2, 10))), x=f"[{', '.join(names[:10])}]", **dict.fromkeys(names[2:10], (1, 2))
    )
    assert symbols(table) == [("A0", "A1")]
    with pytest.raises(DeclarationError, match="at most 10 axes are supported, was 11"):
        declared(lambda x: x * 2, x=f"[{', '.join(names)}]", **dict.fromkeys(names[2:], (1, 2)))


def test_each_axis_has_a_prime_of_its_own() -> None:
    seen: list[list[int]] = []

    def lengths(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        seen.append([len(one) for one in (a, b, c, d, e, *rest)])
        return tuple(one * 2 for one in (e, d, c, b, a))

    def ten(
        a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor, g: Tensor, h: Tensor, i: Tensor, j: Tensor
    ) -> tuple[Tensor, ...]:
        return lengths(a, b, c, d, e, f, g, h, i, j)

    table = declared(ten, **{one: f"[{one.upper()}]" for one in "abcdefghij"})
    assert seen[0] == [5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
    assert seen[1] == [7, 11, 13, 17, 19, 23, 29, 31, 37, 41]
    assert symbols(table) == [("E",), ("D",), ("C",), ("B",), ("A",)]


def test_without_optional_tensors_the_outputs_are_the_same_ones() -> None:
    for function in (
        lambda x, b: x * 2 if b is None else x.float() + b,
        lambda x, b: x.sum(0) if b is None else x + b,
    ):
        with pytest.raises(DeclarationError, match=r"y is \(.*\), .* without b for T = 5, D = 7, not \[T, D\]"):
            declared(function, x="[T, D]", b="[D] storage optional")
    with pytest.raises(DeclarationError, match=r"the function fails on x \(5, 7\), without b: TypeError"):
        declared(lambda x, b: x + b, x="[T, D]", b="[D] storage optional")


def test_the_calls_run_on_one_thread_and_leave_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    during: list[int] = []

    def remembers(x: Tensor) -> Tensor:
        during.append(threads[-1])
        return x * 2

    Outputs(declared(remembers, x="[T, D]")).specs()
    assert {*during} == {1}
    assert threads[-1] == 4


def test_an_axis_is_as_long_as_a_tensor_can_be() -> None:
    assert torch.iinfo(torch.int64).max == UNLIMITED
    table = OPERATORS["mhc_pre"]
    assert (table.axis("D").least, table.axis("D").most) == (1, UNLIMITED)
    sizes = {"B": 1, "S": 1, "n": 1}
    assert table.problem({**sizes, "D": UNLIMITED}) is None
    assert table.problem({**sizes, "D": 2**63}) == "D = 9223372036854775808 is not in 1..9223372036854775807"
