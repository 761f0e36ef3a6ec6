"""Find the first expression of a program that TVM's arithmetic rewrites into another value, and where it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mhc.programs import arithmetic, grammar
from mhc.programs.compile_error import CompileError
from mhc.programs.evaluate import Machine, evaluate
from mhc.programs.grammar import Expr, Program
from mhc.programs.tvm_arithmetic import Rewritten

_Run = Callable[[dict[str, Any]], Any]
_SIMPLIFY, _ITER_MAP, _PROVE = "Analyzer.simplify", "iter_map_simplify", "can_prove or const_int_bound"


@dataclass(frozen=True, kw_only=True)
class WrongRewriting:
    """An expression that is rewritten into another value.

    Attributes:
        expression: before the rewriting. is_index: `iter_map_simplify` rewrites it, and not the analyzer alone.
        part: the function of TVM's that goes wrong, or those of which one does.
        ranges: of its loops and blocks, begin and extent by name.
        at: of each variable and load in it, a value. dtypes: of each, its dtype.
        right: the value there. got: the value after the rewriting.
    """

    expression: Expr
    is_index: bool
    part: str
    ranges: Mapping[str, tuple[int, int]]
    at: Mapping[Expr, int]
    dtypes: Mapping[Expr, str]
    right: int
    got: int


def wrong_rewriting(program: Program) -> WrongRewriting | None:
    """Return the first expression whose rewriting has another value as the program runs; None where there is none."""
    found: list[WrongRewriting] = []

    class Watched(Rewritten):
        """Computes each expression in both ways, and goes on with the right value."""

        def rewritten(self, node: Expr, rewrite: Callable[[Any, Any], Any], size: int = 0) -> _Run:
            run, right = super().rewritten(node, rewrite), plain.expression(node)
            simplified = super().rewritten(node, lambda terms, term: terms.analyzer().simplify(term))
            leaves = dict.fromkeys(one for one in grammar.walk(node) if isinstance(one, (grammar.Var, grammar.Load)))
            values = {one: plain.expression(one) for one in leaves}
            ranges = {
                one.name: self.ranges[one.name] for one in leaves if isinstance(one, grammar.Var) and one.name in self.ranges
            }

            def watched(memory: dict[str, Any]) -> Any:
                value, got = right(memory), run(memory)
                if value != got and not found:
                    found.append(
                        WrongRewriting(
                            expression=node,
                            is_index=size > 0,
                            part=_SIMPLIFY if simplified(memory) != value else _ITER_MAP if size else _PROVE,
                            ranges=ranges,
                            at={one: int(value_of(memory)) for one, value_of in values.items()},
                            dtypes={one: grammar.dtype_of(one, program) for one in leaves},
                            right=int(value),
                            got=int(got),
                        )
                    )
                return value

            return watched

    plain = Machine(program)
    try:
        evaluate(program, machine=Watched)
    except (arithmetic.Invalid, CompileError, ZeroDivisionError):
        return None
    return next(iter(found), None)


def wrong_part(program: Program) -> str:
    """Return which function of TVM's makes a program wrong; nothing where that is not found."""
    wrong = wrong_rewriting(program)
    return "" if wrong is None else wrong.part
