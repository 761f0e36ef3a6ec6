"""The verb `coverage` of `python -m mhc.bench`: how often each region of the space of cases is drawn."""

from collections import Counter
from collections.abc import Iterable

import click

from mhc.bench import verbs
from mhc.bench.detection.hunt import draw
from mhc.bench.markdown import table
from mhc.case import Case
from mhc.registry import built_in
from mhc.strategies.regions import regions


@click.command()
@verbs.whole("--cases", "count", default=2000, help="Cases to draw.")
@verbs.SEED
@click.option("--impl", "name", type=click.Choice(list(built_in("mhc_pre"))), help="Draw schedules that it declares, too.")
def coverage(count: int, seed: int, name: str | None) -> None:
    """Draw cases as a campaign does, run nothing, and show how many lie in each region.

    \b
        python -m mhc.bench coverage
        python -m mhc.bench coverage --impl triton --cases 10000
    """
    space = {} if name is None else built_in()[name].schedule
    click.echo(shares(draw(count, seed, space)))


def shares(drawn: Iterable[Case]) -> str:
    """Return a table of the aspects: their regions, the most frequent first, with their share of the cases in percent."""
    cases = list(drawn)
    seen = Counter(label for case in cases for label in regions(case))
    aspects: dict[str, list[str]] = {}
    for label, times in sorted(seen.items(), key=lambda one: (-one[1], one[0])):
        aspect, region = label.split(": ", 1)
        aspects.setdefault(aspect, []).append(f"{region} {100 * times / len(cases):.2g}")
    rows = [(aspect, ", ".join(aspects[aspect])) for aspect in sorted(aspects)]
    return table((f"of {len(cases)} cases", "% in each region"), rows, " --- ")
