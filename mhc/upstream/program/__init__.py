"""Make the program of a finding, one file that imports only the DSL.

In: a recording. Out: the text of `repro.py`. `program.py` makes it in a separate process; `draft.py` collects its parts.
"""
