"""The suite. `checked` is the type checker that jaxtyping applies to the package while it runs."""

import random
from unittest.mock import patch

# beartype draws which entry of a container it checks. It gets a generator of its own: a kernel that draws from the global
# one is a finding.
with patch.object(random, "getrandbits", random.Random().getrandbits):
    from beartype import BeartypeConf, beartype

    # As static type checkers have it: an int is good where a float is asked for.
    checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
