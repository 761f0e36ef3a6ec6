"""Strategies that draw small programs of a DSL, with a meaning that every compiler must keep. Open `programs.py` first."""
