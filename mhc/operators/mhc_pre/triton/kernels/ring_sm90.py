"""A ring of places in shared memory, which a loading warp fills and warp groups empty."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def barriers(STAGES: gl.constexpr):
    """Barriers of each place: it is full, which a copy tells, and it is empty, which two warp groups tell."""
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    return full, empty


@gluon.jit
def advance(slot, phase, STAGES: gl.constexpr):
    """The next place, and the phase in which its barriers are waited for."""
    slot += 1
    if slot == STAGES:
        slot = 0
        phase ^= 1
    return slot, phase
