"""Numbers that carry an error: a formula, evaluated on them, yields the tolerance of each element.

In: a formula and float64 inputs, or a plain PyTorch function and its tensors (`reading.py`). Out: a bound for each element.
`error_number.py` is the arithmetic, which docs/tolerances.md derives; `operation_error.py` has the error of one operation;
`deviation_number.py` is used by the precision gate, `underflow_number.py` by `mhc.oracles.linear`.
"""
