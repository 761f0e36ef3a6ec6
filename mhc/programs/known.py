"""Bugs of compilers that are reported. A program that may show one and fails is not judged, so that it does not hide others.

A test runs each example: one that passes again fails the suite, since the entry is then out of date.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mhc.programs import grammar
from mhc.programs.arithmetic import PLAIN
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.grammar import (
    EXPRESSIONS,
    Assign,
    Assume,
    Binary,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    For,
    If,
    Load,
    Node,
    Program,
    Store,
    Unary,
    Var,
    children,
    walk,
)
from mhc.programs.tile_edits import inlined
from mhc.programs.unguarded import divides_in_a_branch, divides_in_an_operand

_TRACKER = "https://github.com/tile-ai/tilelang/issues"
UNSENT = "docs/results/upstream/programs"
_LARGE = 1 << 29
_SMALL = 100
_NARROW = ("int8", "uint8", "int16", "uint16")


@dataclass(frozen=True, kw_only=True)
class Known:
    """A reported bug.

    Attributes:
        issue: where; a folder of ours until it is sent. before: the first release without it; None: the newest still has it.
        kinds: of the targets that have it; without any: all of compilers.
        holds: whether a program may show it. example: a program that does.
        ends: or hangs the process, so that a program that may show it is not run.
    """

    issue: str
    holds: Callable[[Any], bool]
    example: Any
    before: str | None = None
    kinds: tuple[str, ...] = ()
    ends: bool = False

    def is_in(self, release: str, kind: str = "c") -> bool:
        """Return whether a release has it on targets of a kind."""
        has_it = kind in self.kinds or (not self.kinds and kind != "plain")
        return has_it and (self.before is None or is_before(release, self.before))


def is_before(release: str, other: str) -> bool:
    """Return whether a release came before another, by the numbers of their versions."""
    one, two = ([int(number) for number in re.findall(r"\d+", text)[:3]] for text in (release, other))
    return one < two


def known(
    program: DrawnProgram,
    release: str,
    kind: str = "c",
    entries: Sequence[Known] | None = None,
    *,
    ends: bool = False,
) -> Known | None:
    """Return the first reported bug that the program may show with a release on a target of a kind.

    Args:
        entries: the reported bugs of its language; by default TileLang's. ends: only those that end or hang the process.
    """
    forms = [program]
    if isinstance(program, Program):
        forms.append(_with_values(program))
    mine = (one for one in (KNOWN if entries is None else entries) if one.is_in(release, kind) and (one.ends or not ends))
    return next((one for one in mine if any(map(one.holds, forms))), None)


def _with_values(program: Program) -> Program:
    """Return the program with values in the place of the names bound to them, where the compiler may put them."""
    for one in program.buffers:
        program = inlined(program, one.name) if one.scope == "let" else program
    return program


def _copies(program: Program) -> bool:
    return any(isinstance(one, Copy) or (isinstance(one, For) and one.kind == "vectorized") for one in walk(program))


def _folds(program: Program) -> bool:
    """Return whether an operation has only constants below it, and is unsigned, or one of them is unsigned or large."""
    operations = ((one, _leaves(one)) for one in walk(program) if isinstance(one, (Binary, Unary, Cast)))
    folded = ((one, leaves) for one, leaves in operations if all(isinstance(leaf, Const) for leaf in leaves))
    return any(
        (not isinstance(one, Cast) and grammar.dtype_of(one.a, program) in grammar.UNSIGNED)
        or any(isinstance(leaf, Const) and (leaf.dtype in grammar.UNSIGNED or abs(leaf.value) > _SMALL) for leaf in leaves)
        for one, leaves in folded
    )


def _adds_large_constants(program: Program) -> bool:
    """Return whether constants of an expression may be added by the simplifier and not fit, or are a dtype's ends."""
    whole = (one for node in walk(program) if not isinstance(node, EXPRESSIONS) for one in children(node))
    expressions = (list(walk(one)) for one in whole if isinstance(one, EXPRESSIONS))
    constants = ([node for node in one if isinstance(node, Const) and node.dtype in grammar.INTEGERS] for one in expressions)
    return any(_do_not_fit(one) for one in constants)


