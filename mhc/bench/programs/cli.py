"""The verb `programs` of `python -m mhc.bench`: two evaluators, planted faults, and what is drawn for each target."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from mhc.bench import verbs
from mhc.bench.programs import report, tracker_report
from mhc.bench.programs.coverage import PROGRAMS, Covered, Drawn, cover
from mhc.bench.programs.evaluators import Compared, chunks, compare
from mhc.bench.programs.faults import FAULTS
from mhc.bench.programs.hunt import Hunted, Lowered, hunt, right, rounds
from mhc.bench.programs.tracker import in_release, track
from mhc.bench.programs.tracker_bugs import REPORTED, C
from mhc.bench.state import Results
from mhc.programs.targets import TARGETS, target_named
from mhc.strategies.rounds import ROUND

RESULTS = verbs.RESULTS / "programs-teeth.md"
TRACKER_RESULTS = verbs.RESULTS / "programs-tracker.md"
PARTS = ("evaluators", "faults", "coverage")
TRACKER = "tracker"
"""A part that is given alone: it has a page of its own."""
_TARGETS = ("tilelang-to-c", "tilelang-for-sm_90", "tilelang-arithmetic", "plain-c")
_MORE = {"plain-c": 10}
"""How many times as many programs a target gets that is cheap."""
_FIRST = {"plain-c": 4_000, "tilelang-to-c": 8_000, "coverage": 12_000, "evaluators": 200_000, "tracker": 5_000_000}
"""The seed from which each part draws, added to that of the command: each has programs of its own."""


@click.command()
@verbs.several("--part", "parts", metavar="PART", help=f"Of {', '.join(PARTS)}, by default these; or {TRACKER} alone.")
@verbs.whole("--programs", default=100_000, help="For the two evaluators.")
@verbs.whole("--hunted", default=1000, help="Programs a fault of plain C gets to be found.")
@verbs.whole("--lowered", default=400, help="Programs a fault of TileLang gets, which lowers each.")
@verbs.whole("--covered", default=150, help="Programs for each target of the table of coverage; cheap ones get more.")
@verbs.several(
    "--target",
    "targets",
    metavar="NAME",
    help=f"Of the table of coverage, by default {', '.join(_TARGETS)}; or of {TRACKER}.",
)
@verbs.positive("--minutes", default=10, help=f"For {TRACKER}.")
@verbs.several("--only", "names", metavar="FAULT", help="A fault to plant; by default all.")
@verbs.SEED
@verbs.jobs("Faults or rounds at a time.")
@verbs.STATE
@verbs.write(RESULTS)
def programs(
    parts: tuple[str, ...],
    programs: int,
    hunted: int,
    lowered: int,
    covered: int,
    targets: tuple[str, ...],
    minutes: float,
    names: tuple[str, ...],
    seed: int,
    jobs: int,
    state: Path | None,
    write: bool,
) -> None:
    """Test the drawn programs and their evaluator: a second evaluator, planted faults, coverage of the grammar.

    \b
        python -m mhc.bench programs --part faults --only "T.cumsum ignores reverse"
        python -m mhc.bench programs --state /tmp/programs.json --write
        python -m mhc.bench programs --part tracker --target tilelang-to-c --target tilelang-to-c@SITE

    The part `tracker` hunts reported bugs of TileLang among drawn programs, and says which of the releases have them.

    Exit status: 0 no difference, no unexplained survivor, no empty cell and no bug of the tracker that is not found; 1 not
    so; 2 usage; 3 a fault of the harness.
    """
    verbs.refuse_unknown(parts, (*PARTS, TRACKER), "part", "--part")
    verbs.refuse_unknown(names, [one.name for one in FAULTS], "fault")
    verbs.refuse_unknown([one.partition("@")[0] for one in targets], list(TARGETS), "target", "--target")
    for one in targets:
        try:
            target_named(one)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if TRACKER in parts:
        if set(parts) != {TRACKER}:
            raise click.UsageError(f"--part {TRACKER}: it is given alone")
        _track(targets or (_TARGETS[0],), seed + _FIRST[TRACKER], minutes, jobs, verbs.Page(TRACKER_RESULTS, write=write))
    page = verbs.Page(RESULTS, write=write)
    chosen = parts or PARTS

    def beside(what: str) -> Path | None:
        return None if state is None else state.with_suffix(f".{what}.json")

    compared: list[Compared] = []
    if "evaluators" in chosen:
        kept = Results(Compared, "chunks", beside("evaluators"), seed=seed)
        compared = kept.complete(
            chunks(programs, seed + _FIRST["evaluators"]), compare, 1, lambda _, one: page.show(_compared_line(one))
        )
    first, found = [], []
    if "faults" in chosen:
        for target, count in (("plain-c", hunted), ("tilelang-to-c", lowered)):
            planted = [one for one in FAULTS if one.target == target and (not names or one.name in names)]
            if not planted:
                continue
            drawn = Results(Lowered, "rounds", beside(f"lowered.{target}"), seed=seed)
            mine = drawn.complete(rounds(target, count, seed + _FIRST[target]), right, jobs)
            page.show(
                f"{target}: {sum(one.drawn for one in mine)} programs, {sum(one.wrong for one in mine)} are wrong anyway"
            )
            hunts = Results(Hunted, "faults", beside(f"faults.{target}"), seed=seed, programs=count)
            found += hunts.complete(planted, partial(hunt, rounds_=mine), jobs, lambda _, one: page.show(_hunted_line(one)))
            first += mine
    seen: list[Covered] = []
    if "coverage" in chosen:
        work = [
            Drawn(spec=spec, seed=seed + _FIRST["coverage"] + number * PROGRAMS // ROUND)
            for spec in targets or _TARGETS
            for number in range(covered * _MORE.get(spec, 1) // PROGRAMS)
        ]
        rounds_ = Results(Covered, "rounds", beside("coverage"), seed=seed)
        seen = rounds_.complete(work, cover, jobs, lambda one, result: page.show(f"{one.name}: {result.judged} judged"))
    text = report.render(compared, first, found, seen, verbs.command())
    bad = any(one.differences for one in compared) or report.survivors(found) or report.gaps(seen)
    page.finish(text, 1 if bad else 0)


def _track(targets: Sequence[str], seed: int, minutes: float, jobs: int, page: verbs.Page) -> NoReturn:
    """Hunt the bugs of the tracker that the first release has, and write the page on them."""
    releases = {}
    for spec in targets:
        target = target_named(spec)
        if target is None or target.name.partition("@")[0] != C:
            raise click.UsageError(f"--target {spec}: for {TRACKER} it is {C}, or {C}@SITE")
        releases[target.name.partition("@")[2] or target.release()] = in_release(spec)
        page.show(f"{spec} has {sum(list(releases.values())[-1].values())} of {len(REPORTED)}")
    has = next(iter(releases.values()))
    tracked = track([one for one in REPORTED if has[one.number]], seed, minutes * 60, jobs, page.show)
    command = verbs.command()
    for spec in targets:
        site = spec.partition("@")[2]
        command = command.replace(f"@{site}", "@SITE") if site else command
    text = tracker_report.render_page(tracked, releases, seed, command)
    page.finish(text, int(any(has[one.number] and one.number not in tracked.found for one in REPORTED)))


def _compared_line(one: Compared) -> str:
    return f"{one.name}: {one.judged} programs, {len(one.differences)} differences, {one.judged / one.seconds:.0f} a second"


def _hunted_line(one: Hunted) -> str:
    if not one.after:
        return f"not found: {one.name} ({one.tried} programs)"
    return f"after {one.after:4}: {one.name} ({one.symptom}; {one.nodes} nodes, minimal {one.small}: {one.operations})"
