"""How the TileLang kernels for float32 x cut a shape, forward and backward. Pure.

Their warps take eight rows each of phi, or of dh_mix transposed (`kernels.fwd_fp32`).
"""

WARP_ROWS = 8
MOST_ROWS = 64  # of a tile


def rows_of_tile(M: int) -> int:
    """Rows of a tile, a multiple of eight and at most 64: the most that leave the fewest rows of all tiles empty."""
    groups, most = -(-M // WARP_ROWS), MOST_ROWS // WARP_ROWS
    fewest = -(-groups // most)
    tiles = min((fewest, fewest + 1), key=lambda tiles: tiles * -(-groups // tiles))
    return WARP_ROWS * -(-groups // tiles)


def depth_of_dx(M: int) -> tuple[int, int]:
    """Steps of dx, and rows of phi in each: a multiple of 4, at most 32, that leaves few rows empty."""
    fewest = -(-M // 32)
    cuts = [(steps, -(-M // (4 * steps)) * 4) for steps in (fewest, fewest + 1)]
    return min(cuts, key=lambda cut: (cut[0] * cut[1], cut[0]))


def at_once(threads: int, shared: int, registers: int, room: int) -> int:
    """Programs that are together on a multiprocessor of 65536 registers and `room` bytes of shared memory."""
    return max(1, min(65536 // (threads * registers), room // shared))


def shares(tiles: int, steps: int, together: int, cores: int, *, most: int) -> int:
    """Programs that share the steps of each tile: one costs its steps and a start of three, and it takes `together` of them
    to keep a multiprocessor busy.
    """

    def cost(splits: int) -> float:
        programs = -(-tiles * splits // cores)
        return max(programs, together) * (-(-steps // splits) + 3) + splits / most

    return min(range(1, min(most, steps) + 1), key=cost)
