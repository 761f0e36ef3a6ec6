"""The verbs `export`, `matrix`, `recheck` and `releases` of `python -m mhc.fuzz`."""
