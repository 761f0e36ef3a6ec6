"""Test suites to compare with, as kernels usually have: a few fixed shapes, x ~ N(0, 1), one tolerance for everything.

Shapes are those of TileLang's mHC example (D of 1280, 2560, 4096) and of Liger-Kernel's tests: once with few tokens, which
a CPU runs at once, and in `FULL_SIZE` with as many as such tests have. Everything else is as a careful user would have it:
every parameter random, gamma present, upstream gradients dense, forward and backward against the golden implementation in
the same dtypes. Tests of other operators are cases, with the tensors that these describe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import Case
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.table import PRE
from mhc.operators.mhc_pre.torch.implementations import GOLDEN
from mhc.registry import load

_SEED = 0
Named = Mapping[str, Tensor | None]


@dataclass(frozen=True)
class Fixed:
    """One test of mHC pre: a shape and a dtype of x."""

    B: int
    S: int
    n: int
    D: int
    dtype: str

    def __str__(self) -> str:
        return f"B{self.B}S{self.S}n{self.n}D{self.D} {self.dtype}"


Test = Fixed | Case

FIXED = (
    Fixed(2, 4, 2, 32, "float32"),
    Fixed(2, 4, 2, 32, "bfloat16"),
    Fixed(1, 8, 4, 64, "float32"),
    Fixed(1, 8, 4, 64, "bfloat16"),
    Fixed(1, 128, 4, 1280, "bfloat16"),
    Fixed(1, 64, 4, 2560, "bfloat16"),
    Fixed(1, 16, 4, 4096, "bfloat16"),
)
QUICK = FIXED[:5]
"""Without the widest: for kernels in an interpreter."""
FULL_SIZE = (
    Fixed(1, 512, 4, 1280, "bfloat16"),
    Fixed(1, 2048, 4, 2560, "bfloat16"),
    Fixed(1, 4096, 4, 1280, "bfloat16"),
)
"""With the token counts of such tests: seconds for compiled kernels, minutes in an interpreter, which has none of them."""


def defaults(got: Tensor, wanted: Tensor) -> bool:
    """Apply `torch.testing.assert_close` with its defaults: rtol 1.3e-6 and atol 1e-5 for float32, 1.6e-2 for bfloat16."""
    try:
        torch.testing.assert_close(got, wanted)
    except AssertionError:
        return False
    return True


def one_percent(got: Tensor, wanted: Tensor) -> bool:
    """Apply `torch.allclose` with rtol and atol 1e-2."""
    return torch.allclose(got, wanted, rtol=1e-2, atol=1e-2)


def tilelang_close(got: Tensor, wanted: Tensor) -> bool:
    """Apply `tilelang.utils.tensor.torch_assert_close` with its defaults: one element in a thousand may be anything."""
    mismatched = int((~torch.isclose(got, wanted, rtol=1e-2, atol=1e-3, equal_nan=True)).sum())
    return mismatched <= int(got.numel() * 0.001)


COMPARATORS: Mapping[str, Callable[[Tensor, Tensor], bool]] = {
    "assert_close defaults": defaults,
    "allclose 1e-2": one_percent,
    "tilelang torch_assert_close": tilelang_close,
}


def judge(implementation: Implementation, tests: Sequence[Test] = FIXED, device: str = "cpu") -> dict[str, list[str]]:
    """Return what fails under each comparator, such as `dx at B1S8n4D64 bfloat16`; a test that raises has failed."""
    found: dict[str, list[str]] = {name: [] for name in COMPARATORS}
    for fixed in tests:
        try:
            got = _run(implementation, _inputs(fixed, device))
        except Exception as error:
            for said in found.values():
                said.append(f"raises {type(error).__name__} at {fixed}")
            continue
        wanted = _golden(fixed, device)
        for name, close in COMPARATORS.items():
            found[name] += [f"{key} at {fixed}" for key, value in got.items() if not _same(value, wanted[key], close)]
    return found


def _same(got: Tensor | None, wanted: Tensor | None, close: Callable[[Tensor, Tensor], bool]) -> bool:
    if got is None or wanted is None:
        return got is wanted
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    return close(got, wanted) if got.is_floating_point() else torch.equal(got, wanted)


@lru_cache
def _inputs(test: Test, device: str) -> Named:
    if isinstance(test, Case):
        drawn = materialise(test).tensors
        return {name: None if tensor is None else tensor.to(device) for name, tensor in drawn.items()}
    generator = torch.Generator().manual_seed(_SEED)
    sizes, storage = PRE.sizes(vars(test)), STORAGE_DTYPES[test.dtype]
    tensors = {}
    for spec in PRE.drawn:
        values = torch.randn(spec.shape(sizes), generator=generator)
        if spec.name == "phi":
            values *= sizes["K"] ** -0.5
        tensors[spec.name] = values.to(device, spec.dtype(storage))
    return tensors


@lru_cache
def _golden(test: Test, device: str) -> Named:
    golden = load(f"{test.operator}.golden") if isinstance(test, Case) else GOLDEN
    return _run(golden, _inputs(test, device))


def _run(implementation: Implementation, inputs: Named) -> Named:
    """Run the forward, then the backward, if the operator has one, with what that forward saved."""
    table = implementation.table
    given = _copies(inputs)
    keywords = implementation.keywords(table.scalars)
    assert implementation.forward is not None
    results = implementation.forward(*(given[name] for name in table.forward_arguments), **keywords)
    outputs = dict(zip((spec.name for spec in table.outputs), results, strict=True))
    if not table.gradients:
        return outputs
    assert implementation.backward is not None
    given = {**(_copies(inputs) if table.mutates else given), **outputs}
    results = implementation.backward(*(given[name] for name in table.backward_arguments), **keywords)
    return {**outputs, **dict(zip((spec.name for spec in table.gradients), results, strict=True))}


def _copies(tensors: Named) -> Named:
    return {name: None if tensor is None else tensor.clone() for name, tensor in tensors.items()}