def _do_not_fit(constants: Sequence[Const]) -> bool:
    """Return whether two constants are large, or the sum of all of one dtype is more than it holds, signed."""
    large = [one for one in constants if abs(one.value) >= _LARGE]
    sums = Counter[str]()
    for one in constants:
        sums[one.dtype] += int(abs(one.value))
    beyond = (sums[one.dtype] > 2 ** (grammar.bits_of(one.dtype) - 1) for one in large)
    return len(large) > 1 or any(abs(one.value) >= 2**63 for one in constants) or any(beyond)


def _shifts_back(program: Program) -> bool:
    """Return whether a value of a narrow integer is shifted to the left and then to the right."""
    right = (one for one in walk(program) if isinstance(one, Binary) and one.op == ">>")
    return any(
        isinstance(below, Binary) and below.op == "<<" and grammar.dtype_of(below, program) in _NARROW
        for one in right
        for below in walk(one.a)
    )


def _narrows(program: Program) -> bool:
    """Return whether an integer is cast to a dtype that does not hold all values of its own."""
    casts = (one for one in walk(program) if isinstance(one, Cast) and one.dtype in grammar.INTEGERS)
    pairs = ((grammar.dtype_of(one.a, program), one.dtype) for one in casts)
    ranges = (map(grammar.range_of, pair) for pair in pairs if pair[0] in grammar.INTEGERS)
    return any(not (after[0] <= before[0] and before[1] <= after[1]) for before, after in ranges)


def _keeps_the_axis(program: Program) -> bool:
    """Return whether a reduction's target keeps the axis, with one element."""
    reductions = (one for one in walk(program) if isinstance(one, grammar.Reduce))
    ranks = ((len(program.buffer(one.source).shape), len(program.buffer(one.target).shape)) for one in reductions)
    return any(before == after > 1 for before, after in ranks)


def _rounds_up_by_less_than_0(program: Program) -> bool:
    """Return whether a divisor of `T.ceildiv` is below 0."""
    divided = (one.b for one in walk(program) if isinstance(one, Binary) and one.op == "ceildiv")
    return any(isinstance(one, Const) and one.value < 0 for one in divided)


def _inverts_bool(program: Program) -> bool:
    """Return whether `~` is of a bool."""
    inverted = (one.a for one in walk(program) if isinstance(one, Unary) and one.op == "~")
    return any(grammar.dtype_of(one, program) == "bool" for one in inverted)


def _tests_an_integer(program: Program) -> bool:
    """Return whether an integer is the condition of an if that has an else."""
    branches = (one for one in walk(program) if isinstance(one, If) and one.otherwise)
    return any(grammar.dtype_of(one.condition, program) != "bool" for one in branches)


def _vectors_above_0(program: Program) -> bool:
    """Return whether a vectorised loop begins above 0."""
    return any(isinstance(one, For) and one.kind == "vectorized" and one.begin > 0 for one in walk(program))


def _shifts_into_the_sign(program: Program) -> bool:
    """Return whether a constant of int32 is shifted by a constant, and does not fit."""
    shifts = (one for one in walk(program) if isinstance(one, Binary) and one.op == "<<")
    pairs = ((one.a, one.b) for one in shifts)
    return any(
        isinstance(a, Const) and isinstance(b, Const) and a.dtype == "int32" and int(a.value) << int(b.value) >= 1 << 31
        for a, b in pairs
    )


def _casts_out_of_range(program: Program) -> bool:
    """Return whether a constant is cast to a dtype of integers that does not hold it."""
    casts = (one for one in walk(program) if isinstance(one, Cast) and one.dtype in grammar.INTEGERS)
    pairs = ((one.a, grammar.range_of(one.dtype)) for one in casts)
    return any(isinstance(one, Const) and not least <= one.value <= most for one, (least, most) in pairs)


def _binds_a_cast_out_of_range(program: Program) -> bool:
    """Return whether a name is bound to a cast of indices whose dtype does not hold the ends between which they lie."""
    ranges = {one.var: one.indices for one in walk(program) if isinstance(one, For) and one.first is None}
    bound = (one.value for one in walk(program) if isinstance(one, Assign) and program.buffer(one.name).scope == "let")
    casts = (one for value in bound for one in walk(value) if isinstance(one, Cast) and one.dtype not in grammar.FLOATS)
    pairs = ((_interval(one.a, ranges), grammar.range_of(one.dtype)) for one in casts)
    return any(ends is not None and not (least <= ends[0] and ends[1] <= most) for ends, (least, most) in pairs)


