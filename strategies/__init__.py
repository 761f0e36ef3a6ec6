"""Hypothesis strategies that draw cases."""
