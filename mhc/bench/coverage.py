"""The verb `coverage` of `python -m mhc.bench`: how often each region of the space of cases is drawn."""

from collections import Counter
from collections.abc import Iterable

import click

from mhc.bench.detection.hunt import draw
from mhc.case import Case
from mhc.registry import built_in
from strategies.regions import regions


@click.command()
@click.option("--cases", "count", type=click.IntRange(min=1), default=2000, show_default=True, help="Cases to draw.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn cases.")
@click.option("--impl", "name", type=click.Choice(list(built_in())), help="Draw schedules that it declares, too.")
def coverage(count: int, seed: int, name: str | None) -> None:
    """Draw cases as a campaign does, run nothing, and show how many lie in each region.

    \b
        python -m mhc.bench coverage
        python -m mhc.bench coverage --impl triton --cases 10000
    """
    space = {} if name is None else built_in()[name].schedule
    click.echo(table(draw(count, seed, space)))


def table(drawn: Iterable[Case]) -> str:
    """A line for each aspect: its regions, the most frequent first, with their share of the cases in percent."""
    cases = list(drawn)
    seen = Counter(label for case in cases for label in regions(case))
    aspects: dict[str, list[str]] = {}
    for label, times in sorted(seen.items(), key=lambda one: (-one[1], one[0])):
        aspect, region = label.split(": ", 1)
        aspects.setdefault(aspect, []).append(f"{region} {100 * times / len(cases):.2g}")
    lines = [f"| {aspect} | {', '.join(aspects[aspect])} |" for aspect in sorted(aspects)]
    return "\n".join([f"| of {len(cases)} cases | % in each region |", "| --- | --- |", *lines])
