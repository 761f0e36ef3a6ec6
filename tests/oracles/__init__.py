"""Tests of the gates, their bounds, and the mutants."""
