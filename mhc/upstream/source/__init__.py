"""Source code of kernels as syntax trees: definitions are collected into one file, and specialised to known values.

In: functions and the values that are known at compile time. Out: statements. Open `definitions.py` first.
"""
