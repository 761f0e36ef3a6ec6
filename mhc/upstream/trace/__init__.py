"""Record what a kernel launches while a finding's case runs.

In: a finding. Out: a recording: launches with their tensors, and the check that fails. Open `recording.py` first.
"""
