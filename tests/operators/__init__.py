"""Tests of mHC Forward Pre and its kernels."""
