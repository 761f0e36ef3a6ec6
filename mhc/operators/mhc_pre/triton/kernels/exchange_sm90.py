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
def load_asm(registers, pointer, offset):
    """A load of one word or of four."""
    kind, into = ("v4.b32", f"{{{', '.join(registers)}}}") if len(registers) == 4 else ("b32", *registers)
    return f"ld.relaxed.gpu.global.{kind} {into}, [{pointer}+{offset}];"


@gluon.constexpr_function
def request_asm(words, stride, width):
    """Loads without waiting, `width` words at once: 1 or 4."""
    return "\n".join(
        load_asm([f"${w + k}" for k in range(width)], f"${words}", w // width * stride) for w in range(0, words, width)
    )


@gluon.constexpr_function
def wait_asm(words, stride, width, outputs):
    """Registers r of requested words, once all have come: loads again what had not. Inputs: pointer, mark, words."""
    pointer, mark, first = f"${outputs}", f"${outputs + 1}", outputs + 2
    lines = [f".reg .b32 r<{words}>; .reg .b32 t, u, bad; .reg .pred p;"]
    lines += [f"mov.b32 r{w}, ${first + w};" for w in range(words)]
    lines += ["again:", "mov.b32 bad, 0;"]
    lines += [f"xor.b32 t, r{w}, {mark}; or.b32 bad, bad, t;" for w in range(words)]
    lines.append("and.b32 bad, bad, 1; setp.eq.b32 p, bad, 0; @p bra done;")
    for w in range(0, words, width):
        lines.append(f"xor.b32 t, r{w}, {mark};")
        lines += [f"xor.b32 u, r{w + k}, {mark}; or.b32 t, t, u;" for k in range(1, width)]
        load = load_asm([f"r{w + k}" for k in range(width)], pointer, w // width * stride)
        lines.append(f"and.b32 t, t, 1; setp.ne.b32 p, t, 0; @p {load}")
    return "\n".join([*lines, "bra again;", "done:"])


@gluon.constexpr_function
def complete_asm(shares, stride):
    """The sum of requested shares, last bits cleared, in their order."""
    add = [f"and.b32 r{s}, r{s}, -2; mov.b32 f, r{s}; add.f32 sum, sum, f;" for s in range(shares)]
    lines = ["{ .reg .f32 f, sum;", wait_asm(shares, stride, 1, 1), "mov.f32 sum, 0f00000000;", *add, "mov.f32 $0, sum; }"]
    return "\n".join(lines)


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
    """Requested fours of words, last bits cleared."""
    clear = [f"and.b32 ${w}, r{w}, -2;" for w in range(words)]
    return "\n".join(["{", wait_asm(words, stride, 4, words), *clear, "}"])


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
