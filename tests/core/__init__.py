"""Tests of the core: cases, inputs, observations, the package itself."""
