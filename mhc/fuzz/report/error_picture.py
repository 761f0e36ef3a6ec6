"""Draw where a tensor is wrong: error / bound over its rows and columns, with the edges of tiles that the schedule names."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mhc.case import Case
from mhc.drawn_case import DrawnCase
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.report.pictures import Label, Path, Picture
from mhc.fuzz.report.words import count, cut, plural, short
from mhc.operator import Operator
from mhc.oracles.error_map import CLASS, EDGES, NOT_JUDGED, SCALE, ErrorMap, block

_WIDTH, _HEIGHT = 300.0, 210.0  # of the largest map: it fits a telephone unscaled
_LEFT, _TOP, _BELOW = 36, 6, 18
_CELL = 18.0  # side of the largest cell
_LAP = 0.4  # by which a cell reaches below the next ones, so that no gap shows
_APART = 3.0  # edges of tiles are not drawn closer than this
_LEAST = 8  # elements of a minimal case that are worth a map; the message names the worst of fewer


def _power(edge: float) -> str:
    """Return a power of ten in few characters."""
    return f"{edge:g}" if edge <= 100 else f"10{str(round(math.log10(edge))).translate(_RAISED)}"


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
WORDS = {
    **{letter: f"≤ {_power(edge)}" for letter, edge in zip(SCALE, EDGES, strict=False)},
    SCALE[-1]: f"> {_power(EDGES[-1])}, or the bound is 0",
    CLASS: "NaN or infinite, or the reference is",
    NOT_JUDGED: "not judged",
}
"""What a cell's letter says of the largest error / bound in it."""
CLASSES = {letter: f"e{SCALE.index(letter)}" for letter in SCALE} | {CLASS: "nan", NOT_JUDGED: "unjudged"}


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Edges of tiles along rows or columns. name, size: of the schedule's entry. starts: of tiles after the first."""

    name: str
    size: int
    of_rows: bool
    starts: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class ErrorPicture:
    """A map of errors with its words.

    Attributes:
        title: of which case. summary: how many elements are wrong, and between which rows and columns.
        axes: what the rows and columns are. schedule: the schedule, and which edges of tiles are drawn.
        cells: how many cells have each letter. text: the letters.
    """

    title: str
    picture: Picture
    summary: str
    axes: str
    schedule: str
    cells: dict[str, int]
    text: str


def error_pictures(found: Finding) -> list[ErrorPicture]:
    """Return the maps of a finding: of the case as drawn, and of the minimal one if it has more than a few elements."""
    drawn, errors = found.drawn, found.errors
    pictures = []
    if drawn is not None and drawn.errors is not None and math.prod(drawn.errors.shape) > 1:
        pictures.append(_picture("As it was drawn", drawn.case, drawn.errors, found.fingerprint))
    if errors is not None and math.prod(errors.shape) >= (_LEAST if drawn is not None else 2):
        title = "Minimal" if drawn is not None or found.reduction is not None else "As it was drawn"
        pictures.append(_picture(title, found.case, errors, found.fingerprint))
    return pictures


def _picture(title: str, case: DrawnCase, errors: ErrorMap, fingerprint: Fingerprint) -> ErrorPicture:
    tiles = tile_edges(case, errors, fingerprint)
    text = "".join(errors.cells)
    (top, bottom), (left, right) = errors.rows, errors.columns
    summary = f"{count(errors.wrong)} of {plural(errors.judged, 'judged element')} wrong"
    summary += f": rows {count(top)} to {count(bottom)}, columns {count(left)} to {count(right)}"
    if bottom == top and left == right:
        summary = f"{summary.partition(':')[0]}: row {count(top)}, column {count(left)}"
    return ErrorPicture(
        title=f"{title}: {case.words}",
        picture=draw(fingerprint.subject, errors, tiles),
        summary=summary,
        axes=_axes(case, errors, fingerprint),
        schedule=_schedule(case, tiles, fingerprint),
        cells={letter: text.count(letter) for letter in WORDS if letter in text},
        text="\n".join(errors.cells),
    )


