"""Cases a second of a campaign, where its time goes, and the race against a plain loop. Open `measure.py` first."""
