"""The faults that are planted: in what TileLang generates, in its passes and front end, in our text, and in our plain C."""

from mhc.bench.programs.plant import GENERATED, PLAIN, Fault

_TEXT = "mhc.programs.tilelang_text:_Text"
_PASSES = "tilelang.engine.phase:OptimizeForTarget"
_OPERATORS = "tvm.tir.expr:ExprOp"
_BEFORE = "mod = tilelang.transform.FlattenBuffer()(mod)"
_C = f"{PLAIN}:_Text"
_NO_ROUNDING = "floats are drawn such that nothing is rounded, in any format"


def _c(name: str, old: str, new: str, why: str = "") -> Fault:
    return Fault(name=name, place=GENERATED, old=old, new=new, why=why)


def _pass(name: str, node: str, result: str, why: str = "") -> Fault:
    """Return a pass before `FlattenBuffer` that makes `result` of each `node`, None for nothing."""
    change = f'tir.stmt_functor.ir_transform(f.body, None, lambda n: {result}, ["tir.{node}"])'
    new = f"mod = tir.transform.Apply(lambda f: f.with_body({change}))(mod)\n    {_BEFORE}"
    return Fault(name=name, place=_PASSES, old=_BEFORE, new=new, why=why)


def _plain(name: str, place: str, old: str, new: str, why: str = "") -> Fault:
    return Fault(name=name, place=f"{_C}.{place}", old=old, new=new, why=why)


def _prelude(name: str, old: str, new: str, why: str = "") -> Fault:
    return Fault(name=name, place=f"{PLAIN}:PRELUDE", old=old, new=new, why=why)


