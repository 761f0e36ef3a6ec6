"""Mutants of the built-in operators beside mHC pre: each is one edit of a kernel in plain PyTorch, as real kernels go wrong."""
