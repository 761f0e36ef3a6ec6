"""A detection run as Markdown: what was killed how soon, by which oracle, what survives, and what the usual suites find."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import median

import torch

from mhc.bench.detection.hunt import SHARES, Hunt, Subject
from mhc.bench.detection.score import Row, Score
from mhc.bench.detection.sets import KNOWN, THRESHOLDS
from mhc.bench.detection.suites import COMPARATORS, FIXED, FULL_SIZE, Fixed
from mhc.bench.markdown import table
from mhc.bench.verbs import hardware, today
from mhc.oracles.mutants.catalogue import MUTANTS, NEEDS_A_GPU
from mhc.oracles.mutants.thresholds import threshold

_table = partial(table, rule=" --- ")
_MESSAGE = 110
_BANDS = (1, 512, 2048, 8192, 32768)
"""Where bands of thresholds begin."""


def render(
    score: Score,
    *,
    command: str,
    count: int,
    seed: int,
    picture: str,
    device: str = "cpu",
    thresholds: int | None = None,
) -> str:
    """Return the whole document.

    Args:
        thresholds: the seed of the mutants whose thresholds are drawn.
    """
    parts = [
        _header(score, command, count, seed, device),
        f"![kills against cases]({picture})",
        "## Compared with test suites on fixed shapes",
        _suites(score),
        *(["## Thresholds that a seed drew", _thresholds(score, thresholds)] if THRESHOLDS in score.sets else []),
        "## Oracles",
        _oracles(score),
        "## Survivors",
        _survivors(score, count),
        "## Clean variants",
        _clean(score),
        "## Kill matrix",
        _matrix(score),
        "## Not counted",
        _elsewhere(device),
    ]
    if score.faults:
        parts += ["## Faults of the harness", "\n".join(f"- {hunt.name}: {hunt.fault}" for hunt in score.faults)]
    return "\n\n".join(parts) + "\n"


def line(prey: Subject, hunt: Hunt) -> str:
    """Return one hunt as a line for a terminal."""
    if hunt.first is None:
        verdict = f"clean, {hunt.checked} checks" if prey.clean else f"survived {hunt.cases} cases"
    else:
        verdict = f"FALSE ALARM at case {hunt.first}" if prey.clean else f"killed at case {hunt.first}, {hunt.seconds:.1f} s"
    fired = ", ".join(hunt.fired)
    return f"{hunt.name:36} {verdict:28} {fired}  {hunt.fault or hunt.message}"[:240].rstrip()


def _header(score: Score, command: str, count: int, seed: int, device: str) -> str:
    killed, total = len(score.killed), len(score.mutants) - len(score.equivalent)
    mutants, dead = (Counter(row.mutant.base for row in rows) for rows in (score.mutants, score.killed))
    bases = ", ".join(f"{dead[base]} of {mutants[base]} {base}" for base in score.bases if mutants[base])
    by_set = "; ".join(f"{name}: {sum(row.killed for row in rows)} of {len(rows)}" for name, rows in score.sets.items())
    where = hardware(device)
    shares = SHARES["cuda" if device == "cuda" else "quick"]
    wide = ", ".join(f"2^{share.elements.bit_length() - 1} in {reach.value} rounds" for reach, share in shares.items())
    firsts = [row.hunt.first or 0 for row in score.killed] or [0]
    times = [row.hunt.seconds for row in score.killed] or [0.0]
    alarms = len(score.alarms)
    rate = f"at most {3 / score.checks:.2g} with 95 % confidence" if score.checks and not alarms else "see below"
    apart = f" (and {len(score.equivalent)} break no promise)" if score.equivalent else ""
    return f"""# Detection: known-bad implementations and what kills them

How soon each known-bad implementation is found with drawn cases, which gates find it, and how often a right one is accused.

{today()}, {where}, torch {torch.__version__}

    {command}

- **{killed} of {total} mutants killed**{apart} within {count} drawn cases each ({bases}); median
  {median(firsts):g} cases and {median(times):.1f} s to the first kill, at most {max(firsts)} cases.
