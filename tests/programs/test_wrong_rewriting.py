"""Which expression TVM rewrites into another value."""

from mhc.programs.grammar import Binary, Buffer, Cast, Const, For, Load, Program, Store, Var
from mhc.programs.wrong_rewriting import wrong_rewriting
from tests.support.needs import needs_tilelang

Y = Buffer("y", (4,), "int32", written=True)


def stores(at: Binary | Var, value: Binary | Cast | Const, *more: Buffer) -> Program:
    """Return a program that stores a value at an index of y, for i of 3 and 4."""
    return Program(buffers=(*more, Y), body=(For("serial", "i", 2, (Store("y", (at,), value),), begin=3),))


@needs_tilelang
def test_the_index_is_found_with_the_value_of_its_variable() -> None:
    wrong = wrong_rewriting(stores(Binary("%", Binary("-", Const(0), Var("i")), Const(4)), Const(0)))
    assert wrong is not None
    assert (wrong.is_index, wrong.ranges, wrong.at) == (True, {"i": (3, 2)}, {Var("i"): 3})
    assert (wrong.right, wrong.got, wrong.part) == (1, 0, "iter_map_simplify")


@needs_tilelang
def test_a_load_is_a_variable_of_its_dtype() -> None:
    load = Load("x", (Const(0),))
    x = Buffer("x", (1,), "int8", least=-9, most=-9)
    wrong = wrong_rewriting(stores(Binary("-", Var("i"), Const(3)), Cast("int32", Cast("uint8", load)), x))
    assert wrong is not None
    assert (wrong.is_index, wrong.at, wrong.dtypes) == (False, {load: -9}, {load: "int8"})
    assert (wrong.right, wrong.got, wrong.part) == (247, 127, "can_prove or const_int_bound")


@needs_tilelang
def test_a_right_rewriting_is_none() -> None:
    assert wrong_rewriting(stores(Binary("-", Var("i"), Const(3)), Binary("+", Var("i"), Const(1)))) is None
