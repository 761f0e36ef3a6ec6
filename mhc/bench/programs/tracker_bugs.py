"""Bugs of TileLang's tracker, from its series `[BUG][Fuzzer]`, that the grammar of programs can express."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from mhc.fuzz.check.program_check import WRONG
from mhc.programs import known
from mhc.programs.grammar import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Node,
    Program,
    Statement,
    Store,
    Unary,
    Var,
    children,
    dtype_of,
    walk,
)
from mhc.programs.tilelang_words import NARROW, signature

C, COMPILED = "tilelang-to-c", "tilelang-to-sm_90"
_COMPARED = r"(==|!=|<|<=|>|>=)( \w+)?( in an index)?"
_CAST = r"cast to \w+|int32 cast"
_ANY = ".*"  # where the message says enough
_I = Var("i")


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A bug that is reported.

    Attributes:
        number: of its issue. what: is wrong. example: a program that shows it.
        target: that shows it, by name. symptom: a pattern of what a verdict on it says.
        holds: whether a program may show it. words: a pattern of the operations that a minimal program which shows it has.
        why: it is not found; empty where it is.
    """

    number: int
    what: str
    example: Program
    holds: Callable[[Program], bool]
    words: str
    symptom: str = f"^{WRONG}$"
    target: str = C
    why: str = ""

    @property
    def name(self) -> str:
        return str(self.number)

    def is_told(self, symptom: str) -> bool:
        """Return whether a verdict's symptom is that of this bug."""
        return re.search(self.symptom, symptom) is not None

    def is_all(self, program: Program) -> bool:
        """Return whether a program has no operation beside those of this bug."""
        words = signature(program).split(", ")
        return self.holds(program) and all(re.fullmatch(self.words, one) for one in words)


def _program(*body: Statement, dtype: str = "int32", more: Sequence[Buffer] = ()) -> Program:
    return Program(buffers=(*more, Buffer("y", (4,), dtype, written=True)), body=body)


def _loop(value: Expr, dtype: str = "int32", *more: Buffer, kind: str = "serial") -> Program:
    """Return a program that sets y[i] to a value."""
    loop = For(kind, "i", 4, (Store("y", (_I,), value),))  # type: ignore[arg-type]
    return _program(loop, dtype=dtype, more=more)


def _of(program: Program | Node, kind: type[Binary] | type[Unary], *ops: str) -> Iterator[Binary | Unary]:
    return (one for one in walk(program) if isinstance(one, kind) and one.op in ops)


# --- what programs may show a bug


def _folds_uint64(program: Program) -> bool:
    """Return whether a sum or product of constants of uint64 is 2**63 or more, or wraps around."""
    for one in _of(program, Binary, "+", "-", "*"):
        if isinstance(one, Binary) and isinstance(one.a, Const) and isinstance(one.b, Const) and one.a.dtype == "uint64":
            a, b = int(one.a.value), int(one.b.value)
            if not 0 <= {"+": a + b, "-": a - b, "*": a * b}[one.op] < 1 << 63:
                return True
    return False


def _nests_remainders(program: Program) -> bool:
    """Return whether an index has a remainder of a remainder by more, which the divisor does not divide."""
    places = (at for one in walk(program) if isinstance(one, (Load, Store)) for at in one.at)
    outer = (one for at in places for one in _of(at, Binary, "%"))
    pairs = ((inner, inner.b, one.b) for one in outer for inner in _of(one.a, Binary, "%"))  # type: ignore[union-attr]
    return any(
        isinstance(a, Const) and isinstance(b, Const) and a.value > b.value > 0 and int(a.value) % int(b.value)
        for inner, a, b in pairs
        if any(isinstance(below, Var) for below in walk(inner))
    )


def _adds_past_the_largest(program: Program) -> bool:
    """Return whether constants of int32 that are added to something one after another have a sum that does not fit."""
    for one in _of(program, Binary, "+", "-"):
        total, node = 0, one
        while isinstance(node, Binary) and node.op in {"+", "-"} and isinstance(node.b, Const):
            total += int(node.b.value) if node.op == "+" else -int(node.b.value)
            node = node.a  # type: ignore[assignment]
        if not isinstance(node, Const) and dtype_of(one, program) == "int32" and not -(2**31) <= total < 2**31:
            return True
    return False


