"""How the programs of the resident forward hand each other their shares of a sum, without fences and counters.

The workspace of the shares is a ring of RING tiles a group, 2 * SLOTS or more, or all of them. Each of its words tells
by itself whether it has come: its last bit is 1, 0, 1, ... in the laps of that ring, and 0 before the first. So a share
needs no fence and no counter (a fence took 2000 clocks a tile); a sum loses at most an ulp of each share. Nobody
overwrites what has not been read: a program sends tile j only after tile j - SLOTS left its ring, so after all have
sent that one, so after all have read tile j - 2 * SLOTS.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def send(pointers, values, lap):
    """Stores float32 values with the mark of the lap in their last bit. NaN stays NaN and infinity infinity once cleared."""
    bits = values.to(gl.int32, bitcast=True)
    gl.inline_asm_elementwise(
        "{ st.relaxed.gpu.global.b32 [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [pointers, (bits & -2) | ((lap & 1) ^ 1)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.constexpr_function
def request_asm(shares, stride):
    """Loads without waiting."""
    return "\n".join(f"ld.relaxed.gpu.global.b32 ${s}, [${shares}+{s * stride}];" for s in range(shares))


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
def request_constraints(shares):
    return "=r," * shares + "l"


@gluon.constexpr_function
def complete_constraints(shares):
    return "=f,l,r" + ",r" * shares


@gluon.jit
def request(pointers, SHARES: gl.constexpr, STRIDE: gl.constexpr):
    """The words of the shares at the pointers, STRIDE bytes apart, as they are now."""
    return gl.inline_asm_elementwise(
        request_asm(SHARES, STRIDE),
        request_constraints(SHARES),
        [pointers],
        dtype=repeated(gl.int32, SHARES),
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
