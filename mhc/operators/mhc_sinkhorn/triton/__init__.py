"""mHC's Sinkhorn in Triton, forward and backward, in the paper's variant and in those of Liger and TileKernels.

In: logits and a schedule. Out: M, or the gradient of logits. `launches.py` holds the launches, `schedule.py` the tiles.
"""
