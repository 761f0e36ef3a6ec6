"""Make a program smaller, statement by statement, while its behaviour stays the same. Open `reduction.py` first."""
