"""What a kernel launched while a finding's case ran.

In: a finding. Out: a recording: launches with their tensors, and the check that fails. Open `recording.py` first.
"""
