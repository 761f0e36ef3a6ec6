"""Quicker forms of functions of Triton's interpreter, with the same results.

Four differ, and are as compiled here. `tl.fma` rounds once, where the interpreter rounds the product too. Where a function
of the kernel reduces or scans, along a negative axis the interpreter has wrong values or a wrong shape, of several blocks
along all axes it fails, and of one it keeps only one axis.

The interpreter runs each operation of a kernel through the functions that check types while a kernel is compiled. They build
the type of each result anew, and a dictionary of all dtypes for each dtype that they look up, which takes most of a kernel's
time. The forms here keep what they build, and leave the rest to the original. They are used only for a release of Triton
whose originals, and what the forms call, were read (`_READ`). They serve the interpreter alone; the compiler's own functions
stay.
"""

import ast
import functools
import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

_READ = frozenset(
    {
        "97ba8ee5547321d9c263065cee86700776c88db63f4899530eabe07ad887d2c7",  # Triton 3.6.0
        "661dcaaad895fb216ff5232061094d5a699de83ef0f713279ccc1dd912408d9b",  # 3.7.0 and 3.7.1
    }
)
"""Digests of the sources that were read, by `digest_of`."""
_CALLED = (
    "tl.core.builtin",
    "tl.core.constexpr",
    "tl.core.dtype",
    "tl.core.is_builtin",
    "tl.core.tuple",
    "TritonSemantic.computation_type_impl",
    "TritonSemantic.scalar_constant",
    "TritonSemantic.to_tensor",
    "InterpreterBuilder.cast_impl",
    "InterpreterBuilder.create_splat",
)
"""What the forms call."""


@contextmanager
def quick(interpreter: Any) -> Iterator[None]:
    """Use the quicker forms in the block, where this release of Triton is known.

    Args:
        interpreter: the module `triton.runtime.interpreter`.
    """
    forms = _forms(interpreter)
    originals = [getattr(owner, name) for owner, name, _ in forms]
    for owner, name, form in forms:
        setattr(owner, name, form)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(forms, originals, strict=True):
            setattr(owner, name, original)


@functools.cache
def _forms(interpreter: Any) -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
    """Return the owners, names and quicker forms of functions; none for a release that was not read."""
    core, semantic = interpreter.tl.core, interpreter.TritonSemantic
    forms: tuple[tuple[Any, str, Callable[[Any, Any], Callable[..., Any]]], ...] = (
        (interpreter, "_get_np_dtype", _np_dtype),
        (interpreter, "_patch_attr", _patched),
        (interpreter, "_patch_builtin", _patched_module),
        (core.dtype, "__eq__", _equal),
        (core.block_type, "__init__", _block_type),
        (core.block_type, "with_element_ty", _with_element_type),
        (core.tensor, "__init__", _tensor),
        (core, "_unwrap_if_constexpr", _unwrapped),
        (semantic, "binary_op_sanitize_overflow_impl", _unchecked),
        (semantic, "binary_op_type_checking_impl", _same_types),
        (semantic, "broadcast_impl_value", _broadcast),
        (semantic, "cast", _cast),
        (interpreter.ReduceOps, "generic_reduce", _reduced),
        (interpreter.ScanOps, "generic_scan", _scanned),
        (interpreter.InterpreterBuilder, "create_fma", _fused),
    )
    if digest_of(interpreter, _CALLED, tuple(getattr(owner, name) for owner, name, _ in forms)) not in _READ:
        return ()
    return tuple((owner, name, form(interpreter, getattr(owner, name))) for owner, name, form in forms)


@functools.cache
def digest_of(interpreter: Any, names: Sequence[str], others: Sequence[Any] = ()) -> str:
    """Return what identifies the sources of `others` and of what has these names in the interpreter, functions and classes.

    It is empty where one is not there, or has no source.
    """
    try:
        sources = [
            _class_source(one) if inspect.isclass(one) else inspect.getsource(one)
            for one in (*others, *attrgetter(*names)(interpreter))
        ]
    except (AttributeError, OSError, TypeError):
        return ""
    return hashlib.sha256("".join(sources).encode()).hexdigest()


def _class_source(one: type) -> str:
    text = _classes(inspect.getsourcefile(one) or "").get(one.__name__)
    if text is None:
        raise OSError(f"{one}: no source")
    return text


