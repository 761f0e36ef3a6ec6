"""How well drawn programs test: two evaluators against each other, planted faults, and what is drawn for each target."""
