"""The quicker forms of the interpreter's functions give the same bits and the same errors on drawn programs."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# kernels are in Triton's language

import importlib
import math
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, assume, given, settings

from mhc import triton_quick
from mhc.programs.compile_error import CompileError
from mhc.programs.known import known
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.interpreted import prepare
from mhc.programs.triton.known import KNOWN
from mhc.programs.triton.text import render
from mhc.strategies.programs.triton_programs import triton_programs
from mhc.triton_interpreter import prepared
from mhc.triton_lockstep import Order
from mhc.triton_quick import quick
from tests.core.test_triton_interpreter import launched

NAMES = [
    "_get_np_dtype",
    "_patch_attr",
    "_patch_builtin",
    "__eq__",
    "__init__",
    "with_element_ty",
    "__init__",
    "_unwrap_if_constexpr",
    "binary_op_sanitize_overflow_impl",
    "binary_op_type_checking_impl",
    "broadcast_impl_value",
    "cast",
    "generic_reduce",
    "generic_scan",
    "create_fma",
]


@pytest.fixture(scope="module")
def interpreter() -> Any:
    if not triton.knobs.runtime.interpret:
        pytest.skip("Triton compiles in this process: --device cuda")
    return importlib.import_module("triton.runtime.interpreter")


@pytest.fixture
def read(interpreter: Any) -> Iterator[list[str]]:
    """The names of the originals whose source is known."""
    triton_quick._forms.cache_clear()
    yield [name for _, name, _ in triton_quick._forms(interpreter)]
    triton_quick._forms.cache_clear()


def result(program: TritonProgram) -> dict[str, bytes] | str:
    """Return the outputs of a program, or how it fails."""
    (run,) = prepare([program], [render(program)], None)  # type: ignore[arg-type]
    assert not isinstance(run, CompileError)
    try:
        return {name: one.tobytes() for name, one in run(program).items()}
    except CompileError as error:
        return f"{error.stage}: {error}"


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(triton_programs(version("triton")))
def test_a_program_gives_the_same_bits_or_the_same_error(interpreter: Any, program: TritonProgram) -> None:
    plain = result(program)
    assume(result(program) == plain)  # it reads beside the values of an atomic operation: docs/results/programs.md
    if isinstance(plain, str):  # a reduction that keeps all axes fails, and is right in the quicker form
        assume(known(program, version("triton"), "interpreted", KNOWN) is None)
    with quick(interpreter):
        assert result(program) == plain


def test_every_original_of_the_installed_release_was_read(read: list[str]) -> None:
    """Where this fails, Triton is new: read what changed, change the form, and add what `digest_of` gives."""
    assert read == NAMES


def test_a_release_that_was_not_read_keeps_its_own_functions(
    interpreter: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(triton_quick, "_READ", frozenset())
    assert request.getfixturevalue("read") == []
    before = interpreter._get_np_dtype
    with quick(interpreter):
        assert interpreter._get_np_dtype is before


def test_all_originals_are_back_behind_the_block(interpreter: Any) -> None:
    def there() -> list[Any]:
        return [vars(owner).get(name) for owner, name, _ in triton_quick._forms(interpreter)]

    before = there()
    with quick(interpreter):
        assert all(one is not other for one, other in zip(there(), before, strict=True))
        with pytest.raises(interpreter.InterpreterError):
            launched(torch.ones(3), block=1)  # static_assert
    assert there() == before


INTEGERS = ("int1", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DTYPES = (*INTEGERS, "float16", "bfloat16", "float32", "float64")
OPERATIONS = {
    "add": (True,),
    "mul": (False,),
    "truediv": (),
    "mod": (),
    "floordiv": (),
    "less_than": (),
    "and_": (),
    "shl": (),
    "minimum": (None,),
    "cast": (),
}
NUMBERS = (2, -1, 1.5, True, 300, 2**31, 2**40)


def operands(interpreter: Any) -> Iterator[Any]:
    """Yield a scalar and a block of each dtype, a block that a scalar is broadcast to, and Python numbers."""
    language = interpreter.tl
    for name in DTYPES:
        dtype = getattr(language, name)
        data = np.array([1, 0, 1, 1]) if name == "int1" else np.array([3, 1, 2, 5])
        stored = data.astype(interpreter._get_np_dtype(dtype))
        for shape in ((), (4,), (2, 2), (2, 1)):
            some = stored[: math.prod(shape)].reshape(shape or (1,))
            kind = language.block_type(dtype, list(shape)) if shape else dtype
            yield language.tensor(interpreter.TensorHandle(some, dtype), kind)
    yield from NUMBERS


def computed(interpreter: Any, name: str, lhs: Any, rhs: Any) -> Any:
    """Return the type, shape and bits of a result, or its error."""
    semantic = interpreter.TritonSemantic(interpreter.interpreter_builder)
    try:
        with np.errstate(all="ignore"):
            one = getattr(semantic, name)(lhs, rhs, *OPERATIONS[name])
    except Exception as error:
        return type(error), str(error)
    data = one.handle.data
    shape = [size.value for size in one.shape]
    return str(one.type), str(one.dtype), shape, one.numel.value, data.shape, data.dtype, data.tobytes()


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"cast"}))
def test_an_operation_of_any_two_operands_is_the_same(name: str, interpreter: Any) -> None:
    some = list(operands(interpreter))
    tensor = interpreter.tl.tensor
    pairs = [(lhs, rhs) for lhs in some for rhs in some if isinstance(lhs, tensor) or isinstance(rhs, tensor)]
    plain = [computed(interpreter, name, lhs, rhs) for lhs, rhs in pairs]
    with quick(interpreter):
        assert [computed(interpreter, name, lhs, rhs) for lhs, rhs in pairs] == plain


def test_a_cast_between_any_two_dtypes_is_the_same(interpreter: Any) -> None:
    tensors = [one for one in operands(interpreter) if not isinstance(one, (int, float))]
    pairs = [(one, getattr(interpreter.tl, name)) for one in tensors for name in DTYPES]
    plain = [computed(interpreter, "cast", one, dtype) for one, dtype in pairs]
    with quick(interpreter):
        assert [computed(interpreter, "cast", one, dtype) for one, dtype in pairs] == plain


@triton.jit
def merged(mean, squares, count, other_mean, other_squares, other_count):
    """Merge the mean, the squares around it and the count of two parts: Welford's method."""
    step, both = other_mean - mean, count + other_count
    share = tl.where(both == 0.0, 0.0, other_count / both)
    return mean + step * share, squares + other_squares + step * step * count * share, both


