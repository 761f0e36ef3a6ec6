"""What an implementation declares of its stages and roundings: by it alone its tolerances differ from another's."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MATMUL = ("float32", "tf32", "bfloat16", "float16")
"""Precisions to which the factors of a float32 matrix product may be rounded; sums stay in float32."""
OPERATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType({"matmul": MATMUL})
"""Operations whose precision can be declared, and the precisions."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declaration of an implementation.

    Attributes:
        recomputes_forward: the backward evaluates the forward again instead of using the saved tensors; the tolerance of
            its gradients then contains the forward's, and not only the rounding of the saved tensors.
        matmul: what factors of float32 matrix products are rounded to.
        backward: it has a backward; without one no tolerance of a gradient is derived.
    """

    recomputes_forward: bool = False
    matmul: str = "float32"
    backward: bool = True

    @property
    def words(self) -> str:
        """What is less precise than the reference, in words; empty where nothing is."""
        return "" if self.matmul == AS_REFERENCE.matmul else f"matmul in {self.matmul}"


AS_REFERENCE = Declared()
"""The reference's own precision, with a backward of its saved tensors."""
