"""`python -m mhc.fuzz` without minimising, for tests of what is found and not of how small it becomes."""

from typing import Any

from mhc.fuzz.campaign import planner
from mhc.fuzz.cli import run
from mhc.fuzz.cli.main import main


def patch() -> None:
    """Switch off minimising and the first rounds of one program: each takes longer than the cases of a test."""
    alter: Any = vars(planner)
    alter["opening"] = lambda implementation: ()
    alter = vars(run)
    alter["MINIMISE"] = False


if __name__ == "__main__":
    patch()
    main()
