"""TileLang programs as the strategies draw them, each round of them drawn once for all tests of a process."""

from functools import cache

from mhc.programs.grammar import For, Program, Store
from mhc.strategies.programs.programs import CPU, programs
from mhc.strategies.programs.statements import Features
from mhc.strategies.rounds import ROUND
from mhc.strategies.rounds import drawn as one_round
from tests.support.own_constants import no_constants_of_modules


def drawn(count: int, features: Features = CPU) -> list[Program]:
    """Return the programs of the first rounds, at least `count`."""
    return [one for seed in range(-(-count // ROUND)) for one in _round(seed, features)]


@cache
def _round(seed: int, features: Features) -> tuple[Program, ...]:
    with no_constants_of_modules():
        return tuple(one_round(programs(features), ROUND, seed))


def is_list(program: Program) -> bool:
    """Return whether all that a program does is to set elements in one loop, each to a value of its own."""
    loop = program.body[0]
    return isinstance(loop, For) and sum(isinstance(one, Store) for one in loop.body) >= 8


def others(programs: int, features: Features = CPU) -> list[Program]:
    """Return drawn programs that are no lists."""
    return [one for one in drawn(programs * 7 // 5, features) if not is_list(one)][:programs]
