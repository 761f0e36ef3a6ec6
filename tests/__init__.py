"""The suite. `checked` is the type checker that jaxtyping applies to the package while it runs."""

from beartype import BeartypeConf, beartype

# As static type checkers have it: an int is good where a float is asked for.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
