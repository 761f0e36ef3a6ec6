"""The simplifier alone: a comparison with the least value of a dtype."""

import tilelang  # noqa: F401 - for its TVM
from tvm import arith, tirx

for dtype, least in (("int32", -(2**31)), ("int64", -(2**63))):
    x = tirx.Var("x", dtype)
    print(dtype, "x >= least is", arith.Analyzer().rewrite_simplify(x >= tirx.const(least, dtype)))
