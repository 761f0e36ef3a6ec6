"""The quicker forms of the interpreter's functions give the same bits and the same errors on drawn programs."""

import importlib
import math
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
import triton
from hypothesis import HealthCheck, assume, given, settings

from mhc import triton_quick
from mhc.programs.compile_error import CompileError
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.interpreted import prepare
from mhc.programs.triton.text import render
from mhc.strategies.programs.triton_programs import triton_programs
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
        return {name: one.tobytes() for name, one in run().items()}
    except CompileError as error:
        return f"{error.stage}: {error}"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(triton_programs(version("triton")))
def test_a_program_gives_the_same_bits_or_the_same_error(interpreter: Any, program: TritonProgram) -> None:
    plain = result(program)
    assume(result(program) == plain)  # it reads beside the values of an atomic operation: docs/results/programs.md
    with quick(interpreter):
        assert result(program) == plain


def test_every_original_of_the_installed_release_was_read(read: list[str]) -> None:
    """Where this fails, Triton is new: read what changed, change the form, and add what `_digest` gives."""
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
