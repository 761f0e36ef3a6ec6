"""`python -m mhc.bench`: what the kernels cost and how accurate they are, measured side by side."""
