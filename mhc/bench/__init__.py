"""`python -m mhc.bench`: speed and accuracy of kernels, and what the tester itself finds and costs.

In: options of a verb. Out: tables, and pages of docs/results. `cli.py` holds the verbs; a folder is one bench.
"""
