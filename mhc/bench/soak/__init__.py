"""A campaign over misbehaving implementations, killed and resumed at random moments. Open `run.py` first."""
