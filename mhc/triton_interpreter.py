"""Triton's interpreter with less repeated work.

In the interpreter a launch replaces the functions of `triton.language`, and so does each call of a device function (one
`@triton.jit` function called by another), with the same functions again. That takes a millisecond a call, up to half of the
time of a kernel. Here a call inside of a launch leaves in place what the launch has replaced.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_INTERPRETER = "triton.runtime.interpreter"


@contextmanager
def patched_once() -> Iterator[None]:
    """Let Triton's interpreter patch `triton.language` once a launch, for the block.

    Without the interpreter, and with a release of Triton that patches in another way, nothing is changed.
    """
    interpreter: Any = sys.modules.get(_INTERPRETER)
    if not all(hasattr(interpreter, name) for name in ("_patch_lang", "_LangPatchScope", "tl")):
        yield
        return
    patch = interpreter._patch_lang
    interpreter._patch_lang = _once(patch, interpreter._LangPatchScope, interpreter.tl)
    try:
        yield
    finally:
        interpreter._patch_lang = patch


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
