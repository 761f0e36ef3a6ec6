"""Whether a program divides by 0 where a compiler evaluates conditions outside of what guards them."""

from collections.abc import Callable
from typing import Any

from mhc.programs import grammar
from mhc.programs.arithmetic import DIVIDE, Invalid
from mhc.programs.evaluate import Machine, evaluate
from mhc.programs.grammar import Binary, Const, If, Program, Statement, walk

_BY_ZERO = "a division by 0"
_Run = Callable[[dict[str, Any]], Any]


def divides_in_an_operand(program: Program) -> bool:
    """Return whether the right operand of an `and` or `or` divides by 0 where the left one alone decides."""
    return _divides(program, _Operands)


def divides_in_a_branch(program: Program) -> bool:
    """Return whether a condition in a branch divides by 0 where the branch is not taken."""
    return _divides(program, _Branches)


def _divides(program: Program, machine: type[Machine]) -> bool:
    guards = [one for one in walk(program) if isinstance(one, If) or (isinstance(one, Binary) and one.op in grammar.LOGIC)]
    guarded = (below for one in guards for below in walk(one) if isinstance(below, Binary))
    if not any(one.op in DIVIDE and not isinstance(one.b, Const) for one in guarded):
        return False
    try:
        evaluate(program, machine=machine)
    except Invalid as reason:
        return str(reason) == _BY_ZERO
    return False


class _Operands(Machine):
    """Evaluates both operands of `and` and `or`."""

    def _binary(self, node: Binary) -> _Run:
        run = super()._binary(node)
        return _after([self.expression(node.b)], run) if node.op in grammar.LOGIC else run


class _Branches(Machine):
    """Evaluates the conditions in a branch before its own."""

    def statement(self, node: Statement) -> _Run:
        run = super().statement(node)
        if not isinstance(node, If):
            return run
        return _after([self.expression(one.condition) for one in (*node.then, *node.otherwise) if isinstance(one, If)], run)


def _after(early: list[_Run], run: _Run) -> _Run:
    """Return what first evaluates what may have no value there, where only a division by 0 matters."""

    def both(memory: dict[str, Any]) -> Any:
        for one in early:
            try:
                one(memory)
            except Invalid as reason:
                if str(reason) == _BY_ZERO:
                    raise
        return run(memory)

    return both
