"""Compiles TileLang programs and keeps them on disk.

In: the name of a function that makes a kernel, and its constants. Out: a loaded program. Open `cache.py` first.
"""
