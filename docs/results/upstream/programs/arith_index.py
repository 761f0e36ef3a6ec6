"""The simplifier alone: both indices, at two check levels."""

import tilelang  # noqa: F401 - for its TVM
from tvm import arith, ir, tirx

i = tirx.Var("i", "int32")
for index in ((1 - i) % 4, (i + 1) % -3):
    for level in (arith.iter_affine_map.IterMapLevel.Surjective, arith.iter_affine_map.IterMapLevel.Bijective):
        print(index, level.name, arith.iter_map_simplify([index], {i: ir.Range(0, 5)}, True, level, False))
