"""Counts the programs compiled in this process: those that an implementation reports, and Triton's."""

from typing import Any

from mhc.implementation import Implementation, ImplementationError


class _Triton:
    compiled = 0


def count_triton() -> None:
    """Count every program that Triton compiles from now on. Programs from its cache on disk do not count."""
    import triton  # noqa: PLC0415  only where kernels are compiled

    others = triton.knobs.compilation.listener

    def count(**event: Any) -> None:
        _Triton.compiled += not event["cache_hit"]
        if others is not None:
            others(**event)

    triton.knobs.compilation.listener = count


def compile_count(implementation: Implementation) -> int:
    """Return the number of programs compiled so far."""
    own = 0 if implementation.compiles is None else implementation.compiles()
    if type(own) is not int:
        raise ImplementationError(
            f"implementation {implementation.name!r}: compiles() must give a whole number, was {own!r}"
        )
    return own + _Triton.compiled
