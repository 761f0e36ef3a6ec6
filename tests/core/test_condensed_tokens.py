"""Which tokens stand for others: digests, the comparison behind them, and the limits from which a case is condensed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, default_case, materialise, operator
from mhc import condense as condense_
from mhc.case import with_tensor
from mhc.condense import LEAST, Condensed, condense
from mhc.dense import bits
from mhc.operator import register


@operator(a="[T, D] float32", b="[T, D] float32", w="[D] float32", tokens="T", T=(2, 1 << 20))
def condensed_sums(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return (a + b) * w


register(condensed_sums)

HOST = torch.device("cpu")


def few(tokens: int, kinds: int, *, streams: int = 4, width: int = 16, active: int = 0) -> Case:
    """Tokens of so many kinds, of which the first ones have an upstream gradient."""
    case = default_case(B=1, S=tokens, n=streams, D=width, dtype="float32")
    case = with_tensor(case, "x", period=kinds * case.sizes["K"])
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, kind="zero")
    marks = tuple(((0, at, 0), 1.0) for at in range(active))
    return with_tensor(case, "dh_in", kind="zero", literals=marks)


def condensed(case: Case) -> Condensed | None:
    return condense(materialise(case), HOST)


def test_from_which_size_a_case_is_condensed() -> None:
    assert 1024 * 4 * 16 == LEAST == 65536
    assert condensed(few(1024, 3)) is not None
    assert condensed(few(1023, 3)) is None


def test_an_absent_tensor_is_no_reason_against_it() -> None:
    without = default_case(B=1, S=2048, n=2, D=16, dtype="float32", absent=frozenset({"gamma"}))
    for name in ("x", "dh_in", "dh_post", "dh_res"):
        without = with_tensor(without, name, kind="zero")
    found = condensed(without)
    assert found is not None
    assert found.inputs.tensors["gamma"] is None
    assert found.chosen.tolist() == [0]


def test_three_tokens_are_judged_as_they_are_and_four_are_not() -> None:
    assert condensed(few(3, 1, width=8192)) is None
    assert condensed(few(4, 1, width=8192)) is not None


def test_at_most_a_quarter_of_the_tokens_may_remain() -> None:
    quarter = condensed(few(1024, 256))
    assert quarter is not None
    assert len(quarter.chosen) == 256
    assert condensed(few(1024, 257)) is None
    some = condensed(few(1024, 6, active=250))
    assert some is not None
    assert len(some.chosen) == 256
    assert condensed(few(1024, 7, active=250)) is None
    assert condensed(few(1024, 1, active=257)) is None


def test_the_first_of_each_kind_represents_it_and_they_keep_their_order() -> None:
    found = condensed(few(1024, 5, active=2))
    assert found is not None
    assert found.chosen.tolist() == [0, 1, 2, 3, 4, 5, 6], "the first two have a gradient, and stand for themselves only"
    assert found.stands_for[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6]
    assert found.inputs.case.lead == (1, 7)
    assert found.lead == (1, 1024)


def test_tokens_that_differ_in_one_input_of_several_are_told_apart() -> None:
    case = default_case(operator="condensed_sums", T=2048, D=32)
    case = with_tensor(with_tensor(case, "a", period=32 * 2), "b", period=32 * 3)
    found = condensed(with_tensor(case, "dy", kind="zero"))
    assert found is not None
    assert found.chosen.tolist() == [0, 1, 2, 3, 4, 5]
    one = with_tensor(with_tensor(case, "a", period=32), "b", period=32)
    assert condensed(with_tensor(one, "dy", kind="zero")) is None, "its case would have one token, fewer than it may have"


def test_rows_go_to_the_representatives_and_back() -> None:
    found = condensed(few(1024, 3))
    assert found is not None
    specs = found.inputs.case.table.argument_specs
    rows = torch.arange(1024.0).reshape(1, 1024, 1)
    taken = found.take(rows, specs["x"])
    assert taken.tolist() == [[[0.0], [1.0], [2.0]]]
    back = found.expand(taken, specs["x"])
    assert back.shape == (1, 1024, 1)
    assert back[0, :, 0].tolist() == [at % 3 for at in range(1024)]
    assert found.take(rows, specs["phi"]) is rows
    assert found.expand(rows, specs["phi"]) is rows


def test_digests_tell_rows_apart_that_differ_in_any_bit() -> None:
    near = (torch.ones(4096, 1, dtype=torch.float64).view(torch.int64) + torch.arange(4096)[:, None]).view(torch.float64)
    for rows in (near, torch.eye(300), torch.arange(-(2.0**15), 2.0**15)[:, None].half()):
        digests = condense_._digests(rows)
        assert digests.dtype == torch.int64
        assert len(set(digests.tolist())) == len(torch.unique(bits(rows), dim=0))
    one, other = condense_._digests(torch.tensor([[1.0, 2.0], [2.0, 1.0]])).tolist()
    assert one != other, "each element has a factor of its own"


class Seen(Tensor):
    """A tensor of bits that remembers the most elements of what is computed from it, views of it aside."""

    most = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if isinstance(made, Tensor) and made.dtype in {torch.int64, torch.bool}:  # the bits are int16
            Seen.most = max(Seen.most, made.numel())
        return made


def test_rows_are_read_in_pieces_which_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(64, 6, generator=torch.Generator().manual_seed(1)).half()
    chosen, stands_for, judged = torch.arange(32), torch.arange(64) % 32, torch.ones(64, dtype=torch.bool)
    rows[32:] = rows[:32]
    whole = condense_._digests(rows)
    monkeypatch.setattr(condense_, "bits", lambda tensor: bits(tensor).as_subclass(Seen))
    for chunk, most in ((1 << 22, 384), (120, 120), (1, 6)):
        monkeypatch.setattr(condense_, "_CHUNK", chunk)
        monkeypatch.setattr(Seen, "most", 0)
        assert torch.equal(condense_._digests(rows), whole)
        assert Seen.most == max(most, 64), "all digests at least"
        monkeypatch.setattr(Seen, "most", 0)
        assert condense_._same(rows, chosen, stands_for, judged)
        assert Seen.most == most
    assert condense_._digests(torch.empty(5, 0)).tolist() == [0] * 5
    assert condense_._same(torch.empty(64, 0).half(), chosen, stands_for, judged)


@pytest.mark.parametrize("chunk", [1 << 22, 4, 1])
def test_one_row_that_differs_in_one_element_is_not_the_same(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condense_, "_CHUNK", chunk)
    chosen, stands_for, judged = torch.tensor([2, 4]), torch.tensor([0, 0, 0, 1, 1]), torch.ones(5, dtype=torch.bool)
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]])
    assert condense_._same(rows, chosen, stands_for, judged)
    for at in (0, 1, 3):
        other = rows.clone()
        other[at, 0] = 9.0
        assert not condense_._same(other, chosen, stands_for, judged)
        unasked = judged.clone()
        unasked[at] = False
        assert condense_._same(other, chosen, stands_for, unasked)
    zeros = torch.tensor([[0.0], [-0.0]])
    assert not condense_._same(zeros, torch.tensor([0]), torch.tensor([0, 0]), judged[:2]), "bits are compared, not values"


def test_rows_that_collide_are_judged_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condense_, "_digests", lambda rows: torch.zeros(len(rows), dtype=torch.int64))
    assert condensed(few(1024, 3)) is None
