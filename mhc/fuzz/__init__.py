"""`python -m mhc.fuzz`: draw cases, run implementations, judge, report."""
