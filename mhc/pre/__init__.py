"""The operator mHC Forward Pre: formula, implementations, and the call a model makes."""
