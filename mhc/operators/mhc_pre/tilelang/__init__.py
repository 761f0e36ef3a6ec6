"""mHC Forward Pre in TileLang: tiles on CUDA, serial loops on the CPU (the `c` target).

In: checked tensors and a schedule. Out: outputs and gradients. `forward.py` and `backward.py` describe the programs;
`selection.py` says which program runs for a problem and why, `forward_schedule.py` and `backward_schedule.py` with which
tiles; `compile/` compiles; `kernels/` has the source.
"""