@triton.jit
def last_of_largest(value, at, other, other_at):
    take = (other >= value) | (other != other)  # noqa: PLR0124
    return tl.where(take, other, value), tl.where(take, other_at, at)


@triton.jit
def log_of_sum(one, other):
    largest = tl.maximum(one, other)
    return largest + tl.log(tl.exp(one - largest) + tl.exp(other - largest))


@triton.jit
def folds(x, y, z, at, AXIS: tl.constexpr, REVERSE: tl.constexpr, KEEP: tl.constexpr):
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    where = tl.program_id(0) * 32 + rows * 8 + columns
    values = tl.load(x + where)
    counts = tl.full((4, 8), 1.0, tl.float32)
    _, squares, _ = tl.reduce((values, values * 0.5, counts), AXIS, merged, keep_dims=KEEP)
    scanned, last = tl.associative_scan((values, tl.broadcast_to(columns, (4, 8))), AXIS, last_of_largest, reverse=REVERSE)
    if KEEP:
        scanned += squares
    else:
        scanned += tl.expand_dims(squares, AXIS)
    tl.store(y + where, scanned)
    tl.store(at + where, last)
    tl.store(z + tl.program_id(0), tl.reduce(values, None, log_of_sum, keep_dims=False))


def of_folds(axis: int, order: Order, *, reverse: bool = False, keep: bool = True) -> list[bytes]:
    """Return the bits of the results of `folds` for two programs."""
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    x[0, 1, 2], x[1, 3, 3] = math.nan, math.inf
    outputs = [torch.zeros(2, 4, 8), torch.zeros(2), torch.zeros(2, 4, 8, dtype=torch.int32)]
    with prepared(needed=True, order=order), np.errstate(all="ignore"):
        folds[(2,)](x, *outputs, axis, reverse, keep)
    return [one.numpy().tobytes() for one in outputs]


