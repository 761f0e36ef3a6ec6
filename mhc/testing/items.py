"""`@mhc.check(IMPL)` and `@mhc.parametrize(IMPL_A, IMPL_B)`: tests that pytest collects, one for each implementation.

They are decorators over a function, as `@given` is: marks and fixtures apply to it, and pytest shows its name and its line.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from mhc.implementation import Implementation
from mhc.pytest_plugin import running
from mhc.testing.direct import failures

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

_ARGUMENT = "implementation"
_Test = TypeVar("_Test", bound=Callable[..., None])


def check(
    implementation: "Implementation | ParameterSet", *, cases: int | None = None, seed: int = 0, device: str = ""
) -> Callable[[_Test], _Test]:
    """Return the decorator that makes a test of an implementation: `parametrize` with a single one."""
    return parametrize(implementation, cases=cases, seed=seed, device=device)


def parametrize(
    *implementations: "Implementation | ParameterSet", cases: int | None = None, seed: int = 0, device: str = ""
) -> Callable[[_Test], _Test]:
    """Return the decorator that makes a test of each implementation, with the id NAME-OPERATOR.

    The function runs first: it may skip the test, or set something up; it may take fixtures, and `implementation`. Then
    `mhc.testing.check` replays the fixtures of the implementation and draws cases.

    Args:
        implementations: each one, or `pytest.param(one, marks=...)`.
        cases, seed, device: as for `mhc.testing.check`.

    Raises:
        TypeError: something else is given; or a test runs, in which this would check nothing.
    """
    if running() is not None:
        raise TypeError("mhc.check and mhc.parametrize are decorators of a test; in a test, call mhc.testing.check(IMPL)")
    parameters = [_parameter(one) for one in implementations]
    if not parameters:
        raise TypeError("mhc.parametrize: give at least one mhc.Implementation")

    def decorate(test: _Test) -> _Test:
        if not inspect.isfunction(test) or inspect.iscoroutinefunction(test) or inspect.isgeneratorfunction(test):
            raise TypeError(f"mhc.check and mhc.parametrize decorate a plain function, not {test!r}")
        signature = inspect.signature(test)
        takes = _ARGUMENT in signature.parameters

        @functools.wraps(test)
        def checked(*args: Any, **given: Any) -> None:
            __tracebackhide__ = True
            implementation = given[_ARGUMENT] if takes else given.pop(_ARGUMENT)
            test(*args, **given)
            text = failures(implementation, cases=cases, seed=seed, device=device, module=test.__module__)
            if text:
                pytest.fail(text, pytrace=False)

        if not takes:
            added = inspect.Parameter(_ARGUMENT, inspect.Parameter.KEYWORD_ONLY)
            signature = signature.replace(parameters=[*signature.parameters.values(), added])
        checked.__signature__ = signature  # type: ignore[attr-defined]
        made: _Test = pytest.mark.parametrize(_ARGUMENT, parameters)(checked)
        return made

    return decorate


def _parameter(given: Any) -> "ParameterSet":
    """Return what pytest gives to a test, with its id.

    Raises:
        TypeError: it is no implementation.
    """
    values, marks, id_ = getattr(given, "values", (given,)), getattr(given, "marks", ()), getattr(given, "id", None)
    (one,) = values if isinstance(values, tuple) and len(values) == 1 else (given,)
    if not isinstance(one, Implementation):
        raise TypeError(f"mhc.check and mhc.parametrize take an mhc.Implementation, was {one!r}")
    return pytest.param(one, marks=marks, id=id_ or f"{one.name}-{str(one.operator).rpartition('.')[2]}")
