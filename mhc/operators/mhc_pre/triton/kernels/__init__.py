"""Triton kernels, one module for each pass; `fwd_project.py` is the first of a forward, `bwd_common.py` of a backward."""
