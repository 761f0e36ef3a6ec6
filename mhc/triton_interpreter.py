"""Triton's interpreter, made quicker and able to run autotuned kernels.

In the interpreter a launch replaces the functions of `triton.language`, and so does each call of a device function (one
`@triton.jit` function called by another), with the same functions again. That takes a millisecond a call, up to half of the
time of a kernel. Here a call inside of a launch leaves in place what the launch has replaced.

A kernel with `@triton.autotune` fails there, since its configs are timed on a GPU. Here each key of it (the arguments that
the decorator names, and dtypes) has one of its configs, always the same one: a GPU may choose any of them.
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_INTERPRETER, _AUTOTUNER = "triton.runtime.interpreter", "triton.runtime.autotuner"


@contextmanager
def prepared() -> Iterator[None]:
    """Prepare Triton's interpreter for the block, if it is loaded.

    What a release of Triton does in another way is left as it is.
    """
    interpreter: Any = sys.modules.get(_INTERPRETER)
    autotuner: Any = getattr(sys.modules.get(_AUTOTUNER), "Autotuner", None)
    if interpreter is None or autotuner is None:
        yield
        return
    run, patch = autotuner.run, getattr(interpreter, "_patch_lang", None)
    autotuner.run = _with_one_config(run)
    if patch is not None and hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = _once(patch, interpreter._LangPatchScope, interpreter.tl)
    try:
        yield
    finally:
        autotuner.run = run
        if patch is not None:
            interpreter._patch_lang = patch


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
