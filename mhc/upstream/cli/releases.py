"""The verbs `matrix`, `recheck`, `releases` and `tracker` of `python -m mhc.fuzz`: exported repros on other versions."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from mhc.upstream.issue import duplicates, tracker
from mhc.upstream.releases import matrix_report
from mhc.upstream.releases.interpreters import Interpreters, Unavailable, cache_folder, check_ready, installed, newest
from mhc.upstream.releases.matrix import Matrix
from mhc.upstream.releases.recheck import STATUSES, STILL, UNKNOWN, ExportedFolder, find, read, recheck
from mhc.upstream.releases.releases import NEEDS, RELEASES, Release, chosen, ordered, release
from mhc.upstream.verify import SECONDS

_PYTHONS = "VERSION=PATH"
_cache = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the environments; $MHC_CACHE/releases or one in the user's cache if not given.",
)
_seconds = click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Time that one run of a repro may take.",
)


@click.command(name="matrix")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--releases",
    "wanted",
    multiple=True,
    metavar="VERSION",
    help="Run it on this release, or `all` that are listed. Repeatable.  [default: the finding's, each later, the newest]",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar=_PYTHONS,
    help="An interpreter that has a release already. Repeatable; without --releases, nothing else is run.",
)
@click.option("--bisect/--no-bisect", default=None, help="Run only what bisection asks for.  [default: of more than ten]")
@_seconds
@_cache
def matrix_verb(
    folder: Path, wanted: tuple[str, ...], pythons: tuple[str, ...], bisect: bool | None, cache: Path | None, seconds: float
) -> None:
    """Run an exported repro on a list of releases, each in an environment of its own, and put the matrix into its issue.

    \b
        python -m mhc.fuzz matrix small-tilelang
        python -m mhc.fuzz matrix small-tilelang --releases all --no-bisect
        python -m mhc.fuzz matrix small-triton --python 3.6.0=/opt/old/bin/python

    Environments are made by pip with the companions that each release needs, and kept. Exit status: 0 the repro fails on
    the newest release on which it ran: there is something to file; 1 it passes there, or ran on none; 2 usage.
    """
    with _as_usage_error():
        exported = read(folder)
    given = _given(pythons)
    notes: list[str] = []
    releases = _chosen(exported, wanted, given, notes)
    interpreters = Interpreters(cache or cache_folder(), given, makes=bool(wanted) or not given)
    runner = Matrix(
        folder / "repro.py",
        exported.to,
        exported.needs,
        interpreters,
        seconds=seconds,
        on_row=lambda row: click.echo(f"{row.version:12} {row.state.value:8} {row.summary}"),
    )
    rows = runner.rows(releases, exported.own, bisects=bisect)
    duplicates.write(folder)
    matrix_report.write(folder, exported.to, exported.needs, rows, notes)
    for line in (*matrix_report.sentences(rows), *notes, str(folder / "issue.md")):
        click.echo(f"    {line}")
    last = matrix_report.newest_judged(rows)
    sys.exit(0 if last is not None and last.state.bad else 1)


@click.command(name="recheck")
@click.argument("places", metavar="[FOLDER]...", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--version", "version", metavar="VERSION", help="The release to run them on, in an environment of its own.")
@click.option(
    "--python",
    "python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An interpreter to run them with instead.",
)
@click.option("--to", type=click.Choice(tuple(RELEASES)), help="Only those for this DSL.")
@_seconds
@_cache
def recheck_verb(
    places: tuple[Path, ...], version: str | None, python: Path | None, to: str | None, cache: Path | None, seconds: float
) -> None:
    """Run exported repros on another version, and say which are healed, still failing, or changed.

    \b
        python -m mhc.fuzz recheck --to tilelang --version 0.1.15
        python -m mhc.fuzz recheck small-tilelang other-tilelang --python /opt/new/bin/python

    FOLDER is an exported folder, or one that has some below it; fuzz_reports if not given. Changed: fails only
    sometimes, or in another way. Exit status: 0 all still fail, 1 some are healed or changed, 2 usage, 3 some could not run,
    so nothing is known of them.
    """
    if (version is None) == (python is None):
        raise click.UsageError("give either --version or --python")
    found = _found(places or (Path("fuzz_reports"),), to)
    if version is not None and len({one.to for one in found}) > 1:
        raise click.UsageError(f"--version {version}: of what? The folders are for several DSLs; name one with --to")
    statuses: list[str] = []
    for exported in found:
        of = version if python is None else installed(python.absolute(), exported.to)
        if of is None:
            raise click.UsageError(f"--python {python}: has no {exported.to}")
        given = {} if python is None else {of: python.absolute()}
        interpreters = Interpreters(cache or cache_folder(), given)
        status, row = recheck(exported, _release(exported.to, of), interpreters, seconds=seconds)
        click.echo(f"{exported.folder} ({exported.to} {exported.own} -> {of})\n    {status}: {row.summary}")
        statuses.append(status)
    click.echo(", ".join(f"{statuses.count(one)} {one}" for one in STATUSES if one in statuses))
    sys.exit(3 if UNKNOWN in statuses else 1 if set(statuses) - {STILL} else 0)


@click.command(name="releases")
@click.option("--to", type=click.Choice([one for one in RELEASES if RELEASES[one]]), default="tilelang", show_default=True)
@click.option("--releases", "wanted", multiple=True, metavar="VERSION", help="Only this one. Repeatable.  [default: all]")
@click.option(
    "--with", "companions", multiple=True, metavar="NAME==VERSION", help="Try these companions instead of the listed."
)
@_seconds
@_cache
def releases_verb(to: str, wanted: tuple[str, ...], companions: tuple[str, ...], cache: Path | None, seconds: float) -> None:
    """Try the releases of a DSL with their companions: which runs what here.

    \b
        python -m mhc.fuzz releases --to tilelang
        python -m mhc.fuzz releases --releases 0.1.9 --with apache-tvm-ffi==0.1.12

    Exit status: 0 each runs what needs no GPU, 1 not all do, 2 usage.
    """
    interpreters = Interpreters(cache or cache_folder())
    clean = True
    for one in ordered([_release(to, name) for name in wanted]) if wanted else RELEASES[to]:
        tried = Release(one.version, companions, one.preload) if companions else one
        pins = "as its wheel asks" if tried.companions is None else ", ".join(tried.companions) or "alone"
        try:
            python = interpreters.python(to, tried)
        except Unavailable as reason:
            click.echo(f"{tried.version:12} {pins}\n    {reason}")
            clean = False
            continue
        click.echo(f"{tried.version:12} {pins}")
        for need in NEEDS[to]:
            lacks, _ = check_ready(python, to, tried.version, need, seconds=seconds)
            click.echo(f"    {need:12} {lacks or 'works'}")
            clean &= not lacks or need == "cuda"
    sys.exit(0 if clean else 1)


@click.command(name="tracker")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--asked", type=click.DateTime(["%Y-%m-%d"]), help="The day on which the file was made; today if not given.")
@click.option("--known", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=duplicates.FILE)
def tracker_verb(file: Path, asked: datetime | None, path: Path) -> None:
    """Bring the known issues up to date from FILE, what a tracker says of its issues as JSON.

    \b
        gh issue list --repo tile-ai/tilelang --state all --limit 5000 --json number,title,state,url > issues.json
        gh pr list --repo tile-ai/tvm --state all --limit 500 --json number,title,state,url > pulls.json
        python -m mhc.fuzz tracker issues.json

    Then name the open bugs of the tracker that have no entry: read each, and add a line for those that a finding may be.
    Exit status: 0 read, 2 usage.
    """
    with _as_usage_error(f"{file}: "):
        found = tracker.refresh_file(path, file, (asked or datetime.now()).date())
    for line in found.changed:
        click.echo(line)
    click.echo(f"{len(found.changed)} changed in {path}; {len(found.missing)} open bugs have no entry")
    for line in found.missing:
        click.echo(f"    {line}")


def _chosen(exported: ExportedFolder, wanted: Sequence[str], given: dict[str, Path], notes: list[str]) -> list[Release]:
    names = [name for name in wanted if name != "all"]
    if not wanted and not given:
        if not RELEASES[exported.to]:
            raise click.UsageError(f"no releases of {exported.to} are listed: give interpreters with --python {_PYTHONS}")
        last = None
        try:
            last = newest(exported.to)
        except Unavailable as reason:
            notes.append(f"Whether there is a newer release was not asked: {reason}.")
        return chosen(exported.to, exported.own, last)
    listed = RELEASES[exported.to] if "all" in wanted else ()
    return ordered([*listed, *(_release(exported.to, name) for name in (*names, *given))])


def _release(to: str, version: str) -> Release:
    with _as_usage_error(f"{to}: "):
        return release(to, version)


@contextmanager
def _as_usage_error(before: str = "") -> Iterator[None]:
    """Turn a ValueError of the block into an error of usage."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{before}{error}") from error


def _given(pythons: Sequence[str]) -> dict[str, Path]:
    made: dict[str, Path] = {}
    for one in pythons:
        version, _, path = one.partition("=")
        if not path or not Path(path).is_file():
            raise click.UsageError(f"--python must be {_PYTHONS}, with a file, was {one!r}")
        made[version] = Path(path).absolute()
    return made


def _found(places: Sequence[Path], to: str | None) -> list[ExportedFolder]:
    with _as_usage_error():
        found = [one for one in find(places) if to in {None, one.to}]
    if not found:
        raise click.UsageError(f"no exported folder{f' for {to}' if to else ''} in {', '.join(map(str, places))}")
    return found
