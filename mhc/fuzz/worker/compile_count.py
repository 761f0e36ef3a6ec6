"""Programs that were compiled in this process: those that an implementation counts, and Triton's."""

from typing import Any

from mhc.implementation import Implementation, ImplementationError


class _Triton:
    compiled = 0


def listen() -> None:
    """Count what Triton compiles from now on, whoever asks for it. What its cache on disk has is not compiled."""
    import triton  # noqa: PLC0415  only where kernels are compiled

    others = triton.knobs.compilation.listener

    def heard(**told: Any) -> None:
        _Triton.compiled += not told["cache_hit"]
        if others is not None:
            others(**told)

    triton.knobs.compilation.listener = heard


def compiles(implementation: Implementation) -> int:
    """How many so far."""
    own = 0 if implementation.compiles is None else implementation.compiles()
    if type(own) is not int:
        raise ImplementationError(
            f"implementation {implementation.name!r}: compiles() must give a whole number, was {own!r}"
        )
    return own + _Triton.compiled
