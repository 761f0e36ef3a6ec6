"""A program made smaller, statement by statement, while it does the same. Open `shorten.py` first."""