def _interval(node: Expr, ranges: Mapping[str, range]) -> tuple[int, int] | None:
    """Return between what sums, differences and multiples of indices lie; None of what reads a buffer, and of the rest."""
    match node:
        case Const(value=int(value)):
            return value, value
        case Var() if node.name in ranges:
            return min(ranges[node.name]), max(ranges[node.name])
        case Binary(op="+" | "-" | "*"):
            sides = _interval(node.a, ranges), _interval(node.b, ranges)
            if sides[0] is None or sides[1] is None:
                return None
            ends = [int(PLAIN[node.op](a, b)) for a in sides[0] for b in sides[1]]
            return min(ends), max(ends)
    return None


def _assumes_what_changes(program: Program) -> bool:
    """Return whether an assumption is about a buffer or a scalar that the program sets."""
    assumed = {name for one in walk(program) if isinstance(one, Assume) for name in _names_read(one)}
    lets = {one.name for one in program.buffers if one.scope == "let"}
    return bool(assumed & (_names_set(program.body) - lets))


def _leaves_a_loop_of_one_iteration(program: Program) -> bool:
    """Return whether `break` or `continue` is of a loop of one iteration, or of a computed number of them."""
    loops = (one for one in walk(program) if isinstance(one, For) and (one.extent == 1 or one.count is not None))
    return any(_leaves_loop(one.body) for one in loops)


def _leaves_loop(body: Sequence[Node]) -> bool:
    """Return whether statements of a loop leave it, or an iteration, outside of the loops among them."""
    inner = (one for one in body if not isinstance(one, (For, grammar.While)))
    return any(isinstance(one, grammar.Leave) or _leaves_loop(children(one)) for one in inner)


def neighbouring_branches(program: Program) -> Iterator[tuple[If, If]]:
    """Yield two branches of which one follows the other."""
    lists = [program.body, *(one.body for one in walk(program) if isinstance(one, (For, grammar.While)))]
    lists += [side for one in walk(program) if isinstance(one, If) for side in (one.then, one.otherwise)]
    for one, other in (pair for each in lists for pair in pairwise(each)):
        if isinstance(one, If) and isinstance(other, If):
            yield one, other


def _tests_again_what_it_changed(program: Program) -> bool:
    """Return whether of two neighbouring branches with one condition the first sets what that reads."""
    alike = (one for one, other in neighbouring_branches(program) if one.condition == other.condition)
    return any(_names_read(one.condition) & _names_set(one.then) for one in alike)


def _names_read(node: Node) -> set[str]:
    reads = (one for one in walk(node) if isinstance(one, (Var, Load)))
    return {one.name if isinstance(one, Var) else one.buffer for one in reads}


def _names_set(body: Sequence[Node]) -> set[str]:
    nodes = [below for one in body for below in walk(one)]
    return {one.buffer for one in nodes if isinstance(one, Store)} | {one.name for one in nodes if isinstance(one, Assign)}


def _casts_lanes_of_a_branch(program: Program) -> bool:
    """Return whether a vectorised loop casts in a branch within a branch, or in one with an else."""
    loops = (one for one in walk(program) if isinstance(one, For) and one.kind == "vectorized")
    branches = (one for loop in loops for one in walk(loop) if isinstance(one, If))
    deep = (one for one in branches if one.otherwise or any(isinstance(below, If) for below in one.then))
    return any(isinstance(below, Cast) for one in deep for below in walk(one))


def _has_no_instruction(program: Program) -> bool:
    """Return whether `abs` is of a float, or `floor` and the like of a float16, that is not constant."""
    unary = (one for one in walk(program) if isinstance(one, Unary) and one.op in {"abs", *grammar.FUNCTIONS})
    unfolded = (one for one in unary if not all(isinstance(leaf, Const) for leaf in _leaves(one)) or _chooses(one))
    dtypes = ((one.op, grammar.dtype_of(one.a, program)) for one in unfolded)
    return any(dtype in grammar.FLOATS if op == "abs" else dtype == "float16" for op, dtype in dtypes)


def _chooses(node: Node) -> bool:
    """Return whether there is a choice in an expression."""
    return any(isinstance(one, grammar.Select) for one in walk(node))


def _leaves(node: Node) -> list[Node]:
    return [one for one in walk(node) if isinstance(one, (Const, Var, Load))]


