"""The main process of a campaign: what is checked next, until the budget is spent.

In: implementations, an executor, limits. Out: counts and findings in the run's store, an SQLite file. `campaign.py` is the
loop; `planner.py` decides what comes next; `results.py` takes in what workers send; `triage.py` keeps each bug once.
"""