FAULTS: tuple[Fault, ...] = (
    _c("a remainder is not taken", r" % (\(\w+\))?\d+", ""),
    _c("a floor remainder is a truncated one", r"\((\d+) & \(", r"(0 & ("),
    _c("a loop runs once more", r"^( *for \(int32_t (\w+) = \d+; \2) < ", r"\1 <= "),
    _c("a loop over blocks stops after the first", r"(block_var_\d) < \d+", r"\1 < 1"),
    _c("< becomes <= in a condition", r"(if \(.*?) < ", r"\1 <= "),
    _c("== becomes <=", " == ", " <= "),
    _c("and becomes or", "&&", "||"),
    _c("the condition of a store is left out", r"if \(.*\) \{", "if (1) {"),
    _c("an else branch is left out", "else {", "else if (0) {"),
    _c("max gives the smaller one", r"\) > \(", ") < ("),
    _c("min gives the larger one", r"\) < \((.*?)\) \?", r") > (\1) ?"),
    _c("the operands of a difference are swapped", r"\((\w+) - (\w+)\)", r"(\2 - \1)"),
    _c("a constant in an index is lost", r" - \d+\)\]", ")]"),
    _c("a load is one element too far", r"\bx\[", "x[1 + "),
    _c("a store is one element too far", r"^( *y\[)", r"\g<1>1 + "),
    _c("a shift to the right goes by one less", r" >> \(?(\(\w+\))?1\b", " >> 0"),
    _c("a cast to uint8 is left out", r"\(uint8_t\)", ""),
    _c("a cast to int8 is one to uint8", r"\(int8_t\)", "(uint8_t)"),
    _c("a cast to uint32 is one to int32", r"\(uint32_t\)", "(int32_t)"),
    _c("a cast to uint64 is one to uint32", r"\(uint64_t\)", "(uint32_t)"),
    _c("64 bits are computed in 32", r"\(int64_t\)", "(int32_t)"),
    _c("a cast to int32 goes through int16", r"\(int32_t\)", "(int32_t)(int16_t)"),
    _c("a float constant loses its sign", r"-(\d\.\d+e[+-]\d+)", r"\1"),
    _c("floor truncates", r"\bfloorf?\(", "trunc("),
    # of integers it is a choice; abs of floats is refused by 0.1.8
    _c("abs of an integer is left out", r" : \((\(\w+\))?0 - ", r" : (\g<1>0 + "),
    _c("float64 is computed in float32", r"\(double\)", "(float)", why=_NO_ROUNDING),
    Fault(
        name="T.serial begins at 0",
        place="tilelang.language.loop:serial",
        old="return tb_tir.serial(start, stop,",
        new="return tb_tir.serial(0 if stop else start, stop,",
    ),
    Fault(
        name="T.unroll leaves out its last iteration",
        place="tilelang.language.loop:unroll",
        old="return tb_tir.unroll(start, stop,",
        new="return tb_tir.unroll(start, stop and stop - 1,",
    ),
    Fault(
        name="the front end swaps the operands of 1 - x",
        place=f"{_OPERATORS}.__rsub__",
        old="_generic.subtract(other, self)",
        new="_generic.subtract(self, other)",
    ),
    Fault(
        name="the front end truncates //",
        place=f"{_OPERATORS}.__floordiv__",
        old="_generic.floordiv(self, other)",
        new="_ffi_api._OpTruncDiv(self, other, None)",
    ),
    Fault(
        name="the front end truncates %",
        place=f"{_OPERATORS}.__mod__",
        old="_ffi_api._OpFloorMod(",
        new="_ffi_api._OpTruncMod(",
    ),
    Fault(
        name="the front end takes and for or",
        place="tilelang.language.eager.builder:Builder.boolop",
        old="return tir.And(left, right())",
        new="return tir.Or(left, right())",
    ),
    Fault(
        name="the front end negates no condition",
        place="tilelang.language.eager.builder:Builder.boolop",
        old="return tir.Not(left)",
        new="return left",
    ),
    _pass("a pass begins loops at 0", "For", "tir.For(n.loop_var, 0, n.extent, n.kind, n.body)"),
    _pass("a pass takes floor remainders for truncated ones", "FloorMod", "tir.Mod(n.a, n.b)"),
    _pass("a pass takes floor quotients for truncated ones", "FloorDiv", "tir.Div(n.a, n.b)"),
    _pass("a pass swaps the operands of differences", "Sub", "tir.Sub(n.b, n.a)"),
    _pass("a pass makes <= of <", "LT", "tir.LE(n.a, n.b)"),
    _pass("a pass drops the other branch", "IfThenElse", "tir.IfThenElse(n.condition, n.then_case, None)"),
    _pass("a pass merges nested remainders", "FloorMod", "tir.FloorMod(n.a.a, n.b) if isinstance(n.a, tir.FloorMod) else n"),
    _pass(
        "a pass merges casts of casts",
        "Cast",
        "tir.Cast(n.dtype, n.value.value) if isinstance(n.value, tir.Cast) else n",
    ),
    _pass(
        "a pass takes (c - x) % m for -x % m",
        "FloorMod",
        "tir.FloorMod(0 - n.a.b, n.b) if isinstance(n.a, tir.Sub) and isinstance(n.a.a, tir.IntImm) else n",
    ),
    Fault(
        name="our text drops brackets on the right",
        place=f"{_TEXT}._binary",
        old="self._below(node.b, level + 1, node.a)",
        new="self._below(node.b, level, node.a)",
    ),
    Fault(
        name="our text lets a loop begin at 0",
        place=f"{_TEXT}._loop",
        old='f"{begin}, {last}" if node.begin else last',
        new='f"{node.extent}"',
    ),
    Fault(
        name="our text swaps the sides of a choice",
        place=f"{_TEXT}._leveled",
        old="(node.condition, node.a, node.b)",
        new="(node.condition, node.b, node.a)",
    ),
    Fault(
        name="our text casts to the signed dtype",
        place=f"{_TEXT}._leveled",
        old=', "{node.dtype}")\', _ATOM\n            case grammar.Bits',
        new=', "{node.dtype.lstrip(chr(117))}")\', _ATOM\n            case grammar.Bits',
    ),
    Fault(
        name="our text leaves out the dtype of a constant",
        place=f"{_TEXT}._constant",
        old='return f"T.{node.dtype}({_literal(node)})", _ATOM',
        new="return _literal(node), _ATOM",
    ),
    # --- operations that are compiled for CUDA only, in the plain C that runs them on a CPU
    _plain(
        "a parallel loop leaves out its last iteration",
        "_statement",
        "_backwards(_name(node.var), node.extent,",
        "_backwards(_name(node.var), max(1, node.extent - 1),",
    ),
    _plain("a serial loop begins at 0", "_statement", "begin, node.extent", '"0", node.extent'),
    _plain(
        "a pipelined loop leaves out its last stage",
        "_statement",
        "begin, node.extent",
        "begin, node.extent - (node.stages > 2)",
    ),
    _plain(
        "an if without else runs its body",
        "_statement",
        "self.block(node.otherwise)",
        "self.block(node.otherwise or node.then)",
    ),
    _plain(
        "atomic addition is a store",
        "_statement",
        "_binary('+', dtype, at, self.expression(node.value))",
        "self.expression(node.value)",
    ),
    _plain(
        "T.fill leaves out the last element",
        "_statement",
        'return _backwards("o", size,',
        'return _backwards("o", size - 1,',
    ),
    _plain(
        "T.copy begins at 0 in its source",
        "_copy",
        "start = str(begin) if",
        'start = "0" if prefix == "s" else str(begin) if',
    ),
    _plain(
        "T.copy begins at 0 in its target",
        "_copy",
        "start = str(begin) if",
        'start = "0" if prefix == "t" else str(begin) if',
    ),
    _plain(
        "T.copy leaves out the last column",
        "_copy",
        'inner = _backwards(f"o{axis}", extent, inner)',
        'inner = _backwards(f"o{axis}", max(1, extent - (axis == len(node.extents) - 1)), inner)',
    ),
    _plain("T.copy reads 1 over the end", "_copy", '"0")', '"1")'),
    _plain(
        "T.copy converts through int8",
        "_copy",
        "_cast(source.dtype, target.dtype, element)",
        "_cast('int8', target.dtype, _cast(source.dtype, 'int8', element))",
    ),
    _plain("T.copy has no guard over the end", "_part", 'if one.scope != "global":', "if True:"),
    _plain("T.reduce keeps what was there", "_reduce", "begin if node.clear else", "begin if False else"),
    _plain("T.reduce clears what was there", "_reduce", "begin if node.clear else", "begin if True else"),
    _plain(
        "T.reduce leaves out the last element", "_reduce", '_backwards("k", count,', '_backwards("k", max(1, count - 1),'
    ),
    _plain("T.reduce_absmax takes no absolute values", "_reduce", 'node.op.startswith("abs")', 'node.op == "abssum"'),
    _plain("T.reduce_abssum takes no absolute values", "_reduce", 'node.op.startswith("abs")', 'node.op == "absmax"'),
    _plain("T.reduce_min gives the largest", "_reduce", 'node.op.removeprefix("abs")', '"max"'),
    _plain("T.reduce_max begins with 0", "_reduce", 'value.replace("+ k", "+ 0")', '"0"'),
    _plain(
        "T.reduce mixes the axes",
        "_reduce",
        "(o * {count} + k) * {after} + i]",
        "(o * {count} + k) * {after} + (i * {count}) % {after}]",
    ),
    _plain("T.cumsum ignores reverse", "_scan", "if node.reverse else", "if False else"),
    _plain(
        "T.cumsum is exclusive",
        "_scan",
        'line = _backwards("k"',
        'step.reverse()\n        line = _backwards("k"',
    ),
    _plain(
        "T.cumsum does not begin anew",
        "_scan",
        '[f"{TYPES[dtype]} all = 0;", *line]',
        '[f"static {TYPES[dtype]} all = 0;", *line]',
    ),
    _plain(
        "T.gemm does not transpose a", "_gemm", "if node.transpose_a else f'i * {k} + k'", "if False else f'i * {k} + k'"
    ),
    _plain(
        "T.gemm does not transpose b", "_gemm", "if node.transpose_b else f'k * {n} + j'", "if False else f'k * {n} + j'"
    ),
    _plain("T.gemm clears its accumulator", "_gemm", "'0' if node.clear else c", "'0'"),
    _plain("T.gemm does not clear its accumulator", "_gemm", "'0' if node.clear else c", "c"),
    _plain("T.gemm leaves out the last k", "_gemm", '_backwards("k", k,', '_backwards("k", k - 1,'),
    _plain(
        "T.gemm multiplies in the operands' dtype",
        "_gemm",
        "_binary('*', dtype, *operands)",
        "_binary('*', self._buffer(node.a).dtype, a, b)",
    ),
    _plain(
        "a choice is swapped",
        "expression",
        "? {self.expression(node.a)} : {self.expression(node.b)}",
        "? {self.expression(node.b)} : {self.expression(node.a)}",
    ),
    _plain(
        "T.reinterpret converts",
        "expression",
        'f"{node.dtype}_of_{self._dtype(node.a)}({self.expression(node.a)})"',
        'f"(({TYPES[node.dtype]}){self.expression(node.a)})"',
    ),
    Fault(
        name="two axes of the grid are swapped",
        place=f"{PLAIN}:source_of",
        old="_backwards(_name(block_name(axis)), extent, body)",
        new="_backwards(_name(block_name(len(program.grid) - 1 - axis)), extent, body)",
    ),
    Fault(
        name="a temporary buffer is shared by the blocks",
        place=f"{PLAIN}:_declared",
        old='[f"{TYPES[one.dtype]} {name}[{one.size}];", f"memset({name}, 0xA5, sizeof {name});"]',
        new='[f"static {TYPES[one.dtype]} {name}[{one.size}];"]',
        why="a program that reads what another block left is not drawn: it reads what it did not write",
    ),
    Fault(
        name="a bool is cast to its lowest bit",
        place=f"{PLAIN}:_cast",
        old='return f"({value} != 0)"',
        new='return f"((int64_t){value} & 1)"',
    ),
    Fault(
        name="constants above 2**31 are cut",
        place=f"{PLAIN}:_constant",
        old="{int(node.value)}{suffix}",
        new="{int(node.value) & 0xFFFFFFFF if node.value > 0 else int(node.value)}{suffix}",
    ),
    _prelude("// truncates", "(rest < 0) != (b < 0) ? quotient - 1 : quotient", "0 ? quotient - 1 : quotient"),
    _prelude("% truncates", "(rest < 0) != (b < 0) ? rest + b : rest", "0 ? rest + b : rest"),
    _prelude(
        "a negative divisor is taken for a positive one in %",
        "(rest < 0) != (b < 0) ? rest + b",
        "(rest < 0) != (b < 0) ? rest + (b < 0 ? -b : b)",
    ),
    _prelude(
        "a shift of a negative int16 to the right is logical",
        "? a >> by : 0; }\nstatic int16_t int16_of_float",
        "? (uint16_t)a >> by : 0; }\nstatic int16_t int16_of_float",
    ),
    _prelude("a float is rounded to an integer", "double whole = trunc(a);", "double whole = rint(a);"),
    _prelude(
        "min of uint32 is signed",
        "uint32_t min_uint32(uint32_t a, uint32_t b) { return a < b",
        "uint32_t min_uint32(uint32_t a, uint32_t b) { return (int32_t)a < (int32_t)b",
    ),
    _prelude(
        "max of uint64 is signed",
        "uint64_t max_uint64(uint64_t a, uint64_t b) { return a > b",
        "uint64_t max_uint64(uint64_t a, uint64_t b) { return (int64_t)a > (int64_t)b",
    ),
    _prelude("~ of uint8 is not cut", "uint8_t inv_uint8(uint8_t a)", "int inv_uint8(int a)"),
    _prelude(
        "an addition of uint16 is not cut",
        "static uint16_t add_uint16(uint16_t a, uint16_t b) { uint16_t r;",
        "static int add_uint16(uint16_t a, uint16_t b) { int r;",
    ),
    _prelude(
        "a product of int64 is of 32 bits",
        '!__builtin_mul_overflow(a, b, &r) || !1, "* overflows"); return r; }\nstatic int64_t neg_int64',
        '!__builtin_mul_overflow(a, b, &r) || !1, "* overflows"); return (int32_t)r; }\nstatic int64_t neg_int64',
    ),
    _prelude(
        "float16 has 5 bits",
        "_Float16 add_float16(_Float16 a, _Float16 b) { return a + b",
        "_Float16 add_float16(_Float16 a, _Float16 b) { return rint((a + b) / 16) * 16",
    ),
    _prelude("floor of a float rounds", "return floor(a)", "return rint(a)"),
    _prelude(
        "abs of a float is left out",
        "return a < 0 ? -a : a; }\nstatic float min_float32",
        "return a; }\nstatic float min_float32",
    ),
)
