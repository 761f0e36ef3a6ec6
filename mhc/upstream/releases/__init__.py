"""Run a repro on other releases of its DSL: which fail, and between which two that changed. Open `matrix.py` first."""
