"""The aliasing gate: what shares memory is told, what only lies beside it is not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mhc import Implementation, default_case, load
from mhc.case import with_sizes, with_tensor
from mhc.implementation import ImplementationError
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.verdict import Status
from mhc.overlap import overlap, shared
from tests.support.helpers import altered, judge_all, judged, symptoms

CASE = default_case(B=1, S=2, n=2, D=3, dtype="float32")
Results = tuple[Tensor, ...]


def onto_x(out: Results, arguments: Results) -> Results:
    return (arguments[0].copy_(out[0]), *out[1:])


def test_an_output_in_the_memory_of_an_input_fails() -> None:
    verdicts = judged(altered(MANUAL, backward=onto_x), CASE)[2]
    assert symptoms(verdicts) == {("aliasing", "dx", "shares memory"), ("memory", "inputs", "written")}
    assert 'dx shares memory with x, which is not declared; if it is meant: aliases=(("dx", "x"),)' in [
        one.message for one in verdicts
    ]
    assert not symptoms(judged(MANUAL, CASE)[2])


def test_what_is_declared_may_share_memory_and_nothing_else() -> None:
    for declared, found in ((("dx", "x"), set()), (("dx", "phi"), {("aliasing", "dx", "shares memory")})):
        wrong = replace(altered(MANUAL, backward=onto_x), aliases=(declared,))
        assert symptoms(judged(wrong, CASE)[2]) - {("memory", "inputs", "written")} == found


def test_two_outputs_that_share_an_element_fail_and_interleaved_ones_pass() -> None:
    def shared(out: Results, _: object) -> Results:
        zeros = torch.zeros(8)
        return (*out[:2], zeros[:3], zeros, *out[4:])

    def interleaved(out: Results, _: object) -> Results:
        """Gates in one buffer, as [..., (h_pre, h_post)]."""
        both = torch.stack([out[5], out[1]], -1)
        return (out[0], both[..., 1], *out[2:5], both[..., 0])

    nothing = with_sizes(CASE, B=0)
    assert ("aliasing", "dalpha", "shares memory") in symptoms(judged(altered(MANUAL, backward=shared), nothing)[2])
    assert not symptoms(judged(altered(MANUAL, forward=interleaved), CASE)[2])


def test_a_further_run_is_looked_at_too() -> None:
    """A result that lies in an input only where that has a NaN."""

    def forward(out: Results, arguments: Results) -> Results:
        x = arguments[0]
        return (x.view(out[0].shape).copy_(out[0]), *out[1:]) if x.isnan().any() else out

    found = symptoms(judge_all(altered(MANUAL, forward=forward), with_sizes(CASE, n=1)))
    assert {one for one in found if one[0] == "aliasing"} == {("aliasing", "h_in", "shares memory")}


@pytest.mark.parametrize("name", ["zeros_shared_by_gradients", "one_zero_for_all"])
def test_mutants_without_tokens(name: str) -> None:
    mutant = load(f"mhc.oracles.mutants.load:{name}")
    found = {(one.oracle, one.symptom) for one in judge_all(mutant, with_sizes(CASE, S=0)) if one.status is Status.FAIL}
    assert found == {("aliasing", "shares memory")}
    assert not symptoms(judge_all(mutant, with_tensor(CASE, "x", seed=1)))  # the sequence gate adds tokens to this one


@given(st.data())
def test_overlap_is_that_of_the_bytes(data: st.DataObject) -> None:
    """Against the sets of bytes themselves, for views of two dtypes, strided, permuted and expanded."""
    memory = torch.zeros(256, dtype=torch.uint8)

    def view() -> tuple[Tensor, set[int]]:
        dtype = data.draw(st.sampled_from([torch.float32, torch.float16]))
        sizes = data.draw(st.lists(st.integers(1, 3), max_size=3))
        strides = [data.draw(st.integers(0, 5)) for _ in sizes]
        tensor = memory.view(dtype).as_strided(sizes, strides, data.draw(st.integers(0, 12)))
        size = dtype.itemsize
        offsets = [0]
        for length, stride in zip(sizes, strides, strict=True):
            offsets = [one + i * stride for one in offsets for i in range(length)]
        start = int(tensor.storage_offset())
        return tensor, {(start + one) * size + byte for one in offsets for byte in range(size)}

    (one, here), (other, there) = view(), view()
    assert overlap(one, other) == bool(here & there)


def test_what_has_no_memory_overlaps_nothing() -> None:
    assert not overlap(torch.empty(0), torch.empty(0))
    whole = torch.zeros(4)
    assert not overlap(whole[:2], whole[2:])
    assert not overlap(whole[1:1], whole)


def test_each_pair_that_shares_memory_is_told_once_with_the_given_ones_first() -> None:
    memory = torch.zeros(12)
    results = {"a": memory[:4], "b": memory[3:6], "c": memory[6:8], "d": torch.zeros(2), "e": memory[7:9]}
    given = {"x": memory[5:7], "y": torch.zeros(3), "z": memory[10:12]}
    assert shared(results, given) == [("a", "b"), ("b", "x"), ("c", "x"), ("c", "e")]
    both = torch.zeros(4, 2)
    assert shared({"a": both[:, 0]}, {"x": both[:, 1]}) == [], "one lies between the elements of the other"
    assert shared({"a": both[:, 0], "b": both[1]}, {}) == [("a", "b")]
    assert shared({"a": memory[:0]}, {"x": memory}) == []
    assert shared({}, given) == []


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ((("dx", "y"),), r"the second another out of h_in, .*, was \('dx', 'y'\)"),
        ((("x", "dx"),), r"the first out of h_in, h_post, .*, was \('x', 'dx'\)"),
        ((("dx", "dx"),), r"was \('dx', 'dx'\)"),
        (("dx",), "was 'dx'"),
        ([("dx", "x")], r"aliases must be a tuple of pairs of names, was \[\('dx', 'x'\)\]"),
    ],
)
def test_a_declaration_that_does_not_fit(aliases: Any, message: str) -> None:
    with pytest.raises(ImplementationError, match=message):
        Implementation(name="mine", forward=MANUAL.forward, aliases=aliases)
