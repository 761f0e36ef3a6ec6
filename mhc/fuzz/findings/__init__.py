"""What a bug is: its fingerprint, the finding with its case, the fixture that is replayed, the known issues.

In: a failing verdict and its case. Out: JSON. Open `finding.py` first.
"""
