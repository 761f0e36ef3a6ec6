"""The program of a finding, one file that needs the DSL alone.

In: a recording. Out: the text of `repro.py`. `program.py` makes it in a process of its own; `draft.py` collects its parts.
"""
