"""The command line of `python -m mhc.fuzz`.

In: options and verbs. Out: exit status 0 clean, 1 findings, 2 usage or nothing judged, 3 a fault of the harness. `main.py`
holds the commands; `settings.py` says what the options mean; `run.py` runs the campaign.
"""