def draw(subject: str, errors: ErrorMap, tiles: Sequence[Tiles] = ()) -> Picture:
    """Draw the cells, a path for each letter, and the edges of tiles where they are far enough apart."""
    height, width = errors.matrix
    high, wide = len(errors.cells), len(errors.cells[0])
    across, down = min(_CELL, _WIDTH / wide), min(_CELL, _HEIGHT / high)
    right, bottom = _LEFT + across * wide, _TOP + down * high
    picture = Picture(f"{cut(subject, 80)}: error / bound", round(right + 6), round(bottom + _BELOW))
    for letter, words in WORDS.items():
        runs = list(_runs(errors.cells, letter))
        if not runs:
            continue
        shape = "".join(
            f"M{_LEFT + at * across:.2f} {_TOP + row * down:.2f}h{across * long + _LAP:.2f}v{down + _LAP:.2f}"
            f"h-{across * long + _LAP:.2f}z"
            for row, at, long in runs
        )
        title = f"error / bound {words}" if letter in SCALE else words
        picture.paths.append(Path(shape, CLASSES[letter], f"{title}: {plural(sum(long for *_, long in runs), 'cell')}"))
        if letter == CLASS:
            strokes = "".join(
                f"M{_LEFT + cell * across:.2f} {_TOP + row * down:.2f}l{across:.2f} {down:.2f}"
                for row, at, long in runs
                for cell in range(at, at + long)
            )
            picture.paths.append(Path(strokes, "stroke", title))
    for one in tiles:
        step = down / block(height) if one.of_rows else across / block(width)
        begin = _TOP if one.of_rows else _LEFT
        places = [begin + step * start for start in one.starts]
        end = f"H{right:.2f}" if one.of_rows else f"V{bottom:.2f}"
        path = "".join(f"M{_LEFT} {at:.2f}{end}" if one.of_rows else f"M{at:.2f} {_TOP}{end}" for at in places)
        if places and _far_enough(one, step):
            picture.paths.append(Path(path, "tile", f"tiles of {one.name} = {one.size}"))
    picture.paths.append(Path(f"M{_LEFT} {_TOP}H{right:.2f}V{bottom:.2f}H{_LEFT}z", "frame", picture.title))
    picture.labels.append(Label(_LEFT - 5, _TOP + min(down, 12) / 2 + 4, "0"))
    picture.labels.append(Label(_LEFT + min(across, 12) / 2, bottom + 13, "0", "middle"))
    if high > 1:
        picture.labels.append(Label(_LEFT - 5, bottom - min(down, 12) / 2 + 4, short(height - 1)))
    if wide > 1:
        picture.labels.append(Label(right, bottom + 13, short(width - 1)))
    return picture


def _far_enough(tiles: Tiles, step: float) -> bool:
    ends = [0, *tiles.starts]
    return min(after - before for before, after in zip(ends, tiles.starts, strict=False)) * step >= _APART


def _runs(cells: Sequence[str], letter: str) -> Iterator[tuple[int, int, int]]:
    """Yield row, column and length of each run of a letter."""
    for row, line in enumerate(cells):
        at = 0
        for one, group in groupby(line):
            long = len(list(group))
            if one == letter:
                yield row, at, long
            at += long


