"""`python -m mhc.fuzz` without minimising, for tests of what is found and not of how small it becomes."""

from functools import partial
from typing import Any

from mhc.fuzz.campaign import campaign
from mhc.fuzz.campaign.background_minimiser import Reducer
from mhc.fuzz.cli import run
from mhc.fuzz.cli.main import main
from mhc.fuzz.worker.protocol import Round


def patch() -> None:
    """Switch off shrinking, minimising and the first rounds of one program: each takes longer than the cases of a test."""
    alter: Any = vars(campaign)
    alter["Round"] = partial(Round, shrink=0.0)
    alter["opening"] = lambda implementation: ()
    alter = vars(run)
    alter["_reducer"] = lambda *_: Reducer(None)


if __name__ == "__main__":
    patch()
    main()
