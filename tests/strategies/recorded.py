"""What is drawn where each choice is scripted, in tests/strategies/recorded_cases.json.

    python -m tests.strategies.recorded --write

writes the file anew, where a draw is meant to change. Each choice of a strategy is made by a generator of random numbers
with a fixed seed, and not by Hypothesis: so the file holds for all of its versions. For each case the file has its sizes,
its dtype, a checksum of everything, and one of its labels.
"""

import argparse
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
from hypothesis import strategies as st

from mhc.case import Case
from mhc.operator import OPERATORS
from mhc.strategies import cases as whole
from mhc.strategies import layouts, reach, shapes, values
from mhc.strategies.reach import Reach
from mhc.strategies.regions import labels, regions
from mhc.strategies.rounds import quiet

FILE = Path(__file__).with_name("recorded_cases.json")
COMMAND = "python -m tests.strategies.recorded --write"
NAMES = ("mhc_pre", "attention", "cross_entropy", "topk_softmax", "rms_norm", "rope")
"""Operators that differ in what is drawn for them."""
COUNT = 9
"""Cases of each kind."""
SPACES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "one": {"block": (16, 32, 4097, 4), "warps": (1, 2), "path": ("a", "b"), "deep": (False, True)},
    "two": {"rows": (8, 4096)},
}


class Script:
    """Stand-ins for strategies, whose choices a generator of random numbers makes when they are drawn."""

    def __init__(self) -> None:
        self.generator = random.Random(0)
        self._makers: dict[int, tuple[Any, Callable[[], Any]]] = {}

    def later(self, make: Callable[[], Any]) -> Any:
        made = st.builds(make)
        self._makers[id(made)] = made, make
        return made

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.later(lambda: self.generator.choice(tuple(options)))

    def integers(self, least: int, most: int) -> Any:
        return self.later(lambda: self.generator.randint(least, most))

    def booleans(self) -> Any:
        return self.later(lambda: self.generator.random() < 0.5)

    def permutations(self, some: Sequence[Any]) -> Any:
        return self.later(lambda: self.generator.sample([*some], len(some)))

    def lists(self, elements: Any, *, min_size: int, max_size: int, unique: bool) -> Any:
        _, make = self._makers[id(elements)]

        def draw() -> list[Any]:
            found: list[Any] = []
            wanted = self.generator.randint(min_size, max_size)
            for one in (make() for _ in range(50)):
                if len(found) < wanted and not (unique and one in found):
                    found.append(one)
            return found

        return self.later(draw)

    @contextmanager
    def made(self) -> Iterator[None]:
        """Put the stand-ins in the place of Hypothesis's strategies for the block."""
        with ExitStack() as patched:
            for module in (whole, layouts, reach, shapes, values):
                patched.enter_context(patch.object(module, "choice", self.one_of))
            patched.enter_context(patch.object(st, "sampled_from", self.one_of))
            for name in ("integers", "booleans", "permutations", "lists"):
                patched.enter_context(patch.object(st, name, getattr(self, name)))
            yield


def draws() -> list[tuple[str, Case]]:
    """Return cases by name."""
    script = Script()
    found: list[tuple[str, Case]] = []

    @hypothesis.settings(quiet(1))
    @hypothesis.given(st.data())
    def collect(data: Any) -> None:
        def drawn(seed: int, **options: Any) -> Case:
            script.generator.seed(seed)
            case: Case = data.draw(whole.cases(**options))
            return case

        found.clear()
        with script.made():
            for name in NAMES:
                for kind in Reach:
                    for at in range(COUNT):
                        some = at % 3 == 2
                        options: dict[str, Any] = {"max_elements": (1 << 15, 500, 1 << 20)[at % 3], "special": at % 4 != 3}
                        options |= {"operator": name, "reach": kind, **({"spaces": SPACES} if some else {})}
                        case = drawn(at, **options)
                        found.append((f"{name}, {kind.value}, {at}", case))
                        if kind is Reach.USUAL and some:
                            found.append((f"{name}, like {at}", drawn(at + 100, **options, like=case)))

    collect()
    return found


def summary(case: Case) -> str:
    """Return what is recorded of a case."""
    sizes = " ".join(f"{symbol}{size}" for symbol, size in case.sizes.items())
    words = (case.to_json(), repr(sorted(regions(case))))
    return " ".join([sizes, case.dtype, *(f"{zlib.crc32(one.encode()):08x}" for one in words)])


def recorded() -> dict[str, str]:
    """Return the file's content as it is now."""
    found = {name: summary(case) for name, case in draws()}
    return found | {f"labels of {name}": f"{zlib.crc32(repr(labels(OPERATORS[name])).encode()):08x}" for name in NAMES}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    FILE.write_text(json.dumps(recorded(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
