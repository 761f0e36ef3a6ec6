"""`python -m mhc.fuzz init FILE`: writes the operator and the implementation record for a kernel, and runs them."""
