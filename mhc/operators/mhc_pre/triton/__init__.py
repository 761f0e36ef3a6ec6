"""mHC Forward Pre in Triton: on a GPU, and in Triton's interpreter on the CPU.

In: checked tensors and a schedule. Out: outputs and gradients. `forward.py` and `backward.py` hold the launches;
`selection.py` says which kernels run for a problem and why, `heuristics.py` with which tiles, `constraints.py` which pinned
schedules cannot run; the source of the kernels is in `kernels/`.
"""
