"""Write a program that shows a wrong rewriting of TVM's arithmetic without the rest of TileLang's compiler."""

from collections.abc import Iterator
from pathlib import Path

from mhc.programs import grammar
from mhc.programs.grammar import Program
from mhc.programs.tile_edits import mapped
from mhc.programs.tilelang_text import expression_text
from mhc.programs.wrong_rewriting import WrongRewriting, wrong_rewriting
from mhc.upstream.verify import run

NAME = "tvm.py"
_BEFORE = '''\
"""TVM's arithmetic gives an expression another value. Exits with 1: REPRODUCED, 0: NOT REPRODUCED."""

import sys

import tilelang.language as T  # has TVM
from tilelang import tvm

tir = getattr(tvm, "tirx", None) or tvm.tir
analyzer = tvm.arith.Analyzer()
'''
_AFTER = """\
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
"""
_BIND = ("for one, range_ in ranges.items():", "    analyzer.bind(one, range_)")
_VALUE = """\
value = tvm.arith.Analyzer().simplify(tir.stmt_functor.substitute(after, {{{at}}}))
print(f"{{before}} at {where}: expected {right}, actual {{value}}, of {{after}}")
wrong = int(value) != {right}
"""
_INDEX = """\
level = tvm.arith.iter_affine_map.IterMapLevel.Surjective
(after,) = tvm.arith.iter_map_simplify([analyzer.simplify(before)], ranges, True, level)
"""
_SIMPLIFIED = "after = analyzer.simplify(before)\n"
_PROVED = """\
wrong = analyzer.can_prove({claim})
print(f"{{before}} at {where}: expected {right}, actual {{'proved otherwise' if wrong else 'not proved'}}")
"""
_BOUND = """\
bound = analyzer.const_int_bound(before)
wrong = not bound.min_value <= {right} <= bound.max_value
print(f"{{before}} at {where}: expected {right}, actual within {{bound.min_value}} and {{bound.max_value}}")
"""


def write_tvm_alone(program: Program, folder: Path) -> str:
    """Write `tvm.py` to a folder, if TVM's arithmetic alone rewrites an expression of the program into another value.

    Returns:
        the section of an issue that shows it; nothing where TVM alone does not go wrong.
    """
    wrong = wrong_rewriting(program)
    if wrong is None:
        return ""
    for text in _texts(wrong, program):
        path = folder / NAME
        path.write_text(text, encoding="utf-8")
        outcome = run(path)
        if outcome.reproduced:
            return f"TVM's arithmetic goes wrong by itself (`{NAME}`): {outcome.values}\n\n```python\n{text.rstrip()}\n```\n"
        path.unlink()
    return ""


def _texts(wrong: WrongRewriting, program: Program) -> Iterator[str]:
    """Yield the programs to try: the rewriting itself, then what the analyzer proves, and its bounds."""
    names = {one: one.name if isinstance(one, grammar.Var) else f"x{number}" for number, one in enumerate(wrong.at)}
    before = mapped(wrong.expression, lambda one: grammar.Var(names[one]) if one in names else one)
    parts = {
        "at": ", ".join(f'{names[one]}: tir.const({value}, "{wrong.dtypes[one]}")' for one, value in wrong.at.items()),
        "where": ", ".join(f"{names[one]} = {value}" for one, value in wrong.at.items()) or "no variable",
        "right": wrong.right,
        "claim": "tir.Not(before)" if wrong.right else "before",
    }
    ranges = ", ".join(f"{name}: tvm.ir.Range.from_min_extent{range_}" for name, range_ in wrong.ranges.items())
    head = [
        *(f'{name} = tir.Var("{name}", "{wrong.dtypes[one]}")' for one, name in names.items()),
        *([f"ranges = {{{ranges}}}", *_BIND] if ranges else []),
        f"before = {expression_text(before, program)}",
    ]
    for body in [_INDEX + _VALUE] if wrong.is_index else [_SIMPLIFIED + _VALUE, _PROVED, _BOUND]:
        yield _BEFORE + "\n".join(head) + "\n" + body.format(**parts) + _AFTER
