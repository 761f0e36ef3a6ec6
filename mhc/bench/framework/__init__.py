"""Single-line faults planted in this project, and whether its tests notice. `plant.py` runs the tests of each fault."""