@pytest.mark.parametrize(("reverse", "keep"), [(False, True), (True, False)])
@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_a_kernel_are_taken_along_an_axis_at_once(
    axis: int, reverse: bool, keep: bool, interpreter: Any, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quicker = [of_folds(axis, order, reverse=reverse, keep=keep) for order in (Order.IN_TURN, Order.TOGETHER)]
    triton_quick._forms.cache_clear()
    monkeypatch.setattr(triton_quick, "_READ", frozenset())
    assert quicker == [of_folds(axis, Order.IN_TURN, reverse=reverse, keep=keep)] * 2


@pytest.mark.parametrize("order", [Order.IN_TURN, Order.TOGETHER])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_negative_axis_counts_from_the_end(axis: int, order: Order, interpreter: Any) -> None:
    assert of_folds(axis - 2, order) == of_folds(axis, order)


@triton.jit
def moments(x, y, KEEP: tl.constexpr):
    values = tl.load(x + tl.arange(0, 2)[:, None] * 2 + tl.arange(0, 2)[None, :])
    counts = tl.full((2, 2), 1.0, tl.float32)
    mean, squares, count = tl.reduce((values, tl.zeros_like(values), counts), None, merged, keep_dims=KEEP)
    if KEEP:
        tl.store(y + tl.arange(0, 1)[:, None] + tl.arange(0, 1)[None, :], mean * 100.0 + squares * 10.0 + count)
    else:
        tl.store(y, mean * 100.0 + squares * 10.0 + count)


@pytest.mark.parametrize("order", [Order.IN_TURN, Order.TOGETHER])
@pytest.mark.parametrize("keep", [True, False])
def test_several_blocks_are_reduced_along_all_axes(keep: bool, order: Order, interpreter: Any) -> None:
    y = torch.zeros(1)
    with prepared(needed=True, order=order):
        moments[(1,)](torch.tensor([1.0, 2.0, 3.0, 6.0]), y, keep)
    assert y.item() == 3 * 100 + 14 * 10 + 4


@triton.jit
def greater(one, other):
    if one > other:
        return one
    return other


@triton.jit
def greatest(x, y):
    rows, columns = tl.arange(0, 2)[:, None], tl.arange(0, 2)[None, :]
    values = tl.load(x + rows * 2 + columns)
    tl.store(y + rows * 2 + columns, tl.associative_scan(values, 1, greater))
    tl.store(y + 4 + tl.arange(0, 2), tl.reduce(values, 0, greater))


def test_a_function_that_asks_for_truth_takes_one_element_at_a_time(interpreter: Any) -> None:
    y = torch.zeros(6)
    with prepared(needed=True):
        greatest[(1,)](torch.tensor([3.0, 2.0, 1.0, 4.0]), y)
    assert y.tolist() == [3, 3, 1, 4, 3, 4]


@triton.jit
def multiplied_and_added(a, b, c, y, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(y + at, tl.fma(tl.load(a + at), tl.load(b + at), tl.load(c + at)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_fused_multiply_add_rounds_once(dtype: torch.dtype, interpreter: Any) -> None:
    """-a b plus a few last places of it: the product alone would lose them; and cases beside the middle of two numbers."""
    digits = {torch.float16: 10, torch.float32: 23}[dtype]
    step = 2.0**-digits
    generator = torch.Generator().manual_seed(5)
    a, b = (1 + torch.randint(0, 2**digits, (64,), generator=generator) * step for _ in range(2))
    c = -(a * b).to(dtype).double() + torch.randint(-3, 4, (64,), generator=generator) * step
    a[:4], b[:4], c[:4] = 1 + step, 1.0, torch.tensor([step / 2, -step / 2, step * 2**-digits, math.inf])
    a[4], b[4], c[4] = 1 + step, 1 + step, 2.0**digits  # a b = 1 + 2 step + step^2
    held = [one.to(dtype) for one in (a, b, c)]
    y = torch.zeros(64, dtype=dtype)
    with prepared(needed=True):
        multiplied_and_added[(1,)](*held, y, COUNT=64)
    exact = [Fraction(one) * Fraction(two) for one, two in zip(*(each.tolist() for each in held[:2]), strict=True)]
    for at, (product, third) in enumerate(zip(exact, held[2].tolist(), strict=True)):
        if math.isinf(third):
            assert y[at].item() == third
            continue
        total = product + Fraction(third)
        around = [float(torch.nextafter(y[at], torch.tensor(end, dtype=dtype))) for end in (-math.inf, math.inf)]
        nearest = min(map(abs, (total - Fraction(one) for one in around)))
        assert abs(total - Fraction(y[at].item())) <= nearest, at
