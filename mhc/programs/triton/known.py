"""Bugs of Triton that are reported, as `mhc.programs.known` has them for TileLang. Each was mended by release 3.9.0."""

from mhc.programs.grammar import SIGNED, UNSIGNED
from mhc.programs.known import Known
from mhc.programs.triton.cuts import seen
from mhc.programs.triton.grammar import Buffer, Load, Op, Statement, Store, TritonProgram, walk

_TRACKER = "https://github.com/triton-lang/triton/issues"


def _takes(op: str, dtypes: tuple[str, ...], program: TritonProgram) -> bool:
    """Return whether an operation takes a value of one of the dtypes."""
    nodes = [one for one in walk(program.body) if isinstance(one, Op) and one.op == op]
    values = seen(program) if nodes else {}
    return any(name in values and values[name].dtype in dtypes for one in nodes for name in one.args)


def _of_one(program: TritonProgram) -> bool:
    return any(isinstance(one, Op) and one.op == "topk" and one.value == 1 for one in walk(program.body))


def _example(dtype: str, *body: Statement, size: int = 4, least: int = 0, most: int = 100) -> TritonProgram:
    """Return a program that loads v1 from four elements of x, and stores v2."""
    buffers = Buffer("x", 4, dtype, least=least, most=most), Buffer("y", size, dtype, written=True)
    indices = Op("v0", "arange", shape=(4,)), Op("v3", "arange", shape=(size,))
    return TritonProgram(buffers=buffers, body=(*indices, Load("v1", "x", "v0"), *body, Store("y", "v3", "v2")))


KNOWN: tuple[Known, ...] = (
    Known(
        issue=f"{_TRACKER}/11210",
        kind="interpreted",
        before="3.9.0",
        holds=lambda program: _takes("invert", UNSIGNED, program),
        example=_example("uint8", Op("v2", "invert", ("v1",))),
    ),
    Known(
        issue=f"{_TRACKER}/11390",
        kind="interpreted",
        before="3.9.0",
        holds=lambda program: _takes("umulhi", SIGNED, program),
        example=_example("int32", Op("v2", "umulhi", ("v1", "v1")), least=-2_000_000_000, most=-1_900_000_000),
    ),
    Known(
        issue=f"{_TRACKER}/10952",
        before="3.9.0",
        holds=_of_one,
        example=_example("int32", Op("v2", "topk", ("v1",), value=1), size=1),
    ),
)
