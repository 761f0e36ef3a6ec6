"""mHC Forward Pre in TileLang: tiles on CUDA, serial loops on the CPU (the `c` target).

In: checked tensors and a schedule. Out: outputs and gradients. `forward.py` and `backward.py` describe the programs;
`forward_schedule.py` and `backward_schedule.py` say which program a shape gets; `compile/` compiles; `kernels/` has the
source.
"""