- By set (what each is stands below): {by_set}.
- **{alarms} false alarms in {score.checks} clean (case, implementation) checks** on {where} ({rate}).

A mutant is one edit of the source of a real implementation: the formula in plain PyTorch (manual), the Triton kernels in
their interpreter (triton), the serial TileLang kernels compiled for the CPU (tilelang), for other operators kernels in
plain PyTorch (under the operator's name). Each runs in a worker process as in
a campaign, on the cases of the campaign's own strategy (seed {seed}, the same for every mutant of a base; tensors of at
most 2^15 elements, in the interpreter of 2^11 but for every eighth round; {wide},
in the interpreter 2^13 and 2^15), judged by the campaign's own gates, until a case kills it; that case is then
judged by every gate (but not in the interpreter, where that takes minutes).
Seconds are wall time from the first case: with compilation, without the start of the process."""


def _suites(score: Score) -> str:
    columns = _columns(score)
    ours = [_share(sum(row.killed for row in rows), len(rows)) for rows in columns.values()]
    lines = [["drawn cases, these oracles", *ours, _share(len(score.alarms), len(score.correct))]]
    for suite in COMPARATORS:
        few = [_share(sum(suite in row.few for row in rows), _ran(rows)) for rows in columns.values()]
        lines.append([f"fixed shapes, few tokens, {suite}", *few, ""])
    for suite in COMPARATORS:
        real = [_share(sum(suite in row.suites for row in rows), _ran(rows)) for rows in columns.values()]
        lines.append([f"fixed shapes, real token counts too, {suite}", *real, _share(*score.suite_alarms(suite))])
    head = ["killed", *columns, "clean variants flagged"]
    known = "\n".join(f"- {name}: {KNOWN[name]}" for name in score.sets)
    return f"""The same mutants on fixed shapes, those of TileLang's and Liger-Kernel's tests, x ~ N(0, 1), all parameters
random, against the golden implementation in the same dtypes. B,S,n,D with few tokens:
{_shapes(FIXED)}
(in the interpreter without the last two); with the token counts of such tests, not in the interpreter:
{_shapes(FULL_SIZE)}.
A suite kills a mutant if a test fails that passes on the unedited implementation. A test that fails there too is a false
alarm. Hidden: bugs that x ~ N(0, 1), alpha about 1 or a tolerance of 1e-2 hides, of any set.

What was known when strategies and gates were written:

{known}

{_table(head, lines)}"""


def _ran(rows: Sequence[Row]) -> int:
    """Return on how many mutants the fixed suites ran: those of mHC pre."""
    return sum(bool(row.hunt.suites) for row in rows)


def _columns(score: Score) -> dict[str, list[Row]]:
    """Return the mutants that a column counts, by its title."""
    sample = {f"{name}, {KNOWN[name].split('.')[0].split(' ')[0].lower()}": rows for name, rows in score.sets.items()}
    return {**sample, "all": list(score.mutants), "hidden": [row for row in score.mutants if row.mutant.hidden]}


def _shapes(tests: Sequence[Fixed]) -> str:
    return ", ".join(f"{one.B},{one.S},{one.n},{one.D} {one.dtype}" for one in tests)


def _thresholds(score: Score, seed: int | None) -> str:
    """Return how many are found, by the octave of the threshold, and each."""
    rows = score.sets[THRESHOLDS]
    bands = []
    for low, high in zip(_BANDS, (*_BANDS[1:], 1 << 62), strict=True):
        inside = [row for row in rows if low <= threshold(row.mutant)[1] < high]
        said = f"{low} to {high - 1}" if high < 1 << 62 else f"{low} and more"
        found = [sum(row.killed for row in inside), *(sum(suite in row.suites for row in inside) for suite in COMPARATORS)]
        bands.append([said, *(_share(many, len(inside)) for many in found)])
    each = []
    for row in sorted(rows, key=lambda row: threshold(row.mutant)[1]):
        symbol, value = threshold(row.mutant)
        each.append([f"{symbol} {value}", row.mutant.bug, *_first_kill(row), *_by_suite(row)])
    head = ["threshold", "drawn cases, these oracles", *(f"fixed shapes, {suite}" for suite in COMPARATORS)]
    return f"""`--thresholds {seed}`: each of these templates twice, with thresholds log-uniform from 64 up to the limit
