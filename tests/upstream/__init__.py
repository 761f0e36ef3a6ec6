"""Tests of exported repros."""
