"""How small findings on known-bad implementations become. Open `measure.py` first."""
