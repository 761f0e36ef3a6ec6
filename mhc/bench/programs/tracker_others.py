"""Bugs of TileLang's tracker, from its series `[BUG][Fuzzer]`, that the grammar of programs cannot express, and why not."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Other:
    """A bug of integers, indices, dtypes, folding or the front end.

    Attributes:
        number: of its issue. what: is wrong. why: the grammar cannot express it, or nothing here can show it.
        old, new: whether TileLang 0.1.8 and 0.1.15 have it, as tried by hand; empty where that takes a GPU.
    """

    number: int
    what: str
    why: str
    old: str = ""
    new: str = ""


_QUANTISED = "a function of TileLang's library, not of its compiler"
_SMALL = "no such dtype in the grammar"
_FLOAT = "floats are drawn such that nothing is rounded"
_SIZE = "a buffer of 2**31 elements; extents end at 4,096"
_GPU = "the wrong value shows on a GPU only"
_FRONT = "no such statement in the grammar"
_CALL = "no such operation in the grammar"
_INVALID = "the program is not valid, and TileLang should say so; only valid programs are drawn"

OTHERS: tuple[Other, ...] = (
    Other(number=2427, what="`T.fill` of int8 below 0 sets three of four elements to -1", why=_GPU, old="yes", new="no"),
    Other(number=2479, what="`decode_i2s_to_i4s` loses signs", why=_QUANTISED),
    Other(number=2480, what="`T.Broadcast` of 32 integers of 8 bits", why=_CALL, old="yes", new="no"),
    Other(number=2482, what="`_tir_u32_to_int_to_float` loses signs", why=_QUANTISED),
    Other(number=2483, what="integers cast to bfloat16 are truncated", why=_SMALL),
    Other(number=2489, what="a vector of 256 bits of a negative int32", why="needs sm_100"),
    Other(number=2554, what="a vector's index that begins at a variable aborts", why="no `T.Ramp`", old="yes", new="no"),
    Other(number=2560, what="a constant index above 2**31 wraps around", why=_SIZE, old="yes", new="yes"),
    Other(number=2561, what="`T.atomic_addx4` of integers adds floats", why=_CALL),
    Other(number=2568, what="`T.reduce_max` of bool aborts", why="reductions of bool are not drawn", old="yes", new="yes"),
    Other(number=2572, what="`T.atomic_add` of 16 bits does not compile", why="atomic additions of int32 and float32 only"),
    Other(number=2573, what="`T.atomic_max` of int64 does not compile", why=_CALL),
    Other(number=2575, what="`T.alloc_var` of float64 with a large initial value", why=_FLOAT, old="yes", new="no"),
    Other(number=2594, what="a value bound before an atomic operation is read after it", why="no bound values"),
    Other(number=2600, what="`T.dp4a` of other dtypes", why=_INVALID),
    Other(
        number=2624,
        what="`T.reduce_absmax` of uint32 wraps around",
        why="the CUDA of both releases is right",
        old="no",
        new="no",
    ),
    Other(number=2638, what="`x - x` of floats becomes 0, of NaN too", why=_FLOAT),
    Other(number=2754, what="`T.warp_reduce_*` of int64 drops 32 bits", why=_CALL),
    Other(number=2853, what="`T.Select` in a vectorised loop does not compile", why="only `T.if_then_else`"),
    Other(number=2882, what="`T.max` of constants and NaN", why=_FLOAT),
    Other(number=2945, what="`T.ceil` of a constant folds before it is rounded", why=_FLOAT, old="yes", new="yes"),
    Other(number=2946, what="the else of a loop is dropped", why=_FRONT, old="yes", new="no"),
    Other(number=2948, what="a fragment's element at another index than the loop's", why=_GPU),
    Other(number=2963, what="`T.copy` of 4 bits", why=_SMALL),
    Other(number=2973, what="CuTeDSL: division rounds down", why="another target"),
    Other(number=2974, what="CuTeDSL: unsigned integers are signed", why="another target"),
    Other(number=2975, what="a subnormal constant becomes infinite", why=_FLOAT, old="no on C", new="no on C"),
    Other(number=2977, what="a name set again to a constant in an if", why=_INVALID, old="yes", new="yes"),
    Other(number=2979, what="`T.fill` of a part over the end", why=_INVALID, old="yes", new="yes"),
    Other(number=2982, what="a float constant at the end of its range aborts", why=_FLOAT, old="yes", new="yes"),
    Other(number=2984, what="`T.popcount` of most integers", why=_CALL, old="yes", new="yes"),
    Other(number=2994, what="two integers of 4 bits have no CUDA type", why=_SMALL, old="yes", new="no"),
    Other(number=2995, what="the same where they are read", why=_SMALL, old="yes", new="no"),
    Other(number=2996, what="integers of 2 bits have no CUDA type", why=_SMALL, old="yes", new="yes"),
    Other(number=2997, what="`T.fill` of integers of 4 bits aborts", why=_SMALL, old="yes", new="no"),
    Other(number=2999, what="a float32 constant above float16's largest aborts", why=_FLOAT, old="yes", new="yes"),
    Other(number=3003, what="`T.q_multiply_shift` by a power of two aborts", why=_CALL, old="yes", new="yes"),
    Other(number=3006, what="`T.q_multiply_shift_per_axis` refuses integers as flags", why=_CALL, old="yes", new="yes"),
    Other(number=3008, what="`//` and `%` of floats abort", why="division of floats is `/` only", old="yes", new="yes"),
    Other(number=3011, what="`T.cumsum` from shared to fragment aborts", why="both lie in one scope", old="yes", new="yes"),
    Other(number=3014, what="`T.q_multiply_shift` by a variable aborts", why=_CALL, old="yes", new="yes"),
    Other(number=3015, what="a tensor without an axis aborts", why="buffers have an axis", old="yes", new="no"),
    Other(number=3026, what="`T.loop_break` in an unrolled loop", why=_FRONT, old="yes", new="refused"),
    Other(
        number=3027, what="vectorisation overflows int32 where an index has a large stride", why=_SIZE, old="yes", new="yes"
    ),
)
"""By the number of the issue."""

ELSEWHERE: dict[str, tuple[int, ...]] = {
    "layouts of fragments and of shared memory": (
        *(2309, 2394, 2396, 2398, 2399, 2530, 2543, 2547, 2581, 2609, 2643, 2714, 2942, 2957, 3005, 3012, 3040),
    ),
    "reductions and scans": (2408, 2523, 2524, 2542, 2576, 2599, 2623, 2627, 2697, 2998, 3022),
    "products": (2381, 2537, 2593, 2603, 2617, 3004, 3010, 3032, 3035),
    "bulk copies, warp specialisation and pipelines": (
        2527,
        2529,
        2548,
        2555,
        2566,
        2567,
        2583,
        2595,
        2601,
        2630,
        2668,
        2978,
    ),
    "barriers": (2556, 2612, 2613, 2698),
    "floats of 4 and 8 bits and of 16": (2382, 2383, 2385, 2478, 2569, 2571, 2610, 2670, 2944, 2985, 2990, 3024),
    "other functions and messages": (2393, 2433, 2550, 2570, 2607, 2608, 2614, 2625, 2631, 2633, 3017, 3019, 3025, 3034),
}
"""The rest of the series that was found, by what it is about: numbers of issues."""
