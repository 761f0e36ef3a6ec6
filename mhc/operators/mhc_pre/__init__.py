"""mHC Forward Pre: the operator's record, its formula, and its implementations.

In: tensors x, phi, alpha, bias and gamma, as `table.py` lists them. Out: h_in, h_post, h_res and, for the backward, what it
needs. `api.py` is the call that a model makes; `registry.py` lists the implementations; a folder is one backend. What they
share is below them: `selection.py` (how a kernel is chosen), `calls.py`, `tensors.py`, `device.py`.
"""
