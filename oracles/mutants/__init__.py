"""Known-bad implementations, each one edit of a real one, and clean variants beside them: the oracles' own test."""
