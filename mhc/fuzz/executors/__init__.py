"""Where worker processes run: on this machine (`local.py`), or on a Ray cluster (`ray_cluster.py`, with an actor a slot).

In: requests of the campaign. Out: messages of the workers. Open `local.py` first.
"""