def _looks_alike(program: Program) -> bool:
    """Return whether two branches in a loop have conditions that differ in the buffer only."""
    return any(
        one.condition != other.condition and _without_names(one.condition) == _without_names(other.condition)
        for one, other in known.neighbouring_branches(program)
    )


def _without_names(node: Node) -> tuple[object, ...]:
    own = replace(node, buffer="b") if isinstance(node, Load) else node
    below = children(own)
    kept = [getattr(own, name) for name in own.__struct_fields__ if isinstance(getattr(own, name), (str, int, float))]
    return (type(own).__name__, *kept, *map(_without_names, below))


def _casts_lanes(program: Program) -> bool:
    """Return whether a vectorised loop stores, under two conditions, a value that is cast from an element."""
    loops = (one for one in walk(program) if isinstance(one, For) and one.kind == "vectorized")
    outer = (one for loop in loops for one in walk(loop) if isinstance(one, If))
    deep = (below for one in outer for then in one.then for below in walk(then) if isinstance(below, If))
    stores = (one.value for branch in deep for one in walk(branch) if isinstance(one, Store))
    casts = (one for value in stores for one in walk(value) if isinstance(one, Cast))
    return any(True for one in casts for below in walk(one.a) if isinstance(below, Load))


def _adds_a_sign(program: Program) -> bool:
    return any(_of(program, Unary, "+"))


def _of_vectors(*ops: str) -> Callable[[Program], bool]:
    """Return whether a program has one of these operations in a loop that may be vectorised."""

    def holds(program: Program) -> bool:
        loops = (one for one in walk(program) if isinstance(one, For) and one.kind in {"vectorized", "Parallel"})
        return any(True for loop in loops for _ in _of(loop, Unary, *ops))

    return holds


_LEDGER = {one.issue.rpartition("/")[2]: one for one in known.KNOWN}


def _from_ledger(number: int) -> dict[str, object]:
    """Return the program and the condition that the ledger has for an issue."""
    return {"number": number, "example": _LEDGER[str(number)].example, "holds": _LEDGER[str(number)].holds}


_X = Buffer("x", (4,), "int32", most=9)
_W = Buffer("w", (4,), "int32", least=-9, most=-1)
_UNSWITCHED = For(
    "serial",
    "i",
    2,
    (
        If(Binary("<", Load("x", (Const(0),)), Const(0)), (Store("y", (_I,), Const(1)),)),
        If(Binary("<", Load("w", (Const(0),)), Const(0)), (Store("y", (Binary("+", _I, Const(2)),), Const(1)),)),
    ),
)
_EXCEEDS = r"exceeds (maximum|minimum) of u?int|cannot make uint|is negative for unsigned"

