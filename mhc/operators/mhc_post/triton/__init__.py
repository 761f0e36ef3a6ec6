"""mHC post in Triton, forward and backward, with the matrix as written and transposed.

In: x, f, h_post, h_res and a schedule. Out: the streams, or the gradients. `launches.py` holds the launches, `schedule.py`
the tiles.
"""