def _stores(value: Expr, dtype: str, *more: Buffer) -> Program:
    """Return a program that sets y[0] to a value, in a loop over i from 0 to 3."""
    buffers = (*more, Buffer("y", (4,), dtype, written=True))
    return Program(buffers=buffers, body=(For("serial", "i", 4, (Store("y", (Var("i"),), value),)),))


_LANES = Program(
    buffers=(Buffer("x", (4,), "int32", most=9), Buffer("y", (4,), "float32", written=True)),
    body=(
        For(
            "vectorized",
            "i",
            4,
            (
                If(
                    Binary(">", Load("x", (Var("i"),)), Const(0)),
                    (
                        If(
                            Binary("<", Load("x", (Var("i"),)), Const(6)),
                            (Store("y", (Var("i"),), Cast("float32", Load("x", (Var("i"),)))),),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
_U8 = Buffer("x", (4,), "uint8", least=200, most=255)
_I8 = Buffer("x", (4,), "int8", least=-9, most=-1)
_I32 = Buffer("x", (4,), "int32", least=-2_000_000_000, most=-1_900_000_000)

_KEPT = Program(
    buffers=(
        Buffer("x", (4, 32), "int32", scope="fragment"),
        Buffer("r", (4, 1), "int32", scope="fragment"),
        Buffer("y", (4, 1), "int32", written=True),
    ),
    body=(
        grammar.Fill("x", Const(1)),
        grammar.Reduce(op="max", source="x", target="r", axis=1),
        Copy(source="r", source_at=(0, 0), target="y", target_at=(0, 0), extents=(4, 1)),
    ),
    threads=32,
)

_ELSE = If(Load("x", (Var("i"),)), (Store("y", (Var("i"),), Const(1)),), (Store("y", (Var("i"),), Const(2)),))

_BOUND = Program(
    buffers=(Buffer("b", (1,), "bool", scope="let"), Buffer("y", (4,), "int32", written=True)),
    body=(
        For(
            "serial",
            "i",
            4,
            (Assign("b", Cast("bool", Var("i"))), Store("y", (Var("i"),), Cast("int32", Var("b")))),
        ),
    ),
)
_FIRST, _SECOND, _SET = Load("x", (Const(0),)), Load("x", (Const(1),)), Load("y", (Const(0),))
_STALE = Program(
    buffers=(Buffer("x", (2,), "int32", least=1, most=9), Buffer("y", (2,), "int32", written=True)),
    body=(
        Store("y", (Const(0),), Binary("-", _FIRST, _FIRST)),
        Assume(Binary("==", _SET, Const(0))),
        Store("y", (Const(0),), _SECOND),
        Store("y", (Const(1),), grammar.Select(Binary("==", _SET, Const(0)), Const(1), Const(2))),
    ),
)
_DIVISOR = Buffer("x", (1,), "int32", least=0, most=0)
_QUOTIENT = Binary(">", Binary("//", Const(10), _FIRST), Const(2))
_GUARDED = Program(
    buffers=(_DIVISOR, Buffer("y", (1,), "int32", written=True)),
    body=(If(Binary("and", Binary("!=", _FIRST, Const(0)), _QUOTIENT), (Store("y", (Const(0),), Const(1)),)),),
)
_HOISTED = Program(
    buffers=(_DIVISOR, Buffer("y", (4,), "int32", written=True)),
    body=(
        For(
            "serial",
            "i",
            4,
            (If(Binary("<", Var("i"), _FIRST), (If(_QUOTIENT, (Store("y", (Var("i"),), Const(1)),)),)),),
        ),
    ),
)

_ONCE = Program(
    buffers=(Buffer("y", (2,), "int32", written=True),),
    body=(For("serial", "i", 2, (For("serial", "j", 1, (grammar.Leave("continue"),)), Store("y", (Var("i"),), Const(1)))),),
)

_SMALL_YET = Binary("<", Load("y", (Const(0),)), Const(5))
_AGAIN = Program(
    buffers=(Buffer("y", (2,), "int32", written=True),),
    body=(
        *(Store("y", (Const(at),), Const(0)) for at in range(2)),
        If(_SMALL_YET, (Store("y", (Const(0),), Const(7)),)),
        If(_SMALL_YET, (Store("y", (Const(1),), Const(1)),)),
    ),
)

KNOWN: tuple[Known, ...] = (
    Known(issue=f"{UNSENT}/one_iteration", holds=_leaves_a_loop_of_one_iteration, kinds=("c", "cuda"), example=_ONCE),
    Known(issue=f"{UNSENT}/interval_of_a_cast", holds=_binds_a_cast_out_of_range, kinds=("c", "cuda"), example=_BOUND),
    Known(issue=f"{UNSENT}/stale_assumption", holds=_assumes_what_changes, kinds=("c", "cuda"), example=_STALE),
    Known(issue=f"{UNSENT}/short_circuit", holds=divides_in_an_operand, kinds=("c",), example=_GUARDED, ends=True),
    Known(issue=f"{UNSENT}/hoisted_condition", holds=divides_in_a_branch, kinds=("c",), example=_HOISTED, ends=True),
    Known(
        issue=f"{UNSENT}/narrowing_cast",
        holds=_narrows,
        kinds=("arithmetic",),
        example=_stores(Cast("int32", Cast("uint8", Load("x", (Var("i"),)))), "int32", _I8),
    ),
    Known(
        issue="docs/results/upstream/abs",
        holds=_has_no_instruction,
        kinds=("c",),
        example=_stores(Unary("abs", Load("x", (Var("i"),))), "float32", Buffer("x", (4,), "float32", least=-9, most=9)),
    ),
    Known(issue=f"{_TRACKER}/2530", holds=_keeps_the_axis, kinds=("cuda",), example=_KEPT),
    Known(
        issue=f"{_TRACKER}/1901",
        holds=_copies,
        before="0.1.9",
        kinds=("c",),
        example=Program(
            buffers=(Buffer("x", (8,), "int32", most=9), Buffer("y", (8,), "int32", written=True)),
            body=(Copy(source="x", source_at=(0,), target="y", target_at=(0,), extents=(8,)),),
        ),
    ),
    Known(
        issue=f"{_TRACKER}/2538", holds=_tests_again_what_it_changed, before="0.1.12", kinds=("c", "cuda"), example=_AGAIN
    ),
    Known(issue=f"{_TRACKER}/2582", holds=_folds, example=_stores(Unary("-", Const(1, "uint64")), "uint64")),
    Known(
        issue=f"{_TRACKER}/3002",
        holds=_adds_large_constants,
        example=_stores(
            Binary("+", Binary("+", Load("x", (Var("i"),)), Const(1_500_000_000)), Const(1_500_000_000)), "int32", _I32
        ),
    ),
    Known(
        issue=f"{_TRACKER}/2943",
        holds=_rounds_up_by_less_than_0,
        example=_stores(Binary("ceildiv", Var("i"), Const(-2)), "int32"),
    ),
    Known(
        issue=f"{_TRACKER}/2976",
        holds=_inverts_bool,
        example=_stores(Unary("~", Binary("<", Var("i"), Const(2))), "bool"),
    ),
    Known(
        issue=f"{_TRACKER}/3009",
        holds=_tests_an_integer,
        example=Program(
            buffers=(Buffer("x", (4,), "int32", most=1), Buffer("y", (4,), "int32", written=True)),
            body=(For("serial", "i", 4, (_ELSE,)),),
        ),
    ),
    Known(
        issue=f"{_TRACKER}/2669",
        holds=_vectors_above_0,
        example=Program(
            buffers=(Buffer("y", (4,), "int32", written=True),),
            body=(For("vectorized", "i", 2, (Store("y", (Var("i"),), Const(0)),), begin=1),),
        ),
    ),
    Known(
        issue=f"{_TRACKER}/3001", holds=_shifts_into_the_sign, example=_stores(Binary("<<", Const(1), Const(31)), "int32")
    ),
    Known(issue=f"{_TRACKER}/3000", holds=_casts_out_of_range, example=_stores(Cast("int8", Const(300)), "int8")),
    Known(issue=f"{_TRACKER}/2616", holds=_casts_lanes_of_a_branch, example=_LANES),
    Known(
        issue=f"{_TRACKER}/2961",
        holds=_shifts_back,
        example=_stores(
            Binary(">>", Binary("<<", Load("x", (Var("i"),)), Const(7, "uint8")), Const(7, "uint8")), "uint8", _U8
        ),
    ),
)
