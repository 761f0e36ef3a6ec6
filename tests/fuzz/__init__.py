"""Tests of campaigns, workers, the minimiser and reports."""
