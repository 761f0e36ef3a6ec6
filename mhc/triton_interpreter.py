"""Triton's interpreter, made quicker, and able to run autotuned kernels and those that call libdevice.

In the interpreter a launch replaces the functions of `triton.language`, and so does each call of a device function (one
`@triton.jit` function called by another), with the same functions again. That takes a millisecond a call, up to half of the
time of a kernel. Here a call inside of a launch leaves in place what the launch has replaced.

A kernel with `@triton.autotune` fails there, since its configs are timed on a GPU. Here a case says which config runs
(`mhc.autotuned`), on a GPU too. Where it is not known that a kernel is autotuned, each key of it (the arguments that the
decorator names, and dtypes) has one of its configs, always the same one.

Of a comparison of two scalars the interpreter makes a block of their dtype, which `&` with a mask then refuses; here it is
a block of truths. Compiled, an argument that is a Python float is a float32 scalar. The interpreter leaves it a Python
float, which has no `.to`; here it is a float32 scalar too, unless the kernel annotates a parameter as `tl.float64`.
Functions of `triton.language.extra.libdevice` are stubs that return None there; here NumPy computes some, in the dtypes that
the compiler takes. Any other function or dtype raises.

A launch replaces functions of `triton.language`; here also those that a module has taken by name, as in `cast = tl.cast`.
"""

import importlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any

import numpy as np

from mhc.autotuned import pinned
from mhc.implementation import Refused
from mhc.triton_lockstep import Launched, Order, launches
from mhc.triton_quick import quick

