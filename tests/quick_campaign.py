"""`python -m mhc.fuzz` that leaves findings as they were drawn: for tests of what is found, and not of how small it gets."""

from functools import partial
from typing import Any

from mhc.fuzz import campaign, start
from mhc.fuzz.cli import main
from mhc.fuzz.messages import Round
from mhc.fuzz.reducer import Reducer


def patch() -> None:
    """No shrinking, no minimising, and no rounds of one program first: each takes longer than the cases of a test."""
    alter: Any = vars(campaign)
    alter["Round"] = partial(Round, shrink=0.0)
    alter["opening"] = lambda implementation: ()
    alter = vars(start)
    alter["_reducer"] = lambda *_: Reducer(None)


if __name__ == "__main__":
    patch()
    main()
