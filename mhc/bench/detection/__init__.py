"""Hunts for known-bad implementations with drawn cases, and with the fixed-shape suites one would otherwise write.

In: mutants. Out: docs/results/detection.md. `detect.py` runs the hunts, `hunt.py` is one of them.
"""
