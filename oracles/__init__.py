"""Oracles: pure functions from a case and what was observed to verdicts. They know no implementation by name."""
