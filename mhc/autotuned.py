"""Which of its configs a kernel with `@triton.autotune` runs with, as a choice that a case holds.

Triton times the configs on a GPU and keeps the quickest, so that any of them may be the one that runs. Here a case pins a
number in the schedule of the implementation, under `CONFIG`. Each of its autotuned kernels takes config `number % count` of
those that are left after pruning, and none is timed. Without a number it is the first.
"""

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

CONFIG = "autotune_config"
"""The name in a schedule."""
NUMBERS = tuple(range(64))
"""The numbers that are drawn."""

_AUTOTUNER = "triton.runtime.autotuner"
_FOREIGN = ("torch", "triton", "numpy")


def uses_autotuner(*functions: Callable[..., Any] | None) -> bool:
    """Return whether one of the functions, or what it refers to by name, is a kernel with `@triton.autotune`.

    Followed are functions, classes and modules, but not PyTorch's, Triton's and NumPy's.
    """
    autotuner: Any = getattr(sys.modules.get(_AUTOTUNER), "Autotuner", None)
    left: list[Any] = [one for one in functions if autotuner is not None and one is not None]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if isinstance(one, autotuner):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left.extend(_named_by(one))
    return False


def _named_by(one: Any) -> Iterator[Any]:
    """Yield what a function refers to by name, and the methods of a class."""
    one = getattr(one, "func", one)  # functools.partial
    home = one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None)
    if str(home).partition(".")[0] in _FOREIGN:
        return
    if isinstance(one, type):
        yield from (getattr(method, "__func__", method) for method in vars(one).values())
    elif isinstance(one, FunctionType):
        names = set(_names(one.__code__))
        found = [one.__globals__[name] for name in names if name in one.__globals__]
        yield from found
        for module in found:
            if isinstance(module, ModuleType) and module.__name__.partition(".")[0] not in _FOREIGN:
                yield from (vars(module)[name] for name in names if name in vars(module))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def pinned(run: Callable[..., Any], number: int, refusal: Callable[[str], Exception]) -> Callable[..., Any]:
    """Return `Autotuner.run` that takes one config and times none.

    Args:
        refusal: returns what is raised for a config that the device cannot run; Triton leaves such a config out, too.
    """

    def run_pinned(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.configs) < 2:
            return run(self, *args, **kwargs)
        every, self.nargs = self.configs, dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs)
        at = number % len(configs)
        self.configs = [configs[at]]
        try:
            return run(self, *args, **kwargs)
        except Exception as error:
            if type(error).__name__ in {"OutOfResources", "PTXASError", "CompileTimeAssertionFailure"}:
                raise refusal(f"config {at} of {len(configs)}, {configs[at]}: {error}") from error
            raise
        finally:
            self.configs = every

    return run_pinned
