"""The minimiser: the simplest case with the same fingerprint.

In: a finding. Out: the same finding with a smaller case, and how often that case fails in fresh processes. `search.py` is
the search, the `*passes.py` are its steps, `sandbox.py` runs cases in processes that may die.
"""
