"""Programs of a launch in lockstep, in Triton's interpreter.

The interpreter runs the programs of a launch one after the other, and each operation of a kernel costs it tens of
microseconds, however few elements a block has: a kernel with a program for each row is slow. Here each operation is
computed for many programs at once. Every array has one axis more, the first, of as many programs as run together, or of 1
where all have the same.

Where programs part (an `if`, or how often a loop runs, differs among them), what the group has written is undone, and its
parts run one after the other. So it is where anything fails: then its programs run one by one, as in the interpreter.

A GPU promises no order of programs, and this is one that it may take; so is the same from the last program to the first. A
kernel that is right one program after the other, and wrong here, has a race (`mhc.oracles.ordering`).
"""

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import numpy as np

from mhc.triton_quick import digest_of, folded

_FIRST = 8
"""Programs of the first group; the next ones have as many as give the largest array `_ELEMENTS`."""
_ELEMENTS = 1 << 16
_READ = frozenset(
    {
        "a35dd799fbbbbeea59189aba1cb00daeba13f5ed0c9b217d1f8d3859e536bce2",  # Triton 3.6.0
        "9cce1d22b88c36bfea47cf7d2bd5e097dda81ae0667b5ea879535ccdcc0e8a3c",  # 3.7.0 and 3.7.1
    }
)
"""Digests of the parts of the interpreter that were read, by `digest_of`; in another release operations may differ."""
_RUN_TOGETHER = ("InterpreterBuilder", "ReduceOps", "ScanOps", "GridExecutor")
"""The classes of the interpreter whose operations are done for all programs at once."""
_ASKED = 1 << 13
"""How often a group may ask for truth where programs run from the last to the first: more, and it waits for another."""
_UNDONE = 1 << 22
"""Elements that a group may write: more are not kept to be undone, and it runs in halves."""


