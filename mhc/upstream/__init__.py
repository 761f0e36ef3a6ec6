"""From a finding to a text that a maintainer can act on: a program that needs nothing of this package, and an issue."""
