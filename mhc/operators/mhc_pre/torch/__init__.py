"""mHC Forward Pre in plain PyTorch: `golden` (autograd) and `manual` (a backward written by hand); see `golden.py`."""