class Parted(BaseException):  # the interpreter catches each Exception in a device function
    """Raised where the programs of a group part: where one of several has not the same truth, or number, as the others.

    parts: the positions in the group of those that go on together.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        super().__init__()
        self.parts = parts


class Alone(BaseException):
    """Raised for what is only done by one program at a time."""


class Waits(BaseException):
    """Raised where a program waits for one that comes behind it."""


class Order(Enum):
    """In which order the programs of a launch run."""

    IN_TURN = "in turn"
    TOGETHER = "together"
    REVERSED = "together, from the last program to the first"


class Launched:
    """What is known of the launches of a run: the order of those that had several programs, and how many all had."""

    order: Order | None = None
    programs = 0


@contextmanager
def launches(interpreter: Any, order: Order) -> Iterator[Launched]:
    """Run the launches in the block in an order.

    Of a release of Triton that was not read, programs run in turn, and nothing is noted.

    Args:
        interpreter: the module `triton.runtime.interpreter`.
    """
    if digest_of(interpreter, _RUN_TOGETHER) not in _READ:
        yield Launched()
        return
    executor, patch, patch_lang = interpreter.GridExecutor, interpreter._patch_lang_tensor, interpreter._patch_lang
    call, launched = executor.__call__, Launched()

    run = call
    if order is not Order.IN_TURN:
        together = _Together(interpreter, order)
        run = _method(together.launch)
        interpreter._patch_lang_tensor = together.patch_tensor(patch)
        interpreter._patch_lang = together.patch_range(patch_lang)

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        run(self, *args, **kwargs)
        programs = math.prod(interpreter.interpreter_builder.grid_dim)
        launched.programs += programs
        if programs > 1:
            launched.order = order

    executor.__call__ = noted
    try:
        yield launched
    finally:
        executor.__call__ = call
        interpreter._patch_lang_tensor, interpreter._patch_lang = patch, patch_lang


class _Together:
    """The builder's operations for all programs of a group, by the names that they have there."""

    def __init__(self, interpreter: Any, order: Order) -> None:
        self.interpreter, self._order = interpreter, order
        self.count = 0  # programs that run together; 0 while one runs alone
        self._asked = 0  # for the truth of scalars, by the group that runs
        self._programs = np.zeros((0, 3), dtype=np.int32)
        self._widest = 1  # elements of the largest array of this launch, of one program
        self._written: list[tuple[Any, Any, Any]] = []
        self._kept = 0
        builder = interpreter.interpreter_builder
        self._binary, self._ternary = builder.binary_op, builder.ternary_op
        self._cas, self._rmw, self._histogram = (
            builder.create_atomic_cas,
            builder.create_atomic_rmw,
            builder.create_histogram,
        )
        names = [name for name in vars(type(self)) if name.startswith("create_")]
        pointers = self._block_pointers, self._descriptor_pointers
        owners = interpreter.BlockPointerHandle, interpreter.TensorDescHandle
        self._replaced: list[tuple[Any, str, Any]] = [
            *((builder, name, getattr(self, name)) for name in (*names, "binary_op", "ternary_op")),
            *((owner, "materialize_pointers", form) for owner, form in zip(owners, map(_method, pointers), strict=True)),
            (interpreter, "ReduceOps", _reductions(self)),
            (interpreter, "ScanOps", _scans(self)),
            (interpreter, "range", self._range),  # what `tl.range` calls
        ]

    # launches and groups

    def launch(self, executor: Any, *given: Any, **keywords: Any) -> None:
        """Run a launch, as `GridExecutor.__call__` does for one program after the other."""
        interpreter, builder = self.interpreter, self.interpreter.interpreter_builder
        accepted = inspect.getfullargspec(executor.fn).args
        keywords = {name: one for name, one in keywords.items() if name in accepted}
        on_host, named_on_host = executor._init_args_hst(given, keywords)
        for hook in executor.pre_run_hooks:
            hook(*on_host, **named_on_host)
        scope = interpreter._patch_lang(executor.fn)
        try:
            bound = inspect.getcallargs(executor.fn, *on_host, **named_on_host)
            bound = {
                name: one if name in executor.constexprs else interpreter._implicit_cvt(one) for name, one in bound.items()
            }
            grid = executor.grid(bound) if callable(executor.grid) else executor.grid
            assert len(grid) <= 3, "grid must have at most 3 dimensions"
            grid = (*grid, *(1,) * (3 - len(grid)))
            builder.set_grid_dim(*grid)
            try:
                self._run_all(lambda: executor.fn(**bound), np.array(list(np.ndindex(*grid)), dtype=np.int32).reshape(-1, 3))
            except Exception as error:
                if interpreter.triton.knobs.compilation.front_end_debugging:
                    raise
                raise interpreter.InterpreterError(repr(error)) from error
        finally:
            scope.restore()
        executor._restore_args_dev(given, on_host, keywords, named_on_host)

    def _run_all(self, kernel: Callable[[], Any], programs: Any) -> None:
        at, size, self._widest = 0, _FIRST, 1
        programs = programs[::-1] if self._order is Order.REVERSED else programs
        while at < len(programs):
            groups = [programs[at : at + size]]
            at += size
            while groups:
                groups += reversed(self._run_group(kernel, groups.pop()))
            size = max(1, _ELEMENTS // self._widest)

    def _run_group(self, kernel: Callable[[], Any], programs: Any) -> list[Any]:
        """Run a group. Return its parts where its programs part: nothing is done then."""
        begin, self._asked = self.interpreter.interpreter_builder.set_grid_idx, 0
        if len(programs) > 1:
            begin(*map(int, programs[0]))
            try:
                with self._running(programs):
                    kernel()
                return []
            except Parted as parted:
                self._undo()
                return [programs[part] for part in parted.parts]
            except (Alone, Exception):
                self._undo()
        for program in programs:
            begin(*map(int, program))
            kernel()
        return []

    @contextmanager
    def _running(self, programs: Any) -> Iterator[None]:
        self._programs, self.count, self._kept = programs, len(programs), 0
        self._written.clear()
        before = [(owner, name, vars(owner).get(name)) for owner, name, _ in self._replaced]
        for owner, name, form in self._replaced:
            setattr(owner, name, form)
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            self.count = 0
            for owner, name, form in before:
                if form is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, form)

    def _undo(self) -> None:
        for addresses, old, mask in reversed(self._written):
            self.interpreter._interpreter.store(addresses, old, mask)
        self._written.clear()

    # what Python asks of a scalar

    def patch_tensor(self, patch: Callable[..., None]) -> Callable[..., None]:
        """Return `_patch_lang_tensor` of the interpreter, with scalars that may differ among programs."""

        def patched(tensor: Any, scope: Any) -> None:
            patch(tensor, scope)
            truth, index, turned = tensor.__bool__, tensor.__index__, tensor.T.fget
            scope.set_attr(tensor, "__bool__", lambda one: self._truth(one, truth))
            scope.set_attr(tensor, "__index__", lambda one: int(self._same(one)) if self.count else index(one))
            scope.set_attr(tensor, "T", property(lambda one: self._turned(one) if self.count else turned(one)))

        return patched

    def patch_range(self, patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `_patch_lang` of the interpreter, which also gives the function's module a `range` of its own."""

        def patched(function: Any) -> Any:
            scope, names = patch(function), function.__globals__
            if "range" in names:
                return scope
            names["range"], restore = self._range, scope.restore

            def restore_all() -> None:
                del names["range"]
                restore()

            scope.restore = restore_all
            return scope

        return patched

    def _range(self, *bounds: Any) -> Any:
        """Return `range`, of one number for each program where the bounds differ and all loops run equally often."""
        core = self.interpreter.tl.core
        given = [one for one in bounds if isinstance(one, core.tensor) and len(one.handle.data) > 1]
        if not self.count or all((one.handle.data == one.handle.data[0]).all() for one in given):
            return range(*bounds)
        dtype = max((one.dtype for one in given), key=lambda one: int(one.primitive_bitwidth))
        if dtype.name not in {"int32", "int64"}:
            raise Alone
        numbers = [one.handle.data if isinstance(one, core.tensor) else np.array([operator.index(one)]) for one in bounds]
        of_programs = np.broadcast_arrays(np.zeros(self.count), *numbers)[1:]
        return self._counted([range(*map(int, one)) for one in zip(*of_programs, strict=True)], dtype)

    def _counted(self, loops: Sequence[range], dtype: Any) -> Iterator[Any]:
        times = [len(one) for one in loops]
        if min(times) != max(times):
            raise self._parted(times)
        kind = self.interpreter._get_np_dtype(dtype)
        for at in zip(*loops, strict=True):
            yield self.interpreter.tl.core.tensor(self._handle(np.array(at, dtype=kind), dtype), dtype)

    def _truth(self, tensor: Any, alone: Callable[[Any], bool]) -> bool:
        self._asked += 1
        if self._asked > _ASKED and self._order is Order.REVERSED:
            raise Waits
        if not self.count:
            return alone(tensor)
        if tensor.type.is_block() and tensor.numel.value != 1:
            return True  # as in the interpreter
        return bool(self._same(tensor, bool))

    def _same(self, tensor: Any, dtype: Any = None) -> Any:
        """Return the number that a scalar is in all programs."""
        values = tensor.handle.data.reshape(len(tensor.handle.data), -1)[:, 0].astype(dtype)
        if not (values == values[0]).all():
            if len(values) != self.count:
                raise Alone
            raise self._parted(values)
        return values[0]

    @staticmethod
    def _parted(values: Any) -> Parted:
        """Return what parts programs by their values: those with the value of the first one come first."""
        _, first, of_program = np.unique(values, return_index=True, return_inverse=True)
        return Parted([np.flatnonzero(of_program == one) for one in np.argsort(first)])

    def _turned(self, tensor: Any) -> Any:
        core, data = self.interpreter.tl.core, tensor.handle.data
        shape = list(tensor.type.shape)
        shape[-1], shape[-2] = shape[-2], shape[-1]
        turned = np.transpose(data, (0, *range(data.ndim - 1, 0, -1)))
        return core.tensor(self._handle(turned, tensor.handle.dtype), core.block_type(tensor.dtype, shape))

    # arrays

    def _handle(self, data: Any, dtype: Any) -> Any:
        return self.interpreter.TensorHandle(data, dtype)

    def _handles(self, data: Sequence[Any], *like: Any) -> list[Any]:
        """Return arrays as handles, in the dtypes of others."""
        return [self._handle(one, of.dtype) for one, of in zip(data, like, strict=True)]

    def _seen(self, data: Any) -> Any:
        self._widest = max(self._widest, data.size // max(1, len(data)))
        return data

    @staticmethod
    def _level(*arrays: Any) -> list[Any]:
        """Return arrays of one rank: a scalar beside a block gets axes behind its first."""
        rank = max(one.ndim for one in arrays)
        return [one.reshape(one.shape + (1,) * (rank - one.ndim)) for one in arrays]

    def _spread(self, *arrays: Any, programs: int = 1) -> list[Any]:
        """Return arrays of one shape, with a first axis of at least `programs`."""
        level = self._level(*arrays)
        shape = np.broadcast_shapes(*(one.shape for one in level), (programs,) + (1,) * (level[0].ndim - 1))
        return [
            one if one.shape == shape and one.flags.carray else np.array(np.broadcast_to(one, shape), order="C")
            for one in level
        ]

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        if lhs.data.ndim == rhs.data.ndim:
            return self._binary(lhs, rhs, op)
        return self._binary(*self._handles(self._level(lhs.data, rhs.data), lhs, rhs), op)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        return self._ternary(*self._handles(self._level(lhs.data, rhs.data, other.data), lhs, rhs, other), op)

    # operations

    def create_get_program_id(self, axis: int) -> Any:
        return self._handle(np.ascontiguousarray(self._programs[:, axis]), self.interpreter.tl.int32)

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Any:
        return self._handle(self._seen(np.arange(start, stop, dtype=np.int32)[None]), self.interpreter.tl.int32)

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        scalar = np.ascontiguousarray(arg.data.reshape(-1), dtype=self.interpreter._get_np_dtype(arg.dtype))
        shape, strides = (len(scalar), *ret_ty.shape), (*scalar.strides, *(0 for _ in ret_ty.shape))
        return self._handle(self._seen(np.ndarray(shape, scalar.dtype, scalar, 0, strides)), arg.dtype.scalar)

    def create_unsplat(self, arg: Any) -> Any:
        return self._handle(arg.data.reshape(len(arg.data), -1)[:, 0], arg.dtype.scalar)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        return self._handle(np.expand_dims(arg.data, axis + 1), arg.dtype.scalar)

    def create_broadcast(self, arg: Any, shape: Sequence[int]) -> Any:
        return self._handle(self._seen(np.broadcast_to(arg.data, (len(arg.data), *shape))), arg.dtype.scalar)

    def create_reshape(self, arg: Any, shape: Sequence[int], allow_reorder: bool) -> Any:
        return self._handle(arg.data.reshape((len(arg.data), *shape)), arg.dtype.scalar)

    def create_trans(self, arg: Any, perm: Sequence[int]) -> Any:
        return self._handle(np.transpose(arg.data, (0, *(one + 1 for one in perm))), arg.dtype.scalar)

    def create_cat(self, lhs: Any, rhs: Any) -> Any:
        count = max(len(lhs.data), len(rhs.data))
        both = [np.broadcast_to(one.data, (count, *one.data.shape[1:])) for one in (lhs, rhs)]
        return self._handle(self._seen(np.concatenate(both, axis=1)), lhs.dtype.scalar)

    def create_join(self, lhs: Any, rhs: Any) -> Any:
        return self._handle(self._seen(np.stack(self._spread(lhs.data, rhs.data), axis=-1)), lhs.dtype.scalar)

    def create_gather(self, src: Any, indices: Any, axis: int) -> Any:
        count = max(len(src.data), len(indices.data))
        data, at = (np.broadcast_to(one.data, (count, *one.data.shape[1:])) for one in (src, indices))
        return self._handle(np.take_along_axis(data, at, axis=axis + 1), src.dtype.scalar)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_: Any, **hints: Any) -> Any:
        dtype = ptrs.get_element_ty()
        np_dtype = self.interpreter._get_np_dtype(dtype)
        rest = np.zeros(1, dtype=np_dtype) if other is None else other.data
        addresses, shown, otherwise = self._spread(ptrs.data, np.asarray(mask.data), rest)
        loaded = self.interpreter._interpreter.load(addresses, shown, otherwise, np_dtype)
        return self._handle(self._seen(loaded), dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_: Any, **hints: Any) -> None:
        addresses, data, shown = self._spread(ptrs.data, value.data, np.asarray(mask.data))
        self._keep(addresses, data, shown)
        self.interpreter._interpreter.store(addresses, data, shown)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        addresses, compared, data = self._spread(ptr.data, cmp.data, val.data, programs=self.count)
        self._keep(addresses, data, np.ones_like(addresses, dtype=bool))
        return self._cas(*self._handles((addresses, compared, data), ptr, cmp, val), sem, scope)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        addresses, data, shown = self._spread(ptr.data, val.data, mask.data, programs=self.count)
        self._keep(addresses, data, shown)
        return self._rmw(rmwOp, *self._handles((addresses, data, shown), ptr, val, mask), sem, scope)

    def _keep(self, addresses: Any, data: Any, mask: Any) -> None:
        """Keep what is at the addresses that are written next."""
        self._kept += addresses.size
        if self._kept > _UNDONE and self.count > 1:
            self._widest *= 2
            raise Parted(np.array_split(np.arange(self.count), 2))
        old = self.interpreter._interpreter.load(addresses, mask, np.zeros_like(data), data.dtype)
        self._written.append((addresses, old, mask))

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Any:
        shown = np.ones_like(data.data, dtype=bool) if mask is None else mask.data
        values, shown = self._spread(data.data, shown)
        each = [
            self._histogram(self._handle(one, data.dtype), bins, self._handle(of, self.interpreter.tl.int1)).data
            for one, of in zip(values, shown, strict=True)
        ]
        return self._handle(np.stack(each), self.interpreter.tl.int32)

    def create_print(self, *_: Any) -> None:
        raise Alone

    def create_descriptor_gather(self, *_: Any) -> None:
        raise Alone

    def create_descriptor_scatter(self, *_: Any) -> None:
        raise Alone

    def _block_pointers(self, handle: Any, boundary_check: Sequence[int]) -> Any:
        return self._pointers(handle, handle.offsets, boundary_check)

    def _descriptor_pointers(self, handle: Any, offsets: Sequence[Any]) -> Any:
        itemsize = handle.base.dtype.element_ty.primitive_bitwidth // 8
        assert (offsets[-1].data * itemsize % 16 == 0).all(), "block offset start must be 16-byte aligned"
        return self._pointers(handle, offsets, range(len(offsets)))

    def _pointers(self, handle: Any, offsets: Sequence[Any], checked: Sequence[int]) -> Any:
        """Return the addresses of a block of a tensor, and where it is inside."""
        block, rank = tuple(handle.block_shape), len(handle.block_shape)
        itemsize = handle.base.get_element_ty().primitive_bitwidth // 8

        def of_programs(one: Any) -> Any:
            return one.data.reshape((-1,) + (1,) * rank)

        addresses, mask = of_programs(handle.base), np.ones((1, *block), dtype=bool)
        for axis, size in enumerate(block):
            along = np.arange(size).reshape((1,) + (1,) * axis + (size,) + (1,) * (rank - axis - 1))
            at = of_programs(offsets[axis]) + along
            addresses = addresses + (itemsize * at * of_programs(handle.strides[axis])).astype(np.uint64)
            if axis in checked:
                mask = mask & (at < of_programs(handle.shape[axis])) & (at >= 0)
        addresses, mask = self._spread(addresses, mask)
        return self._handle(self._seen(addresses), handle.base.dtype.scalar), mask


def _method(form: Callable[..., Any]) -> Callable[..., Any]:
    """Return a bound function as one that a class may have."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return form(self, *args, **kwargs)

    return method


def _values(together: _Together, data: Any, dtype: Any) -> Any:
    """Return a tensor of results of a reduction, in its dtype."""
    interpreter = together.interpreter
    data = np.asarray(data).astype(interpreter._get_np_dtype(dtype))
    kind = interpreter.tl.block_type(dtype, list(data.shape[1:])) if data.ndim > 1 else dtype
    return interpreter.tl.core.tensor(interpreter.TensorHandle(data, dtype.scalar), kind)


def _along(together: _Together, combine: Any, tensors: Sequence[Any], axis: int) -> Iterator[list[Any]]:
    """Yield what `combine` has for each position along an axis, of all programs and all other positions at once."""
    arrays = together._spread(*(one.handle.data for one in tensors))
    return folded(together.interpreter, combine, arrays, [one.dtype for one in tensors], axis)


def _reductions(together: _Together) -> type:
    """Return the interpreter's class of reductions, with an axis of programs in front."""
    interpreter = together.interpreter
    standard = interpreter.tl.standard
    known: dict[Any, tuple[Any, Any]] = {
        standard._argmin_combine_tie_break_left: (np.min, np.argmin),
        standard._argmax_combine_tie_break_left: (np.max, np.argmax),
        standard._elementwise_max: (np.nanmax, None),
        standard._elementwise_min: (np.nanmin, None),
        standard._sum_combine: (np.sum, None),
    }

    class Reductions(interpreter.ReduceOps):  # type: ignore[misc, name-defined]
        def apply_impl(self, input: Any) -> Any:
            rank = len(input[0].shape)
            axis = 1 if self.axis is None else self.axis % rank + 1
            if self.axis is None:
                flat = (one.handle.data.reshape(len(one.handle.data), -1) for one in input)
                input = [_values(together, data, one.dtype) for data, one in zip(flat, input, strict=True)]

            def shaped(data: Any) -> Any:
                if not self.keep_dims:
                    return data
                return data.reshape((-1,) + (1,) * rank) if self.axis is None else np.expand_dims(data, axis)

            value, index = known.get(self.combine_fn, (None, None))
            data = input[0].handle.data
            if value is None:
                *_, last = _along(together, self.combine_fn, input, axis)
                return [_values(together, shaped(one), of.dtype) for one, of in zip(last, input, strict=True)]
            result = _values(together, shaped(value(data, axis=axis)), input[0].dtype)
            if index is None:
                return result
            return result, _values(together, shaped(index(data, axis=axis)), interpreter.tl.int32)

    return Reductions


def _scans(together: _Together) -> type:
    """Return the interpreter's class of scans, with an axis of programs in front."""
    interpreter = together.interpreter
    known: dict[Any, Any] = {
        interpreter.tl.standard._sum_combine: np.cumsum,
        interpreter.tl.standard._prod_combine: np.cumprod,
    }

    class Scans(interpreter.ScanOps):  # type: ignore[misc, name-defined]
        def apply_impl(self, input: Any) -> Any:
            axis = self.axis % len(input[0].shape) + 1

            def turned(data: Any) -> Any:
                return np.flip(data, axis=axis) if self.reverse else data

            input = [_values(together, turned(one.handle.data), one.dtype) for one in input]
            if self.combine_fn in known:
                scanned = [known[self.combine_fn](input[0].handle.data, axis=axis)]
            else:
                steps = list(_along(together, self.combine_fn, input, axis))
                scanned = [np.stack(each, axis=axis) for each in zip(*steps, strict=True)]
            return [_values(together, turned(one), of.dtype) for one, of in zip(scanned, input, strict=False)]

    return Scans
