"""A worker process: it serves one implementation and is watched from outside, so that a crash or a hang is its own.

In: requests of `protocol.py`. Out: its messages. `main.py` is the worker's loop and `session.py` a round of drawn cases;
`process.py` is the side that watches: time, memory, hangs, exit status. `client.py` checks single cases.
"""
