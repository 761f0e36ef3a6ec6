"""From a finding to an issue upstream: a program that needs nothing of this package, and the text of the issue.

In: a finding. Out: a folder with `repro.py`, `issue.md` and what was ruled out. Imports point one way: source <- trace <-
program <- diagnose <- reduce <- issue, releases <- cli. Open `export.py` first.
"""
