"""Campaigns: `python -m mhc.fuzz` draws cases, runs implementations, judges them, and reports what is wrong.

In: implementations and a budget of time or cases. Out: a run's folder with its store, findings and reports. Imports point
one way: findings <- check <- worker <- minimise <- executors <- campaign <- report <- cli.
Open `campaign/campaign.py` first.
"""
