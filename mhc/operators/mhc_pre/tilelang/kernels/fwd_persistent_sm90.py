"""mHC Forward Pre with x read once, for Hopper: groups of programs hold a tile of tokens in shared memory between its uses.

    h_mix = (x * gamma) @ phi.T,  s = sum(x * x)               over all K = n * D columns of a token
    h_in  = sum_i h_pre[i] * x[i]                              h_pre is a function of the token's h_mix and s

Program g of a group of G owns the columns g * W .. (g + 1) * W of every stream, W = D / G: C = n * W columns. Its share of
phi * gamma stays in registers, as two bfloat16 terms in the order of the tensor cores' operand, a ring of tiles of x
[T tokens, C] fills its shared memory. Of its sixteen warps

    eight load tiles (cp.async), project them, and `lag` tiles later write h_in from the tile that is still there;
    four add the eight warps' parts, send the program's share to the group, take the G shares, and make the gates of h_pre;
    four take the shares of every G-th token, all of them, and write the small outputs.

A share needs no fence and no counter: the last bit of each 32-bit word is a mark, 1, 0, 1, ... in the laps of the ring of
shares, 0 before the first. A reader loads words again until all carry the mark of its lap; a sum loses at most an ulp of
each share. No program overwrites what is still to be read: it sends tile j after its small outputs of tile j - 2 and its
gates of tile j - 2, so after all had sent that one, so after all were done with tile j - 4; RING is far more. The programs
wait for one another, so the launch is cooperative, and the grid's barrier comes once, after each has set its words to zero.

Two terms of phi * gamma are off by 2**-17 of it, inside the bound 6 sqrt(K) 2**-24 from K = TWO_TERMS_FROM on. The second
counts only where it is finite: the first decides the class of a result.

Tensor cores: a warp takes C / 8 columns of all T = 16 tokens. Lane 4 g + t loads columns 8 t .. 8 t + 7 of a block of
32, of rows g and g + 8; as the columns of a sum may come in any order, these words are the operands of two products as
they lie, and the same eight columns of phi are the other operands. sum(x * x) is the diagonal of x @ x.T.

Places of a share: [0, n) the rows of h_pre, 7 the squares, from 8 on the rows n .. M = n * n + 2 * n; 32 in all, so n <= 4.
Written a thread at a time (`ptx_mma`, local arrays): a fragment of TileLang has no part that stays in registers while the
tiles go by, and its products no operands that came without a layout of their own.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bf16_split import ORDER_1, first_term, nearest, remainder, with_lower
from mhc.operators.mhc_pre.tilelang.kernels.macros import gate_argument, inverse_rms, sigmoid
from mhc.operators.mhc_pre.tilelang.kernels.signature import forward_parameters, function

TOKENS = 16
PLACES = 32
RING = 16
GATES = 4  # tiles whose gates wait for their h_in
WARPS = 8  # that load, project and combine; then four that exchange, and four that write the small outputs
REGISTERS = 152, 104  # a thread of the former, and of the latter: 256 * (152 + 104) is all there are
ROW = 40  # words between tokens in the warps' shares: conflicts of four lanes instead of eight


def resident(*, n: int, D: int, width: int, has_gamma: bool, slots: int, lag: int):
    """The forward as a function of `forward_parameters`, with x [N, K / 2] and h_in [N, D / 8, 4] as words of two
    bfloat16, and scratch shares [groups, RING, G, 16, 32]. N and groups are dynamic.

    All groups * G programs must fit on the device at once.
    """
    M, K, W = n * n + 2 * n, n * D, width
    G, C = D // width, n * width
    rows = -(-M // 8)  # blocks of eight rows of phi
    mine = C // WARPS  # columns of a warp
    blocks = mine // 32
    assert D % W == 0 and mine % 32 == 0 and W % 32 == 0 and n <= 4 and G <= 16 and 2 <= lag < slots - 1
    pitch = C // 2 + 16  # words of a token in shared memory: 64 bytes mod 128, so that two rows of 64 bytes meet all banks
    ahead = slots - lag - 1
    threads = 32 * WARPS
    pieces = TOKENS * C // 8 // threads  # of 16 bytes, that a thread loads of a tile
    outs = TOKENS * W // 8 // threads  # of eight columns of h_in, that a thread writes of a tile
    rounds = -(-(-(-TOKENS // G)) // 4)  # of tokens for each warp that writes small outputs
    f32, u32, i32 = "float32", "uint32", "int32"
    N = T.dynamic("N", "int64")
    groups = T.dynamic("groups")

    def low(word):
        """The first bfloat16 of a word."""
        return T.reinterpret(word << T.uint32(16), f32)

    def high(word):
        """The second."""
        return T.reinterpret(word & T.uint32(0xFFFF0000), f32)

    def bits(term):
        return T.cast(T.reinterpret(term, "uint16"), u32)

    def product(acc, a, a_at, b, b_at, at):
        T.evaluate(
            T.ptx_mma(
                f32, "m16n8k16", "row", "col", "bf16", "bf16", "fp32",
                a.data, a_at, b.data, b_at, acc.data, at, T.bool(False),
            )
        )  # fmt: skip

    @T.macro
    def load_tile(ring, x, slot, tile, g, tid, N):
        """A tile's columns on their way into a slot of the ring; zeros for tokens past the last."""
        for p in T.unroll(pieces):
            row = (p * threads + tid) // (C // 8)
            c = (p * threads + tid) % (C // 8) * 8
            token = T.cast(tile, "int64") * TOKENS + row
            T.ptx_cp_async(
                T.access_ptr(ring[slot, row, c // 2], "w", 4),
                T.access_ptr(x[token, (c // W * D + g * W + c % W) // 2], "r", 4),
                16,
                token < N,
            )

    @T.macro
    def request(words, shares, q, tile, token, place):
        """The words of a place as they are now."""
        for s in T.unroll(G):
            words[s] = T.atomic_load(shares[q, tile % RING, s, token, place], "relaxed")

    @T.macro
    def complete(words, shares, q, tile, token, place, bad, total):
        """total[0] = the sum of the shares, once all of this lap are there."""
        mark = 1 - (tile // RING) % 2
        bad[0] = 0
        for s in T.unroll(G):
            bad[0] = bad[0] | (words[s] ^ mark)
        while (bad[0] & 1) != 0:
            bad[0] = 0
            for s in T.unroll(G):
                if ((words[s] ^ mark) & 1) != 0:
                    words[s] = T.atomic_load(shares[q, tile % RING, s, token, place], "relaxed")
                bad[0] = bad[0] | (words[s] ^ mark)
        total[0] = T.float32(0)
        for s in T.unroll(G):
            total[0] = total[0] + T.reinterpret(words[s] & -2, f32)

    @T.macro
    def main(x, phi, alpha, bias, gamma, h_in, h_post, h_res, inv_rms, h_mix, h_pre, shares, norm_eps, hc_eps):
        with T.Kernel(groups * G, threads=threads + 256) as block:
            tid = T.get_thread_binding()
            warp = tid // 32
            lane = tid % 32
            q = block // G
            g = block % G
            steps = T.alloc_var(i32)
            steps = (T.cast((N + TOKENS - 1) // TOKENS, i32) - q + groups - 1) // groups
            ring = T.alloc_shared((slots, TOKENS, pitch), u32)
            parts = T.alloc_shared((2, WARPS, TOKENS, ROW), f32)
            gates = T.alloc_shared((GATES, TOKENS, 8), f32)
            summed = T.alloc_barrier([WARPS, WARPS])  # a tile's parts are there
            sent = T.alloc_barrier([4, 4])  # and have been read
            gated = T.alloc_barrier([4] * GATES)  # a tile's gates are there
            used_up = T.alloc_barrier([WARPS] * GATES)  # and have been read
            written = T.alloc_barrier([4, 4])  # a tile's small outputs have been written
            # the first tiles are on their way
            if warp < WARPS:
                for j in T.serial(ahead):
                    if j < steps:
                        load_tile(ring, x, j, q + j * groups, g, tid, N)
                    T.ptx_commit_group()
            # the words of its own shares start from 0
            for r in T.serial(RING * TOKENS * PLACES // 4 // (threads + 256)):
                at = r * (threads + 256) + tid
                for e in T.vectorized(4):
                    shares[q, at // 128, g, at % 128 // 8, at % 8 * 4 + e] = 0
            T.sync_grid()

            if warp < WARPS:
                T.set_max_nreg(REGISTERS[0], 1)
                quad = lane // 4
                t = lane % 4
                w = T.alloc_local((blocks * rows * 2 * 4,), u32)
                acc = T.alloc_local((rows * 2 * 4,), f32)
                squares = T.alloc_local((8,), f32)
                top = T.alloc_local((4,), u32)
                bottom = T.alloc_local((4,), u32)
                a = T.alloc_local((8,), u32)
                weights = T.alloc_local((8,), f32)
                norms = T.alloc_local((8,), f32)
                out = T.alloc_local((4,), u32)
                mixed = T.alloc_local((8,), f32)
                held = T.alloc_local((4,), u32)
                # the warp's columns of phi * gamma
                for b in T.unroll(blocks):
                    local = warp * mine + b * 32 + t * 8
                    k = local // W * D + g * W + local % W
                    if has_gamma:
                        for e in T.vectorized(8):
                            norms[e] = gamma[k + e]
                    for p in T.unroll(rows):
                        if p * 8 + quad < M:
                            for e in T.vectorized(8):
                                weights[e] = phi[p * 8 + quad, k + e]
                            if has_gamma:
                                for e in T.unroll(8):
                                    weights[e] = weights[e] * norms[e]
                        else:
                            for e in T.unroll(8):
                                weights[e] = T.float32(0)
                        for e in T.unroll(4):
                            w0 = first_term(weights[2 * e])
                            w1 = first_term(weights[2 * e + 1])
                            w[((b * rows + p) * 2) * 4 + e] = bits(w0) | (bits(w1) << T.uint32(16))
                            rest0 = nearest(remainder(weights[2 * e], w0))
                            rest1 = nearest(remainder(weights[2 * e + 1], w1))
                            w[((b * rows + p) * 2 + 1) * 4 + e] = bits(rest0) | (bits(rest1) << T.uint32(16))
                for j in T.serial(steps + lag):
                    T.ptx_wait_group(ahead - 1)
                    T.sync_threads(1, threads)
                    if j + ahead < steps:
                        load_tile(ring, x, (j + ahead) % slots, q + (j + ahead) * groups, g, tid, N)
                    T.ptx_commit_group()
                    if j < steps:
                        for e in T.unroll(rows * 2 * 4):
                            acc[e] = T.float32(0)
                        for e in T.unroll(8):
                            squares[e] = T.float32(0)
                        for b in T.unroll(blocks):
                            for e in T.vectorized(4):
                                top[e] = ring[j % slots, quad, warp * (mine // 2) + b * 16 + t * 4 + e]
                            for e in T.vectorized(4):
                                bottom[e] = ring[j % slots, quad + 8, warp * (mine // 2) + b * 16 + t * 4 + e]
                            for e in T.unroll(4):
                                a[2 * e] = top[e]
                                a[2 * e + 1] = bottom[e]
                            for half in T.unroll(2):
                                for p in T.unroll(2 * rows):
                                    product(acc, a, half * 4, w, (b * rows * 2 + p) * 4 + half * 2, p * 4)
                                product(squares, a, half * 4, top, half * 2, 0)
                                product(squares, a, half * 4, bottom, half * 2, 4)
                        T.mbarrier_wait_parity(sent[j % 2], (j // 2) % 2 ^ 1)
                        for p in T.unroll(rows):
                            for e in T.unroll(4):
                                to = p * 8 + t * 2 + e % 2
                                if to < M:
                                    parts[j % 2, warp, quad + 8 * (e // 2), T.if_then_else(to < n, to, to - n + 8)] = (
                                        with_lower(acc[p * 8 + e], acc[p * 8 + 4 + e] * T.float32(ORDER_1))
                                    )
                        if quad // 2 == t:  # this lane has the diagonal
                            parts[j % 2, warp, quad, 7] = T.if_then_else(quad % 2 == 0, squares[0], squares[1])
                            parts[j % 2, warp, quad + 8, 7] = T.if_then_else(quad % 2 == 0, squares[6], squares[7])
                        T.sync_warp()
                        if lane == 0:
                            T.mbarrier_arrive(summed[j % 2])
                    done = j - lag
                    if done >= 0:
                        T.mbarrier_wait_parity(gated[done % GATES], (done // GATES) % 2)
                        for p in T.unroll(outs):
                            row3 = (p * threads + tid) // (W // 8)
                            d = (p * threads + tid) % (W // 8) * 8
                            for e in T.unroll(8):
                                mixed[e] = T.float32(0)
                            for i in T.unroll(n):
                                for e in T.vectorized(4):
                                    held[e] = ring[done % slots, row3, (i * W + d) // 2 + e]
                                for e in T.unroll(4):
                                    mixed[2 * e] = mixed[2 * e] + gates[done % GATES, row3, i] * low(held[e])
                                    mixed[2 * e + 1] = mixed[2 * e + 1] + gates[done % GATES, row3, i] * high(held[e])
                            for e in T.unroll(4):
                                out[e] = bits(T.cast(mixed[2 * e], "bfloat16")) | (
                                    bits(T.cast(mixed[2 * e + 1], "bfloat16")) << T.uint32(16)
                                )
                            token3 = T.cast(q + done * groups, "int64") * TOKENS + row3
                            if token3 < N:
                                # an assignment of four words nvcc takes apart again
                                T.stg128(h_in[token3, g * (W // 8) + d // 8, 0:4], out[T.Ramp(0, 1, 4)])
                        T.sync_warp()
                        if lane == 0:
                            T.mbarrier_arrive(used_up[done % GATES])
            else:
                T.set_max_nreg(REGISTERS[1], 0)
                words = T.alloc_local((G,), i32)
                bad = T.alloc_local((1,), i32)
                total = T.alloc_local((1,), f32)
                if warp < WARPS + 4:  # a place of h_pre's for each token, eight lanes a token
                    e_tid = tid - threads
                    gate_token = e_tid // 8
                    gate_place = e_tid % 8
                    taken = (gate_place < n) or (gate_place == 7)
                    gate_bias = bias[T.min(gate_place, n - 1)]
                    gate_scale = T.alloc_local((1,), f32)
                    gate_scale[0] = alpha[0]  # not in the loop: a load there waits behind those of the tiles
                    for j in T.serial(steps + 1):
                        if j < steps:
                            # no program sends a tile more than RING - 2 after one that another program still reads
                            T.mbarrier_wait_parity(written[j % 2], (j // 2) % 2 ^ 1)
                            T.mbarrier_wait_parity(summed[j % 2], (j // 2) % 2)
                            for p in T.unroll(TOKENS * PLACES // 128):
                                to_token = (p * 128 + e_tid) // PLACES
                                to_place = (p * 128 + e_tid) % PLACES
                                if (to_place < n) or (to_place == 7) or ((to_place >= 8) and (to_place < 8 + M - n)):
                                    total[0] = T.float32(0)
                                    for s in T.unroll(WARPS):
                                        total[0] = total[0] + parts[j % 2, s, to_token, to_place]
                                    T.atomic_store(
                                        shares[q, j % RING, g, to_token, to_place],
                                        (T.reinterpret(total[0], i32) & -2) | (1 - (j // RING) % 2),
                                        "relaxed",
                                    )
                            T.sync_warp()
                            if lane == 0:
                                T.mbarrier_arrive(sent[j % 2])
                        if j > 0:
                            T.mbarrier_wait_parity(used_up[(j - 1) % GATES], ((j - 1) // GATES) % 2 ^ 1)
                            total[0] = T.float32(0)
                            if taken:
                                complete(words, shares, q, j - 1, gate_token, gate_place, bad, total)
                            T.sync_warp()
                            inv = inverse_rms(T.shfl_sync(0xFFFFFFFF, total[0], (lane & 24) + 7), K, norm_eps)
                            gate = sigmoid(gate_argument(gate_scale[0], total[0], inv, gate_bias)) + hc_eps
                            if gate_place < n:
                                gates[(j - 1) % GATES, gate_token, gate_place] = gate
                            T.sync_warp()
                            if lane == 0:
                                T.mbarrier_arrive(gated[(j - 1) % GATES])
                        if (j < steps) and taken:
                            request(words, shares, q, j, gate_token, gate_place)
                else:  # every G-th token, a place in each lane
                    m = T.if_then_else(lane < n, lane, T.if_then_else(lane < 8, 0, T.min(lane - 8 + n, M - 1)))
                    kept = (lane < n) or (lane == 7) or ((lane >= 8) and (lane < 8 + M - n))
                    scale = alpha[T.if_then_else(m < n, 0, T.if_then_else(m < 2 * n, 1, 2))]
                    shift = bias[m]
                    for j in T.serial(steps):
                        # in step with the others, also where a program or a warp has no token to write
                        T.mbarrier_wait_parity(sent[j % 2], (j // 2) % 2)
                        for turn in T.serial(rounds):
                            token = g + G * (warp - WARPS - 4 + 4 * turn)
                            if token < TOKENS:
                                total[0] = T.float32(0)
                                if kept:
                                    request(words, shares, q, j, token, lane)
                                    complete(words, shares, q, j, token, lane, bad, total)
                                T.sync_warp()
                                inv2 = inverse_rms(T.shfl_sync(0xFFFFFFFF, total[0], 7), K, norm_eps)
                                z = gate_argument(scale, total[0], inv2, shift)
                                gate2 = sigmoid(z)
                                at2 = T.cast(q + j * groups, "int64") * TOKENS + token
                                if kept and (at2 < N):
                                    if lane == 7:
                                        inv_rms[at2] = inv2
                                    else:
                                        h_mix[at2, m] = total[0]
                                        if m < n:
                                            h_pre[at2, m] = gate2 + hc_eps
                                        else:
                                            if m < 2 * n:
                                                h_post[at2, m - n] = T.float32(2) * gate2
                                            else:
                                                h_res[at2, m - 2 * n] = z
                        T.sync_warp()
                        if lane == 0:
                            T.mbarrier_arrive(written[j % 2])

    scratch = {"shares": T.Tensor((groups, RING, G, TOKENS, PLACES), i32)}
    words = {"x": T.Tensor((N, K // 2), u32), "h_in": T.Tensor((N, D // 8, 4), u32)}
    return function("main", forward_parameters(N, n, D, M, K, f32, scratch) | words, lambda a: main(**vars(a)))
