"""Numbers that carry an error: the operator's formula, read over them, yields the tolerance of each element.

In: the formula and float64 inputs. Out: a bound for each element. `error_number.py` is the arithmetic, and
docs/tolerances.md derives it; `deviation_number.py` is the precision gate's.
"""
