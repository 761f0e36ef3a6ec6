"""TileLang kernels, one module for each program; `macros.py` has the formulas and indices that they share."""
