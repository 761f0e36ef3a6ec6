"""mHC Forward Pre in Triton: on a GPU, and in Triton's interpreter on the CPU.

In: checked tensors and a schedule. Out: outputs and gradients. `forward.py` and `backward.py` hold the launches;
`heuristics.py` says which kernels run for a shape, `constraints.py` which schedules cannot run; kernels are in `kernels/`.
"""
