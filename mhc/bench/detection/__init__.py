"""Hunts for known-bad implementations with drawn cases, and with test suites on fixed shapes.

In: mutants. Out: docs/results/detection.md. `detect.py` runs the hunts, `hunt.py` is one of them.
"""