def tile_edges(case: DrawnCase, errors: ErrorMap, fingerprint: Fingerprint) -> list[Tiles]:
    """Return the tiles of the pinned schedule that can be matched to axes of the tensor.

    An entry matches if nothing is left of its name but one word, without the stage and words such as "block": a symbol of
    the tensor; "tokens"; "rows" or "m", "columns" or "n" (unless these are symbols of another tensor).
    """
    symbols = _symbols(case, errors, fingerprint)
    if symbols is None or not isinstance(case, Case):
        return []
    shape, (height, width) = errors.shape, errors.matrix
    other = "backward" if fingerprint.subject in {spec.name for spec in case.table.outputs} else "forward"
    found = []
    for name, size in _pinned(case, fingerprint).items():
        words = [one for one in re.split(r"_+", name) if one.lower() not in _NO_AXIS | {"forward", "backward"} - {other}]
        if len(words) != 1 or isinstance(size, bool) or not isinstance(size, int) or size < 1:
            continue
        word = words[0]
        alike = [at for at, one in enumerate(symbols) if one == word] or [
            at for at, one in enumerate(symbols) if one.lower() == word.lower()
        ]
        elsewhere = word.lower() in {one.lower() for one in case.sizes}
        tokens = [one for one in case.table.tokens if one in case.sizes]
        rows = True
        if len(alike) == 1 and alike[0] == len(shape) - 1:
            rows, starts = False, _starts((width, 1), 0, 1, size)
        elif len(alike) == 1:
            starts = _starts(shape, alike[0], alike[0] + 1, size)
        elif word.lower() == "tokens" and tokens and symbols[: len(tokens)] == tokens and len(tokens) < len(shape):
            starts = _starts(shape, 0, len(tokens), size)
        elif word.lower() in _ROWS and not elsewhere:
            starts = _starts((height, 1), 0, 1, size)
        elif word.lower() in _COLUMNS and not elsewhere:
            rows, starts = False, _starts((width, 1), 0, 1, size)
        else:
            continue
        found.append(Tiles(name=name, size=size, of_rows=rows, starts=starts))
    return found


_NO_AXIS = frozenset({"block", "blk", "tile", "size"})
_ROWS, _COLUMNS = frozenset({"m", "rows"}), frozenset({"n", "columns", "cols"})


def _starts(shape: Sequence[int], first: int, end: int, size: int) -> list[int]:
    """Return the rows at which tiles begin that take `size` of the axes from `first` to `end`, together.

    None if there are too many to be drawn.
    """
    inner, long, outer = math.prod(shape[end:-1]), math.prod(shape[first:end]), math.prod(shape[:first])
    if outer * math.ceil(long / size) > _MOST_EDGES:
        return []
    return [inner * (one * long + at) for one in range(outer) for at in range(0, long, size)][1:]


_MOST_EDGES = 128  # more are never far enough apart


def _symbols(case: DrawnCase, errors: ErrorMap, fingerprint: Fingerprint) -> list[str] | None:
    """Return the symbols of the tensor's axes; None where they are not known."""
    if not isinstance(case, Case):
        return None
    table: Operator = case.table
    spec = table.result_specs.get(fingerprint.subject)
    if spec is None or spec.shape(case.sizes) != errors.shape:
        return None
    return [one for one in spec.symbols if one.isdigit() or one in case.sizes]


def _axes(case: DrawnCase, errors: ErrorMap, fingerprint: Fingerprint) -> str:
    height, width = errors.matrix
    symbols = _symbols(case, errors, fingerprint)
    shape = ", ".join(map(str, errors.shape))
    if not symbols:
        return f"shape [{shape}] as {plural(height, 'row')} and {plural(width, 'column')}"
    rows = " x ".join(symbols[:-1]) or "none"
    each = f"; a cell is {block(height)} x {block(width)}" if block(height) * block(width) > 1 else ""
    return f"{cut(fingerprint.subject, 80)} [{', '.join(symbols)}] = [{shape}]; rows {rows}, columns {symbols[-1]}{each}"


def _schedule(case: DrawnCase, tiles: Sequence[Tiles], fingerprint: Fingerprint) -> str:
    pinned = _pinned(case, fingerprint) if isinstance(case, Case) else {}
    if not pinned:
        return "none was pinned, so edges of tiles are not known"
    words = cut(", ".join(f"{name} = {value}" for name, value in pinned.items()), 600)
    edges = ", ".join(f"{one.name} on {'rows' if one.of_rows else 'columns'}" for one in tiles)
    return f"{words}; edges of tiles: {edges or 'none could be matched to an axis'}"


def _pinned(case: Case, fingerprint: Fingerprint) -> dict[str, object]:
    return dict(case.schedules.get(fingerprint.implementation, {}))
