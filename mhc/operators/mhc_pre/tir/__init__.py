"""The forward of mHC Forward Pre as a TIR script. `forward.py` calls it, `kernels.py` is the script."""