REPORTED: tuple[Reported, ...] = (
    Reported(
        **_from_ledger(2538),  # type: ignore[arg-type]
        what="two ifs with one condition are merged, although the first changes what it reads",
        words=rf"if|T\.unroll|{_COMPARED}|{_CAST}|[+-] in an index",
    ),
    Reported(
        number=2539,
        what="loop unswitching takes conditions on two buffers for one",
        why="1 in 300 programs has such branches, whose conditions must differ. Another seed found it after 102 s.",
        example=_program(_UNSWITCHED, more=(_X, _W)),
        holds=_looks_alike,
        words=rf"if|T\.unroll|{_COMPARED}|{_CAST}|[+-] in an index",
    ),
    Reported(
        number=2582,
        what="a sum or product of constants of uint64 that is 2**63 or more aborts",
        why="1 in 200 programs has such a sum. Another seed found it after 589 s.",
        example=_loop(Binary("+", Const(2**63 - 1, "uint64"), Const(1, "uint64")), "uint64"),
        holds=_folds_uint64,
        words=rf"[+*-] uint64|{_CAST}",
        symptom=_EXCEEDS,
    ),
    Reported(
        **{**_from_ledger(2616), "holds": _casts_lanes},  # type: ignore[arg-type]
        what="a vectorised cast under two conditions overwrites lanes that are not stored",
        words=rf"if|and|or|not|T\.vectorized|{_COMPARED}|{_CAST}",
        why="1 in 200 programs with vectorised loops has such a cast, and the pass must vectorise it. No seed found it.",
    ),
    Reported(
        **_from_ledger(2669),  # type: ignore[arg-type]
        what="a vectorised loop that begins above 0 aborts",
        words=_ANY,
        symptom="is_zero",
    ),
    Reported(
        **_from_ledger(2943),  # type: ignore[arg-type]
        what="`T.ceildiv` by a negative divisor is wrong",
        why="1 in 200 programs divides so with a remainder. Other seeds found it after 4 and 449 programs.",
        words=rf"ceildiv( \w+)?|{NARROW}|{_CAST}",
    ),
    Reported(
        number=2955,
        what="a remainder of a remainder in an index loses the inner one",
        example=_program(
            For("serial", "i", 4, (Store("y", (Binary("%", Binary("%", _I, Const(4)), Const(3)),), _I),), begin=1)
        ),
        holds=_nests_remainders,
        words=r"[%+] in an index|T\.unroll",
    ),
    Reported(
        **_from_ledger(2961),  # type: ignore[arg-type]
        what="`(x << k) >> k` of 8 and 16 bits keeps the bits that it should lose",
        why="1 in 100 programs shifts so, and bits must be lost.",
        words=rf"{NARROW}|{_CAST}",
    ),
    Reported(
        **_from_ledger(2976),  # type: ignore[arg-type]
        what="`~` of bool is always true",
        words=rf"unary ~ bool|{_COMPARED}|{_CAST}|cast to bool|if|if_then_else",
    ),
    Reported(
        number=2991,
        what="unary `+` raises TypeError",
        example=_loop(Unary("+", _I)),
        holds=_adds_a_sign,
        words=_ANY,
        symptom="bad operand type for unary",
    ),
    Reported(
        number=2993,
        what="a vectorised `~` of 16 and 32 bits does not compile",
        why="1 in 100 programs for a GPU has such a `~`, few are drawn, and the pass must vectorise it. No seed found it.",
        example=_loop(Unary("~", Load("x", (_I,))), "int32", _X, kind="Parallel"),
        holds=_of_vectors("~"),
        words=r"unary ~( \w+)?|T\.(Parallel|vectorized)|" + NARROW,
        symptom=r"no operator _ matches",
        target=COMPILED,
    ),
    Reported(
        **_from_ledger(3000),  # type: ignore[arg-type]
        what="a constant that is cast to integers that do not hold it aborts",
        words=_CAST,
        symptom=_EXCEEDS,
    ),
    Reported(
        **_from_ledger(3001),  # type: ignore[arg-type]
        what="`1 << 31` of constants aborts",
        why="1 in 300 programs shifts a constant into the sign.",
        words=rf"<<|{_CAST}",
        symptom=_EXCEEDS,
    ),
    Reported(
        **{**_from_ledger(3002), "holds": _adds_past_the_largest},  # type: ignore[arg-type]
        what="constants that are added one after another, and whose sum is no int32, abort",
        why="1 in 300 programs adds such constants. No seed found it.",
        words=rf"[+-]|{_CAST}|min|max|T\.unroll",
        symptom=_EXCEEDS,
    ),
    Reported(
        **_from_ledger(3009),  # type: ignore[arg-type]
        what="an integer as the condition of an if aborts (on this target only with an else)",
        words=_ANY,
        symptom="is_bool",
    ),
    Reported(
        number=3021,
        what="a vectorised `not` does not compile",
        why="1 in 40 programs for a GPU has such a `not`, few are drawn, and the pass must vectorise it. No seed found it.",
        example=_loop(Unary("not", Load("x", (_I,))), "bool", Buffer("x", (4,), "bool", most=1), kind="Parallel"),
        holds=_of_vectors("not"),
        words=rf"not|T\.(Parallel|vectorized)|{_COMPARED}|{_CAST}",
        symptom=r"no operator _ matches",
        target=COMPILED,
    ),
)
"""By the number of the issue."""
