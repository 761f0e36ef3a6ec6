"""mHC Forward Pre on Triton: compiled on a GPU, and the same source in Triton's interpreter on the CPU.

Not among the built-in implementations yet (docs/triton.md says what is missing); named as
`mhc.pre.triton_impls:TRITON` and `mhc.pre.triton_impls:TRITON_INTERPRETED`.
"""

from dataclasses import replace
from typing import Any

from mhc.implementation import Implementation


def _forward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.triton_forward import forward  # noqa: PLC0415  Triton is imported where it is used

    return forward(*arguments, **keywords)


def _backward(*arguments: Any, **keywords: Any) -> Any:
    from mhc.pre.triton_backward import backward  # noqa: PLC0415

    return backward(*arguments, **keywords)


TRITON = Implementation(
    name="triton",
    forward=_forward,
    backward=_backward,
    devices=("cuda",),
    dtypes=("bfloat16", "float16", "float32", "float64"),
)
TRITON_INTERPRETED = replace(TRITON, name="triton-interpreted", devices=("cpu",), env={"TRITON_INTERPRET": "1"})