of its symbol (D 8,192, K 32,768, tokens 131,072), each hunted with cases of its own. Fixed shapes are with the real
token counts too.

{_table(head, bands)}

{_table(["threshold", "bug", "first kill", "s", *COMPARATORS], each)}"""


def _oracles(score: Score) -> str:
    fired = [list(row.hunt.fired) for row in score.mutants]
    lines = [[name, _share(many, len(fired)), str(fired.count([name]))] for name, many in score.oracles.items()]
    return _table(["oracle", "mutants it fails", "that no other fails"], lines)


def _survivors(score: Score, count: int) -> str:
    rows = [*score.survivors, *score.equivalent]
    if not rows:
        return f"None in {count} cases."
    lines = [[row.mutant.name, row.mutant.base, row.mutant.bug, str(row.hunt.checked), _why(row)] for row in rows]
    return _table(["mutant", "base", "bug", "cases checked", "why it survives"], lines)


def _why(row: Row) -> str:
    if row.mutant.equivalent:
        return f"equivalent: {row.mutant.equivalent}"
    return row.hunt.fault or row.mutant.gap or "not understood yet"


def _clean(score: Score) -> str:
    lines = [["(unedited)", base, "", *_clean_cells(hunt)] for base, hunt in score.bases.items()]
    lines += [[row.mutant.name, row.mutant.base, row.mutant.bug, *_clean_cells(row.hunt)] for row in score.clean]
    return _table(["variant", "base", "what differs", "checked", "largest error / bound", "flagged"], lines)


def _clean_cells(hunt: Hunt) -> list[str]:
    message = hunt.message if len(hunt.message) <= _MESSAGE else f"{hunt.message[: _MESSAGE - 3]}..."
    return [str(hunt.checked), f"{hunt.worst:.3g}", "no" if hunt.first is None else f"case {hunt.first}: {message}"]


def _matrix(score: Score) -> str:
    oracles = list(score.oracles)
    lines = []
    for row in score.mutants:
        fired = [_fired(row.hunt.fired.get(oracle), row.hunt.first) for oracle in oracles]
        bug = row.mutant.bug + _seen(row.mutant.source)
        lines.append([row.mutant.name, row.mutant.base, bug, *_first_kill(row), *fired, *_by_suite(row)])
    return f"""For each oracle the number of the case in which it first failed the mutant, in bold where that was the first
kill; for each of the fixed suites whether it finds it.

{_table(["mutant", "base", "bug", "first kill", "s", *oracles, *COMPARATORS], lines)}"""


def _elsewhere(device: str) -> str:
    """Return the bug classes that have no mutant; on the CPU also mutants that need a GPU."""
    lines = [f"- {one.bug}{_seen(one.source)}: {one.reason}." for one in NEEDS_A_GPU]
    if device == "cpu":
        far = [one for one in MUTANTS if one.device != "cpu"]
        lines += [f"- {one.name}: {one.bug}{_seen(one.source)}: hunted with `--device {one.device}`." for one in far]
    return "\n".join(lines)


def _first_kill(row: Row) -> list[str]:
    return [str(row.hunt.first), f"{row.hunt.seconds:.1f}"] if row.killed else ["survives", ""]


def _by_suite(row: Row) -> list[str]:
    return ["killed" if suite in row.suites else "-" for suite in COMPARATORS]


def _fired(at: int | None, first: int | None) -> str:
    return "" if at is None else f"**{at}**" if at == first else str(at)


def _seen(source: str) -> str:
    return f" ({source})" if source else ""


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "-"
