"""Further algorithms of an operator (`Operator.algorithms`): a result may have the errors of any of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import DeclarationError, Implementation, default_case, materialise, operator, reference
from mhc.case import Case
from mhc.declared import Declared
from mhc.fuzz.check.check import check
from mhc.oracles import precision
from mhc.oracles.bounds.carried import UnreadableReference
from mhc.oracles.tolerances import tolerances
from mhc.oracles.verdict import Status
from mhc.recipe import Recipe
from mhc.reference import ReferenceRaised


def by_sums(a: Tensor, b: Tensor) -> Tensor:
    """Return the scan as kernels of chunks have it: exp(c_i - c_j), where the difference of two long sums cancels."""
    c = a.float().cumsum(-1)
    exponent = c.unsqueeze(-1) - c.unsqueeze(-2)
    below = torch.ones(a.shape[-1], a.shape[-1], dtype=torch.bool, device=a.device).tril()
    return (torch.where(below, exponent, -torch.inf).exp() @ b.float().unsqueeze(-1)).squeeze(-1).to(b.dtype)


def by_products(a: Tensor, b: Tensor) -> Tensor:
    """Return h_t = exp(a_t) h_{t-1} + b_t."""
    h, all_of_them = torch.zeros_like(b[..., 0]).float(), []
    for t in range(a.shape[-1]):
        h = h * a[..., t].float().exp() + b[..., t].float()
        all_of_them.append(h)
    return torch.stack(all_of_them, -1).to(b.dtype)


NOTATION: dict[str, Any] = {"a": "[B, T] storage in -8..0", "b": "[B, T]", "T": (1, 64)}
strict = operator(name="strict_scan", **NOTATION)(by_products)
lenient = operator(name="lenient_scan", algorithms=(by_sums,), **NOTATION)(by_products)
STRICT = Implementation(name="strict", operator=strict, function=by_sums)
LENIENT = Implementation(name="lenient", operator=lenient, function=by_sums)
WRONG = Implementation(name="wrong", operator=lenient, function=lambda a, b: by_sums(a, b) * (1 + 2.0**-12))


def scan(name: str, **rest: Recipe) -> Case:
    """Return a case whose sums are long: each decay is close to -8."""
    case = default_case(operator=name, dtype="float32", B=2, T=24)
    constant = {"a": Recipe(kind="offset", scale=4.0, seed=3), "b": Recipe(kind="normal", seed=5)}
    return replace(case, tensors={**case.tensors, **constant, **rest})


def test_the_error_of_an_element_is_the_larger_of_both() -> None:
    inputs, other = (materialise(scan(name)) for name in ("strict_scan", "lenient_scan"))
    own, both = tolerances(inputs, reference(inputs)).results, tolerances(other, reference(other)).results
    assert own.keys() == both.keys() == {"y", "da", "db"}
    for name, one in own.items():
        assert torch.equal(one.value, both[name].value), "the reference decides what is right"
        assert bool((both[name].error >= one.error).all()), name
    assert float((both["y"].error / own["y"].error).max()) > 2


def test_a_kernel_of_that_algorithm_passes_and_a_wrong_one_fails() -> None:
    assert {(one.oracle, one.symptom) for one in check(STRICT, scan("strict_scan"), "cpu").failures} == {("bound", "value")}
    assert not check(LENIENT, scan("lenient_scan"), "cpu").failures
    wrong = check(WRONG, scan("lenient_scan"), "cpu").failures
    assert ("bound", "y", "value") in {(one.oracle, one.subject, one.symptom) for one in wrong}


def test_nothing_is_promised_where_the_algorithm_has_another_class() -> None:
    """What comes after an element is no part of it in the reference; in the product it is 0 times that, which may be NaN."""
    infinite = Recipe(kind="normal", literals=(((0, 3), torch.inf),))
    for implementation, name, status in ((STRICT, "strict_scan", Status.FAIL), (LENIENT, "lenient_scan", Status.PASS)):
        verdicts = check(implementation, scan(name, b=infinite), "cpu").verdicts
        assert status in {one.status for one in verdicts if (one.oracle, one.subject) == ("nonfinite", "y")}, name
        assert (status is Status.FAIL) == any(one.status is Status.FAIL for one in verdicts), name


def test_the_precision_gate_takes_the_larger_deviation() -> None:
    found = {}
    for one in (STRICT, LENIENT):
        inputs = precision.made(scan(one.table.name), torch.device("cpu"))
        found[one.name] = precision.deviations(inputs, reference(inputs), declared=one.declared)["y"].deviation
    assert bool((found["lenient"] >= found["strict"]).all())
    assert bool((found["lenient"] > found["strict"]).any())


def raising(a: Tensor, b: Tensor) -> Tensor:
    raise ValueError("T must be a power of two")


AT_FAULT: dict[str, tuple[Callable[..., Tensor], type[Exception], str]] = {
    "other values": (lambda a, b: by_products(a, b) * 2, ReferenceRaised, r"computes y\[0, 0\] = .*, where the reference"),
    "other shape": (lambda a, b: by_products(a, b)[0], ReferenceRaised, r"returns y of shape \(24,\), not \(2, 24\)"),
    "raises": (raising, ReferenceRaised, r"raises ValueError: T must be a power of two \(test_algorithms.py, line \d+\)"),
    "unreadable": (lambda a, b: torch.lgamma(b) + a, UnreadableReference, ": .*lgamma"),
}


@pytest.mark.parametrize("fault", AT_FAULT)
def test_an_algorithm_at_fault_is_named(fault: str) -> None:
    function, error, told = AT_FAULT[fault]
    function.__name__ = "chunked"  # as messages name it
    name = f"scan_{fault.replace(' ', '_')}"
    table = operator(name=name, algorithms=(function,), **NOTATION)(by_products)
    Implementation(name=name, operator=table, function=by_sums)
    inputs = materialise(scan(name))
    with pytest.raises(error, match=f"the algorithm chunked of {name}:? ?{told}"):
        tolerances(inputs, reference(inputs), declared=Declared(backward=False))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (by_sums, "algorithms must be a tuple of functions, was <function by_sums"),
        ((lambda a: a,), r"algorithms: .* cannot be called with \(a, b, \*, \): too many positional arguments"),
        ((3,), r"algorithms: 3 cannot be called with"),
    ],
)
def test_what_is_no_algorithm_is_no_declaration(given: Any, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        operator(algorithms=given, **NOTATION)(by_products)


def test_an_algorithm_needs_no_signature() -> None:
    def larger(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(a > b, a, b)

    assert operator(name="larger_of_two", a="[T]", b="[T]", algorithms=(torch.maximum,))(larger)


def test_reports_name_the_algorithm() -> None:
    assert LENIENT.judged_as == "errors of by_sums too"
    assert replace(LENIENT, precision={"matmul": "tf32"}).judged_as == "matmul in tf32; errors of by_sums too"
    assert STRICT.judged_as == ""
