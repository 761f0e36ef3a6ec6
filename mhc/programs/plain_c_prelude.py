"""The C functions that a program in plain C calls: the grammar's operations in each dtype, with checks of their own."""

import re

from mhc.programs import grammar
from mhc.programs.grammar import bits_of, range_of

TYPES = {
    **{name: f"{name}_t" for name in grammar.INTEGERS},
    **{"float16": "_Float16", "float32": "float", "float64": "double", "bool": "bool"},
}
"""C's names of dtypes."""
_HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
const char *program_error;
static void check(bool right, const char *message) { if (!right && !program_error) program_error = message; }
static int64_t at(int64_t index, int64_t size) {
    bool inside = 0 <= index && index < size;
    check(inside, "an index out of bounds");
    return inside ? index : 0;
}
static bool inv_bool(bool a) { return !a; }
static bool over(int64_t index, int64_t size) { check(index >= 0, "an index below 0"); return index >= size; }
"""
_INTEGER = """\
static T add_N(T a, T b) { T r; check(!__builtin_add_overflow(a, b, &r) || !SIGNED, "+ overflows"); return r; }
static T sub_N(T a, T b) { T r; check(!__builtin_sub_overflow(a, b, &r) || !SIGNED, "- overflows"); return r; }
static T mul_N(T a, T b) { T r; check(!__builtin_mul_overflow(a, b, &r) || !SIGNED, "* overflows"); return r; }
static T neg_N(T a) { return sub_N(0, a); }
static T pos_N(T a) { return a; }
static T inv_N(T a) { return ~a; }
static T abs_N(T a) { return a < 0 ? neg_N(a) : a; }
static T min_N(T a, T b) { return a < b ? a : b; }
static T max_N(T a, T b) { return a > b ? a : b; }
static bool divides_N(T a, T b) {
    check(b != 0, "a division by 0");
    check(!(SIGNED && b == (T)-1 && a == LEAST), "a division overflows");
    return b != 0 && !(SIGNED && b == (T)-1);
}
static T truncdiv_N(T a, T b) { return divides_N(a, b) ? a / b : (T)(0 - (uint64_t)a); }
static T truncmod_N(T a, T b) { return divides_N(a, b) ? a % b : 0; }
static T floordiv_N(T a, T b) {
    T quotient = truncdiv_N(a, b), rest = truncmod_N(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}
static T floormod_N(T a, T b) {
    T rest = truncmod_N(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static T ceildiv_N(T a, T b) {
    T sum, quotient = truncdiv_N(a, b), rest = truncmod_N(a, b);
    check(!__builtin_add_overflow(a, b > 0 ? b - 1 : b + 1, &sum), "ceildiv overflows");
    return rest != 0 && (rest < 0) == (b < 0) ? quotient + 1 : quotient;
}
static bool shifts_N(T by) { bool fits = 0 <= by && by < BITS; check(fits, "a shift by too much"); return fits; }
static T shl_N(T a, T by) {
    if (!shifts_N(by)) return 0;
    T r = (T)((uint64_t)a << by);
    check(!SIGNED || (a >= 0 && r >= 0 && r >> by == a), "<< overflows");
    return r;
}
static T fold_shl_N(T a, T by) {
    if (!shifts_N(by)) return 0;
    check(a >= 0, "<< of a negative constant");
    return (T)((uint64_t)a << by);
}
static T shr_N(T a, T by) { return shifts_N(by) ? a >> by : 0; }
static T N_of_float(double a) {
    double whole = trunc(a);
    bool fits = whole >= LEAST && whole < BEYOND;
    check(fits, "a float that is no N");
    return fits ? (T)whole : 0;
}
"""
_FLOAT = """\
static T add_N(T a, T b) { return a + b; }
static T sub_N(T a, T b) { return a - b; }
static T mul_N(T a, T b) { return a * b; }
static T neg_N(T a) { return -a; }
static T pos_N(T a) { return a; }
static T abs_N(T a) { return a < 0 ? -a : a; }
static T min_N(T a, T b) { return a < b ? a : b; }
static T max_N(T a, T b) { return a > b ? a : b; }
static T floor_N(T a) { return floor(a); }
static T ceil_N(T a) { return ceil(a); }
static T trunc_N(T a) { return trunc(a); }
static T sqrt_N(T a) {
    double root = sqrt(a);
    check(root * root == (double)a, "a square root that is rounded");
    return root;
}
"""
_REINTERPRET = "static T N_of_M(S a) { T r; memcpy(&r, &a, sizeof r); return r; }\n"


def _prelude() -> str:
    parts = [_HEAD]
    for name in grammar.INTEGERS:
        least = "INT64_MIN" if name == "int64" else str(range_of(name)[0])
        values = {"SIGNED": str(int(name in grammar.SIGNED)), "LEAST": least, "BITS": str(bits_of(name))}
        parts.append(_put(_INTEGER, BEYOND=f"{float(range_of(name)[1] + 1)!r}", T=TYPES[name], N=name, **values))
    parts += [_put(_FLOAT, T=TYPES[name], N=name) for name in grammar.FLOATS]
    for after in (*grammar.INTEGERS, *grammar.FLOATS):
        for before in (*grammar.INTEGERS, *grammar.FLOATS):
            if bits_of(before) == bits_of(after):
                parts.append(_put(_REINTERPRET, T=TYPES[after], S=TYPES[before], N=after, M=before))
    return "".join(parts)


def _put(text: str, **values: str) -> str:
    """Return a text with values in the place of words in capitals."""
    return re.sub(r"(?<![A-Za-z0-9])[A-Z]+(?![A-Za-z0-9])", lambda match: values.get(match[0], match[0]), text)


PRELUDE = _prelude()
"""Stands before all programs of a file."""
