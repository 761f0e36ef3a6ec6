"""How short exported programs are, and whether they run by themselves. Open `measure.py` first."""