@functools.cache
def _classes(path: str) -> dict[str, str]:
    """Return the text of each class of a file; `inspect.getsource` parses the whole file for each."""
    lines = linecache.getlines(path)
    found = [one for one in ast.parse("".join(lines)).body if isinstance(one, ast.ClassDef)]
    begins = [min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]) for one in found]
    return {one.name: "".join(lines[at - 1 : one.end_lineno]) for at, one in zip(begins, found, strict=True)}


def _np_dtype(_: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    found: dict[str, Any] = {}

    def of(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in found:
            found[name] = original(dtype)
        return found[name]

    return of


def _equal(interpreter: Any, original: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    dtype = interpreter.tl.core.dtype

    def equal(self: Any, other: Any) -> bool:
        if isinstance(other, dtype):
            return self is other or bool(self.name == other.name)
        return original(self, other)

    return equal


def _block_type(interpreter: Any, original: Callable[..., None]) -> Callable[..., None]:
    """Return `__init__` of a block's type, which checks and describes each shape once."""
    core, known = interpreter.tl.core, dict[tuple[int, ...], tuple[Any, ...]]()
    constexpr = core.constexpr

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([one.value if type(one) is constexpr else one for one in shape])
        plain = all(type(one) is int for one in sizes) and isinstance(shape, (list, core.tuple))
        found = known.get(sizes) if plain else None
        if found is None:
            original(self, element_ty, shape)
            if plain:
                of_tensor = core.tuple([constexpr(one) for one in sizes]), constexpr(self.numel)
                known[sizes] = self.shape, self.numel, f"{self.shape}", of_tensor, {}
            return
        self.element_ty = element_ty
        self.shape, self.numel, text, self.of_tensor, self.of_shape = found
        self.name = f"<{text}, {element_ty}>"

    return init


def _with_element_type(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives the type of a block of the same shape, one object for each dtype."""
    dtype = interpreter.tl.core.dtype

    def with_element_ty(self: Any, scalar_ty: Any) -> Any:
        made = getattr(self, "of_shape", None)
        if made is None or type(scalar_ty) is not dtype:
            return original(self, scalar_ty)
        found = made.get(scalar_ty.name)
        if found is None:
            found = made[scalar_ty.name] = original(self, scalar_ty)
        return found

    return with_element_ty


def _unwrapped(interpreter: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    as_it_is = {interpreter.tl.core.tensor, int, float}
    return lambda value: value if type(value) in as_it_is else original(value)


def _tensor(interpreter: Any, original: Callable[..., None]) -> Callable[..., None]:
    """Return `__init__` of a tensor, which takes its shape from the type, where `_block_type` has kept it there."""
    core = interpreter.tl.core
    of_scalar, scalars = (core.tuple([]), core.constexpr(1)), {core.dtype, core.pointer_type}

    def init(self: Any, handle: Any, type: Any) -> None:
        found = of_scalar if type.__class__ in scalars else getattr(type, "of_tensor", None)
        if found is None:
            original(self, handle, type)
            return
        self.handle = handle
        self.shape, self.numel = found
        self.type = type
        self.dtype = type.scalar

    return init


def _unchecked(_: Any, original: Callable[..., None]) -> Callable[..., None]:
    """Return the check of integers for overflow; without `debug` the original computes it and leaves the result unused."""

    def check(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
        if self.builder.options.debug:
            original(self, lhs, rhs, binary_op)

    return check


def _same_types(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the conversion of two operands to one type, which looks up the type of most pairs."""
    core, found = interpreter.tl.core, dict[tuple[Any, ...], Any]()
    tensor, dtype, pointer, numbers = core.tensor, core.dtype, core.pointer_type, {int, float, bool}
    type_of = getattr(interpreter.TritonSemantic, "to_tensor_type", lambda self, number: self.to_tensor(number).dtype)

    def common(self: Any, one: Any, number: Any, div_or_mod: bool, left: bool) -> Any:
        """Return the type for a tensor's dtype and a Python number; None where the original says what is wrong."""
        scalar = type_of(self, number)
        key = one.name, scalar.name, div_or_mod, left
        if key not in found:
            ordered = (one, False, scalar, True) if left else (scalar, True, one, False)
            found[key] = self.computation_type_impl(*ordered, div_or_mod)
        wanted = found[key]
        if wanted.is_int() and not wanted.get_int_min_value() <= number <= wanted.get_int_max_value():
            return None
        return wanted

    def converted(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is tensor and type(rhs) is tensor:
            one, other = lhs.dtype, rhs.dtype
            if type(one) is dtype:
                if one is other and not (div_or_mod and one.name in {"fp16", "bf16"}):
                    return self.broadcast_impl_value(lhs, rhs)
            elif type(one) is pointer and allow_lhs_ptr and type(other) is dtype and other.is_int():
                return self.broadcast_impl_value(lhs, rhs)
        elif arithmetic_check and type(lhs) is tensor and type(rhs) in numbers and type(lhs.dtype) is dtype:
            wanted = common(self, lhs.dtype, rhs, div_or_mod, True)
            if wanted is not None:
                return self.broadcast_impl_value(self.cast(lhs, wanted), self.scalar_constant(rhs, dtype=wanted))
        elif arithmetic_check and type(rhs) is tensor and type(lhs) in numbers and type(rhs.dtype) is dtype:
            wanted = common(self, rhs.dtype, lhs, div_or_mod, False)
            if wanted is not None:
                return self.broadcast_impl_value(self.scalar_constant(lhs, dtype=wanted), self.cast(rhs, wanted))
        return original(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return converted


def _broadcast(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the broadcast of two operands, which leaves two of one shape as they are."""
    block_type = interpreter.tl.core.block_type

    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        one, other = lhs.type, rhs.type
        blocks = type(one) is block_type, type(other) is block_type
        if blocks == (False, False) or (blocks == (True, True) and one.shape.values == other.shape.values):
            return lhs, rhs
        if blocks == (True, False):
            return lhs, _splat(self, rhs, one.with_element_ty(other.scalar))
        if blocks == (False, True):
            return _splat(self, lhs, other.with_element_ty(one.scalar)), rhs
        return original(self, lhs, rhs)

    return broadcast


def _cast(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the cast to a dtype, which has one function of NumPy for most pairs of dtypes."""
    dtype, block_type = interpreter.tl.core.dtype, interpreter.tl.core.block_type
    halves = {"fp16", "bf16"}
    names = {*halves, "fp32", "fp64", *(f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64))}

    def cast(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
        kind, one, other = input.type, input.dtype, dst_ty.scalar
        if one is other or one == other:
            return input
        if (
            fp_downcast_rounding is None
            and type(one) is dtype
            and type(other) is dtype
            and one.name in names
            and other.name in names
            and (one.name not in halves or other.name == "fp32")
        ):
            wanted = kind.with_element_ty(other) if type(kind) is block_type else other
            return self.tensor(self.builder.cast_impl(input.handle, other.to_ir(self.builder)), wanted)
        return original(self, input, dst_ty, fp_downcast_rounding)

    return cast


def _patched(interpreter: Any, original: Callable[..., None]) -> Callable[..., None]:
    """Return what replaces a function of the language in a launch by one that gets the interpreter's semantic."""
    language = interpreter.tl.core
    semantic = getattr(interpreter, "interpreter_semantic", None) or interpreter.TritonSemantic(
        interpreter.interpreter_builder
    )
    checked = language.builtin(lambda: None).__code__

    @functools.cache
    def form(member: Any) -> Callable[..., Any]:
        function = member.__wrapped__

        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        return called

    def patch(obj: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        if getattr(member, "__code__", None) is not checked or builder is not semantic.builder:
            original(obj, name, member, builder, scope)
        else:
            scope.set_attr(obj, name, form(member))

    return patch


def _patched_module(interpreter: Any, _: Callable[..., None]) -> Callable[..., None]:
    """Return what replaces all functions of a module or class in a launch, found without a sorted list of all members."""
    is_builtin = interpreter.tl.core.is_builtin

    def patch(owner: Any, builder: Any, scope: Any) -> None:
        places = owner.__mro__ if isinstance(owner, type) else (owner,)
        for name in {name for place in places for name, member in vars(place).items() if is_builtin(member)}:
            member = getattr(owner, name)
            if is_builtin(member):
                interpreter._patch_attr(owner, name, member, builder, scope)

    return patch


def folded(interpreter: Any, combine: Any, arrays: Sequence[Any], dtypes: Sequence[Any], axis: int) -> Iterator[list[Any]]:
    """Yield what a function of scalars makes of arrays up to each position along an axis, of all other positions at once.

    Args:
        combine: the function, `tl.associative_scan`'s or `tl.reduce`'s. dtypes: Triton's, of the arrays.

    Raises:
        TypeError: a result has not the dtype of its array, so that the interpreter would convert it, or refuse to.
    """
    along = [np.moveaxis(one, axis, 0) for one in arrays]

    def scalars(values: Sequence[Any]) -> list[Any]:
        flat = zip(values, dtypes, strict=True)
        return [interpreter.tl.core.tensor(interpreter.TensorHandle(one.reshape(-1), of.scalar), of) for one, of in flat]

    held = [one[0] for one in along]
    yield held
    for at in range(1, len(along[0])):
        combined = combine.fn(*scalars(held), *scalars([one[at] for one in along]))
        parts = combined if isinstance(combined, tuple) else (combined,)
        held = [_as_stored(part, one[0]) for part, one in zip(parts, along, strict=True)]
        yield held


@contextmanager
def _truth_of_one(interpreter: Any) -> Iterator[None]:
    """Raise TypeError in the block where the truth of several scalars at once is asked: each may have another."""
    tensor = interpreter.tl.core.tensor
    original = tensor.__bool__

    def truth(self: Any) -> bool:
        if self.handle.data.size != 1:
            raise TypeError("several scalars have no one truth")
        return bool(original(self))

    tensor.__bool__ = truth
    try:
        yield
    finally:
        tensor.__bool__ = original


def _as_stored(part: Any, like: Any) -> Any:
    data = part.handle.data if hasattr(part, "handle") else None
    if data is None or data.dtype != like.dtype:
        raise TypeError("a result of another dtype")
    return np.broadcast_to(data, (like.size,)).reshape(like.shape)


def _reduced(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reduction by a function of the kernel, which takes the function once for each position along the axis."""

    def generic_reduce(self: Any, input: Any) -> Any:
        axis = 0 if self.axis is None else self.axis
        try:
            arrays, dtypes = [one.handle.data for one in input], [one.dtype for one in input]
            arrays = [one.reshape(-1) for one in arrays] if self.axis is None else arrays
            with _truth_of_one(interpreter):
                *_, last = folded(interpreter, self.combine_fn, arrays, dtypes, axis)
        except Exception:  # what the function needs one element at a time for; or its error, which the original raises
            return original(self, input)
        if not self.keep_dims:
            shaped = [one if self.axis is not None else one.item() for one in last]
        else:
            ones = (1,) * len(input[0].handle.data.shape)
            shaped = [one.reshape(ones) if self.axis is None else np.expand_dims(one, axis) for one in last]
        return [self.to_tensor(one, dtype) for one, dtype in zip(shaped, dtypes, strict=True)]

    return generic_reduce


def _scanned(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the scan by a function of the kernel, which takes the function once for each position along the axis."""

    def generic_scan(self: Any, input: Any) -> Any:
        try:
            arrays, dtypes = [one.handle.data for one in input], [one.dtype for one in input]
            with _truth_of_one(interpreter):
                steps = list(folded(interpreter, self.combine_fn, arrays, dtypes, self.axis))
        except Exception:  # as of a reduction
            return original(self, input)
        stacked = [np.stack(each, axis=self.axis) for each in zip(*steps, strict=True)]
        return [self.to_tensor(one, dtype) for one, dtype in zip(stacked, dtypes, strict=True)]

    return generic_scan


def _fused(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the fused multiply-add of float16 and float32, whose products are exact in float64; others as they were."""
    handle = interpreter.TensorHandle

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if any(one.data.dtype not in _SINGLE for one in (x, y, z)):
            return original(self, x, y, z)
        with np.errstate(all="ignore"):
            total = _to_odd(x.data.astype(np.float64) * y.data, z.data.astype(np.float64))
            return handle(total.astype(z.data.dtype), z.dtype.scalar)

    return create_fma


_SINGLE = (np.float16, np.float32)


def _to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a + b with an odd last digit where it is rounded: then it is rounded again to fewer digits as a + b is."""
    total = a + b
    rest = total - a
    lost = (a - (total - rest)) + (b - rest)  # what total lacks of a + b (Knuth's TwoSum)
    digits = total.view(np.int64)
    up = (lost > 0) == (total > 0)
    changes = np.isfinite(total) & (lost != 0) & (digits & 1 == 0)
    return np.where(changes, np.where(up, digits + 1, digits - 1), digits).view(np.float64)


def _splat(semantic: Any, scalar: Any, block: Any) -> Any:
    return semantic.tensor(semantic.builder.create_splat(block, scalar.handle), block)
