"""A repro on other releases of its DSL: where it fails, and between which two that changed. Open `matrix.py` first."""
