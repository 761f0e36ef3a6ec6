"""How the programs of a group hand each other their shares of a sum, without fences and counters.

The workspace of the words is a ring of RING tiles a group. Each word tells by itself whether it has come: its last bit is
1, 0, 1, ... in the laps of that ring, and 0 before the first. So a word needs no fence and no counter (a fence took 2000
clocks a tile); a sum loses at most an ulp of each share. RING is so large that no word is overwritten
before it has been read; SLOTS is the tiles that a program holds at once:

forward     2 * SLOTS or more, or all tiles. A program sends its share of tile j only after tile j - SLOTS left its ring, so
            after all have sent that one, so after all have read tile j - 2 * SLOTS
backward    SLOTS. A program sends its share of tile j only after tile j - SLOTS left its ring, so after all rows of that one
            have come, for which all its shares were read. A row of tile j is sent after all shares of it have come, so after
            tile j - SLOTS left every ring, and its rows were read before
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def marked(values, mark):
    """The bits of float32 values with a mark for the last."""
    return (values.to(gl.int32, bitcast=True) & -2) | mark


@gluon.jit
def send(pointers, values, lap):
    """Stores float32 values with the mark of the lap in their last bit. NaN stays NaN and infinity infinity once cleared."""
    gl.inline_asm_elementwise(
        "{ st.relaxed.gpu.global.b32 [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [pointers, marked(values, (lap & 1) ^ 1)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.constexpr_function
def request_asm(words, stride, width):
    """Loads without waiting, `width` words at once: 1 or 4."""
    loads = []
    for w in range(0, words, width):
        into = ", ".join(f"${w + k}" for k in range(width))
        kind, into = ("v4.b32", f"{{{into}}}") if width == 4 else ("b32", into)
        loads.append(f"ld.relaxed.gpu.global.{kind} {into}, [${words}+{w // width * stride}];")
    return "\n".join(loads)


@gluon.constexpr_function
def complete_asm(shares, stride):
    """Loads what had not come yet until all has; then the sum, last bits cleared, in the order of the shares."""
    each = range(shares)
    return "\n".join(
        [f"{{ .reg .b32 r<{shares}>; .reg .b32 t, bad; .reg .f32 f, sum; .reg .pred p;"]
        + [f"mov.b32 r{s}, ${s + 3};" for s in each]
        + ["again:", "mov.b32 bad, 0;"]
        + [f"xor.b32 t, r{s}, $2; or.b32 bad, bad, t;" for s in each]
        + ["and.b32 bad, bad, 1; setp.eq.b32 p, bad, 0; @p bra done;"]
        + [
            f"xor.b32 t, r{s}, $2; and.b32 t, t, 1; setp.ne.b32 p, t, 0;"
            f" @p ld.relaxed.gpu.global.b32 r{s}, [$1+{s * stride}];"
            for s in each
        ]
        + ["bra again;", "done:", "mov.f32 sum, 0f00000000;"]
        + [f"and.b32 r{s}, r{s}, -2; mov.b32 f, r{s}; add.f32 sum, sum, f;" for s in each]
        + ["mov.f32 $0, sum; }"]
    )


@gluon.constexpr_function
def repeated(item, count):
    return (item,) * count


@gluon.constexpr_function
def request_constraints(words):
    return "=r," * words + "l"


@gluon.constexpr_function
def complete_constraints(shares):
    return "=f,l,r" + ",r" * shares


@gluon.jit
def request(pointers, WORDS: gl.constexpr, STRIDE: gl.constexpr, WIDTH: gl.constexpr = 1):
    """WORDS words as they are now: WIDTH at the pointers, and again STRIDE bytes further on."""
    return gl.inline_asm_elementwise(
        request_asm(WORDS, STRIDE, WIDTH),
        request_constraints(WORDS),
        [pointers],
        dtype=repeated(gl.int32, WORDS),
        is_pure=False,
        pack=1,
    )


@gluon.jit
def complete(words, pointers, lap, SHARES: gl.constexpr, STRIDE: gl.constexpr):
    """The sum of the shares' values, once all of this lap are there."""
    return gl.inline_asm_elementwise(
        complete_asm(SHARES, STRIDE),
        complete_constraints(SHARES),
        (pointers, (lap & 1) ^ 1) + words,
        dtype=gl.float32,
        is_pure=False,
        pack=1,
    )


@gluon.constexpr_function
def complete_row_asm(words, stride):
    """Loads fours of which a word had not come yet until all have; then the words, last bits cleared."""
    pointer, mark, first = words, words + 1, words + 2
    vectors = range(0, words, 4)
    lines = [f"{{ .reg .b32 r<{words}>; .reg .b32 t, bad, b<{words}>; .reg .pred p;"]
    lines += [f"mov.b32 r{w}, ${first + w};" for w in range(words)]
    lines += ["again:", "mov.b32 bad, 0;"]
    for v in vectors:
        lines.append(f"xor.b32 b{v}, r{v}, ${mark};")
        lines += [f"xor.b32 t, r{v + k}, ${mark}; or.b32 b{v}, b{v}, t;" for k in (1, 2, 3)]
        lines.append(f"or.b32 bad, bad, b{v};")
    lines.append("and.b32 bad, bad, 1; setp.eq.b32 p, bad, 0; @p bra done;")
    for v in vectors:
        lines.append(f"and.b32 t, b{v}, 1; setp.ne.b32 p, t, 0;")
        lines.append(
            f"@p ld.relaxed.gpu.global.v4.b32 {{r{v}, r{v + 1}, r{v + 2}, r{v + 3}}}, [${pointer}+{v // 4 * stride}];"
        )
    lines += ["bra again;", "done:"]
    lines += [f"and.b32 ${w}, r{w}, -2;" for w in range(words)]
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def complete_row_constraints(words):
    return ",".join(["=r"] * words + ["l", "r"] + ["r"] * words)


@gluon.jit
def complete_row(words, pointers, lap, WORDS: gl.constexpr, STRIDE: gl.constexpr):
    """The words without their marks, once all of this lap are there."""
    return gl.inline_asm_elementwise(
        complete_row_asm(WORDS, STRIDE),
        complete_row_constraints(WORDS),
        (pointers, (lap & 1) ^ 1) + words,
        dtype=repeated(gl.int32, WORDS),
        is_pure=False,
        pack=1,
    )
