"""Implementations that are right, but crash, hang, flood or leave state changed. `catalogue.py` lists them."""
