"""Declared operators whose tensors have any number of leading axes."""

import pytest
from torch import Tensor

from mhc import Case, CaseError, Implementation, default_case, materialise, operator
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.minimise.search import search
from mhc.notation import DeclarationError
from tests.support.declared import drawn, of


@operator(x="[*B, D]", w="[D]", tokens="*B", B=(1, 64))
def declared_scale(x: Tensor, w: Tensor) -> Tensor:
    return (x.float() * w.float()).to(x.dtype)


def three_axes_only(x: Tensor, w: Tensor) -> Tensor:
    if x.dim() == 4:
        raise IndexError("too many indices")
    return (x.float() * w.float()).to(x.dtype)


SCALE = of(declared_scale)


def test_a_case_has_any_number_of_leading_axes() -> None:
    found = drawn(declared_scale)
    assert {len(case.lead) for case in found} == {0, 1, 2, 3}
    for case in found:
        assert not check(SCALE, case, "cpu", Level.FULL).failures, case.json
        assert Case.from_json(case.json) == case
    case = default_case(operator="declared_scale", B0=2, D=3)
    assert (case.axes, case.lead, case.token_count) == (("B0", "D"), (2,), 2)
    assert materialise(case).tensors["x"].shape == (2, 3)  # type: ignore[union-attr]
    with pytest.raises(CaseError, match="sizes: B1 is given without B0"):
        default_case(operator="declared_scale", B1=2)


def test_leading_axes_are_removed_from_a_minimal_case() -> None:
    wrong = of(declared_scale, lambda x, w: x * w if x.dim() < 2 else x * w.abs())
    least = search(next(case for case in drawn(declared_scale) if _fails(wrong, case)), lambda case: _fails(wrong, case))
    assert dict(least.sizes) == {"B0": 1, "D": 1}
    wrong = of(declared_scale, three_axes_only)
    least = search(next(case for case in drawn(declared_scale) if _fails(wrong, case)), lambda case: _fails(wrong, case))
    assert dict(least.sizes) == {"B0": 1, "B1": 1, "B2": 1, "D": 1}


def _fails(implementation: Implementation, case: Case) -> bool:
    return bool(check(implementation, case, "cpu", Level.PLAIN).failures)


def test_a_function_must_take_any_number_of_leading_axes() -> None:
    with pytest.raises(DeclarationError, match=r"fails on x \(13,\): ValueError"):
        operator(x="[*B, D]")(lambda x: x + len(x.shape[:2]) * 0 if x.dim() > 1 else _raise(ValueError("no axis")))
    with pytest.raises(DeclarationError, match=r"y is \(\), torch.bfloat16 for D = 13, not \[B0, B1, B2\]"):
        operator(x="[*B, D]")(lambda x: x.float().sum(-1) if x.dim() > 1 else x.sum(-1))
    with pytest.raises(DeclarationError, match=r"a case may have no axis B0, so that only \*B in brackets names it"):
        operator(x="[*B, D]", y="[B0, D]")(lambda x, y: x + y)


def _raise(error: Exception) -> Tensor:
    raise error
