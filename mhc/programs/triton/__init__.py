"""Small Triton programs as data, to test Triton with.

In: a `TritonProgram`, which `mhc.strategies.programs.triton_programs` draws. Out: its elements as the evaluator computes
them, its source text, and what Triton makes of it. Open `grammar.py` first, then `evaluate.py`.
"""
