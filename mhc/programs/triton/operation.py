"""What is known of an operation: what it computes, and its text."""

from collections.abc import Callable
from dataclasses import dataclass

from mhc.programs.triton.grammar import Op
from mhc.programs.triton.values import Value


@dataclass(frozen=True)
class Operation:
    """An operation of the grammar.

    Attributes:
        compute: returns its result from the node and its operands; raises `Invalid`.
        text: returns its text in Triton's language.
    """

    compute: Callable[..., Value]
    text: Callable[[Op], str]


def operands_text(node: Op) -> tuple[str, ...]:
    """Return the texts of operands, of which one may be a number; it may come first."""
    operands = (*node.args, *([node.constant or str(node.value)] if node.flag else []))
    return operands[::-1] if node.flag and node.axis else operands


def infix(sign: str) -> Callable[[Op], str]:
    """Return what writes an operation between two operands, one of which may be a number."""

    def text(node: Op) -> str:
        left, right = operands_text(node)
        return f"{left} {sign} {right}"

    return text


def dtype_text(dtype: str) -> str:
    """Return a dtype's name in Triton."""
    return "tl.int1" if dtype == "bool" else f"tl.{dtype}"
