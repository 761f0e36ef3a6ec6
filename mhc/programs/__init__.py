"""Small TileLang programs as data, to test the compiler with.

In: a `Program`, which `mhc.strategies.programs` draws. Out: its elements as the evaluator computes them, its source text,
and what the compiler makes of it. Open `grammar.py` first, then `evaluate.py`.
"""