_INTERPRETER, _AUTOTUNER = "triton.runtime.interpreter", "triton.runtime.autotuner"
_LIBDEVICE = "triton.language.extra.libdevice"
VARIABLE = "TRITON_INTERPRET"
"""The environment variable: 1 before Triton is imported, and kernels run in the interpreter."""
_COMPUTED: dict[str, Callable[[Any], Any]] = {
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    **{one: getattr(np, one) for one in ("sqrt", "tanh", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos")},
}


progress: int | None = None
"""A descriptor to which each program of a launch writes how many have begun in this process, where somebody watches."""
_begun = 0
_together: Launched | None = None


@contextmanager
def in_lockstep() -> Iterator[Launched]:
    """Run the programs of each launch in the block together, which is quicker (`mhc.triton_lockstep`).

    Returns:
        what was launched so.
    """
    global _together  # noqa: PLW0603
    before, _together = _together, Launched()
    try:
        yield _together
    finally:
        _together = before


@contextmanager
def prepared(config: int | None = None, *, needed: bool = False, order: Order | None = None) -> Iterator[Launched]:
    """Prepare Triton's interpreter for the block, if it is loaded, and pin the config of autotuned kernels.

    What a release of Triton does in another way is left as it is.

    Args:
        needed: the block runs kernels in the interpreter, which is loaded first: the block may be the first to import it.
        order: of the programs of each launch; None: together in `in_lockstep`, and elsewhere in turn.

    Returns:
        what was launched in the interpreter.
    """
    if needed and os.environ.get(VARIABLE) == "1":
        with suppress(ImportError):  # which the block raises too
            for name in (_AUTOTUNER, _INTERPRETER):
                importlib.import_module(name)
    interpreter: Any = sys.modules.get(_INTERPRETER)
    autotuner: Any = getattr(sys.modules.get(_AUTOTUNER), "Autotuner", None)
    if autotuner is None:
        yield Launched()
        return
    run, patch, convert = (autotuner.run, *(getattr(interpreter, one, None) for one in ("_patch_lang", "_implicit_cvt")))
    autotuner.run = _with_one_config(run) if config is None else pinned(run, config, Refused)
    if patch is not None and hasattr(interpreter, "_LangPatchScope"):
        floats = _Floats(interpreter)
        once = _once(patch, interpreter._LangPatchScope, interpreter.tl)
        interpreter._patch_lang = floats.with_annotations(_with_globals(once, interpreter))
        if convert is not None:
            interpreter._implicit_cvt = floats.with_scalars(convert)
    try:
        interpreted = interpreter is not None and interpreter.triton.knobs.runtime.interpret
        wanted = order or (Order.IN_TURN if _together is None else Order.TOGETHER)
        with ExitStack() as stack:
            launched = Launched()
            if interpreted:
                stack.enter_context(quick(interpreter))
                stack.enter_context(_truths(interpreter))
                launched = stack.enter_context(launches(interpreter, wanted))
            stack.enter_context(_counted(interpreter))
            yield launched
        if _together is not None and order is None:
            _together.programs += launched.programs
    finally:
        autotuner.run = run
        if patch is not None:
            interpreter._patch_lang = patch
        if convert is not None:
            interpreter._implicit_cvt = convert


@contextmanager
def _truths(interpreter: Any) -> Iterator[None]:
    """Make what compares a truth: the interpreter calls it a number, and a block made of it one of numbers."""
    builder: Any = getattr(interpreter, "interpreter_builder", None)
    original = getattr(builder, "binary_op", None)
    if original is None:
        yield
        return

    def binary_op(lhs: Any, rhs: Any, op: Any) -> Any:
        result = original(lhs, rhs, op)
        if result.data.dtype == np.bool_:
            result.dtype = interpreter.tl.int1
        return result

    builder.binary_op = binary_op
    try:
        yield
    finally:
        del builder.binary_op


@contextmanager
def _counted(interpreter: Any) -> Iterator[None]:
    """Write to `progress` in the block: a launch of very many programs is slow, and does not hang."""
    builder: Any = getattr(interpreter, "interpreter_builder", None)
    begin = getattr(builder, "set_grid_idx", None)
    if progress is None or begin is None:
        yield
        return

    def counted(*at: int) -> None:
        global _begun  # noqa: PLW0603
        _begun += 1
        os.pwrite(progress, _begun.to_bytes(8, "little"), 0)
        begin(*at)

    builder.set_grid_idx = counted
    try:
        yield
    finally:
        del builder.set_grid_idx


def _with_one_config(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run` of an autotuned kernel, which finds a config for its key in its cache and so times none."""

    def run_chosen(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not sys.modules["triton"].knobs.runtime.interpret:
            return run(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        given = {name: one for name, one in {**self.nargs, **kwargs}.items() if name in self.arg_names}
        key = [given[name] for name in self.keys if name in given]
        key += [str(one.dtype) for one in given.values() if hasattr(one, "dtype")]
        if len(self.configs) > 1 and tuple(key) not in self.cache:
            configs = self.prune_configs(kwargs)
            self.cache[tuple(key)] = configs[zlib.crc32(f"{self.base_fn.__name__} {key}".encode()) % len(configs)]
        return run(self, *args, **kwargs)

    return run_chosen


def _once(patch: Callable[[Any], Any], scope_type: Callable[[], Any], language: Any) -> Callable[[Any], Any]:
    """Return `_patch_lang` of the interpreter, which does nothing for modules that the running launch has patched."""
    core = language.core
    patched: set[int] = set()

    def patch_lang(function: Any) -> Any:
        needed = {id(one) for one in function.__globals__.values() if one is language or one is core}
        if needed and needed <= patched:
            return scope_type()  # nothing to restore
        scope = patch(function)
        restore = scope.restore

        def restore_all() -> None:
            patched.clear()
            restore()

        scope.restore = restore_all
        patched.update(needed)
        return scope

    return patch_lang


def _text(annotation: Any) -> str:
    """Return an annotation's text without its module; the interpreter compiles annotations to strings."""
    return str(annotation).rpartition(".")[2]


class _Floats:
    """Makes float32 scalars of the Python floats that a kernel gets, as the compiler does.

    A kernel that annotates a parameter as float64 gets its Python floats as they are: only the launch knows their names.
    """

    def __init__(self, interpreter: Any) -> None:
        self._interpreter, self._wide = interpreter, False

    def with_annotations(self, patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `_patch_lang` of the interpreter, which a launch calls before it converts its arguments."""

        def patch_lang(function: Any) -> Any:
            self._wide = any(_text(one) in {"fp64", "float64"} for one in function.__annotations__.values())
            return patch(function)

        return patch_lang

    def with_scalars(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `_implicit_cvt` of the interpreter."""

        def converted(argument: Any) -> Any:
            if type(argument) is not float or self._wide:
                return convert(argument)
            float32 = self._interpreter.tl.float32
            handle = self._interpreter.TensorHandle(np.array([argument], dtype=np.float32), float32)
            return self._interpreter.tl.tensor(handle, float32)

        return converted


def _with_globals(patch: Callable[[Any], Any], interpreter: Any) -> Callable[[Any], Any]:
    """Return `_patch_lang` of the interpreter, which also replaces what a function's module has taken by name.

    These are libdevice's stubs, and functions of `triton.language`, as in `cast = tl.cast`, which a launch replaces there.
    """
    language = interpreter.tl
    places = {
        id(value): (module, name)
        for module in (language.math, language)
        for name, value in vars(module).items()
        if callable(value)
    }
    taken: dict[int, dict[str, Any]] = {}  # by the id of a module's globals

    def replaced(one: Any) -> Any:
        return getattr(*places[id(one)]) if id(one) in places else _Computed(one, interpreter)

    def patch_lang(function: Any) -> Any:
        scope, names = patch(function), function.__globals__
        if id(names) not in taken:
            taken[id(names)] = {name: one for name, one in names.items() if id(one) in places or _is_stub(one)}
        now = {name: replaced(one) for name, one in taken[id(names)].items() if names.get(name) is one}
        before = {name: names[name] for name, one in now.items() if names[name] is not one}
        if not before:
            return scope
        names.update({name: now[name] for name in before})
        restore = scope.restore

        def restore_all() -> None:
            names.update(before)
            restore()

        scope.restore = restore_all
        return scope

    return patch_lang


def _is_stub(one: Any) -> bool:
    """Return whether something is a function of libdevice, or the module with all of them."""
    return getattr(one, "__module__", "") == _LIBDEVICE or (isinstance(one, ModuleType) and one.__name__ == _LIBDEVICE)


class _Computed:
    """A function of libdevice, or the module with all of them, computed by NumPy."""

    def __init__(self, stub: Any, interpreter: Any) -> None:
        self._stub, self._interpreter = stub, interpreter

    def __getattr__(self, name: str) -> Any:
        return _Computed(getattr(self._stub, name), self._interpreter)

    def __call__(self, x: Any, *others: Any) -> Any:
        name, language = self._stub.__name__, self._interpreter.tl
        if others or name not in _COMPUTED:
            raise NotImplementedError(f"libdevice.{name} is not computed in Triton's interpreter here")
        if x.dtype not in (language.float32, language.float64):
            raise TypeError(f"libdevice.{name} takes float32 and float64, not {x.dtype}")
        with np.errstate(all="ignore"):
            return language.tensor(self._interpreter.TensorHandle(_COMPUTED[name](x.handle.data), x.handle.dtype), x.type)
