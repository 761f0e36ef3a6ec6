"""The page of the verb `programs`: two evaluators, planted faults, and coverage."""

from collections import Counter
from collections.abc import Iterable, Sequence

from mhc.bench.markdown import table
from mhc.bench.programs.coverage import PAIRS, SINGLES, Covered, excluded
from mhc.bench.programs.evaluators import Compared
from mhc.bench.programs.faults import FAULTS
from mhc.bench.programs.hunt import Hunted, Lowered
from mhc.bench.programs.plant import GENERATED, PLAIN, Fault
from mhc.bench.verbs import today
from mhc.environment import environment
from mhc.fuzz.worker.program_session import features_of
from mhc.programs.targets import target_named

_NO = "no"


def render(
    compared: Sequence[Compared],
    lowered: Sequence[Lowered],
    hunted: Sequence[Hunted],
    covered: Sequence[Covered],
    command: str,
) -> str:
    """Return the page; a part that was not run is left out."""
    here = environment()
    parts = [
        "# Programs: how well they test",
        "Whether the drawn programs and the evaluator that judges compilers can be trusted: two evaluators against each "
        "other, planted faults, and what is drawn for each target.",
        f"    {command}",
        f"{today()}, Python {here.python}, Hypothesis {here.packages['hypothesis']}. "
        "[What is drawn and judged](../programs.md).",
    ]
    if compared:
        parts += evaluators(compared)
    if hunted:
        parts += faults(lowered, hunted)
    if covered:
        parts += coverage(covered)
    return "\n\n".join(parts) + "\n"


def evaluators(compared: Sequence[Compared]) -> list[str]:
    """Return the section on the two evaluators."""
    rows = []
    for kind in dict.fromkeys(one.kind for one in compared):
        mine = [one for one in compared if one.kind == kind]
        programs, seconds = sum(one.judged for one in mine), sum(one.seconds for one in mine)
        distinct, outputs, different = (
            sum(one.distinct for one in mine),
            sum(one.outputs for one in mine),
            sum(len(one.differences) for one in mine),
        )
        numbers = f"{programs:,}", f"{distinct:,}", f"{outputs:,}", f"{different}", f"{programs / seconds:.0f}"
        rows.append((f"`{kind}`", *numbers))
    differences = [f"- {message}\n  `{program}`" for one in compared for program, message in one.differences]
    total = sum(one.judged for one in compared)
    return [
        "## Two evaluators",
        f"`plain-c` renders a program as C of our own, which gcc compiles. It shares nothing with the evaluator in Python "
        f"but the grammar, checks overflows, indices, shifts and divisions itself, and runs blocks, parallel iterations, "
        f"sums and copies in the opposite order. **{total:,} programs, {sum(len(one.differences) for one in compared)} "
        "differences.**",
        table(
            ("drawn as for kind", "programs", "distinct", "outputs compared", "differences", "a second, one core"),
            rows,
            ("---", *["---:"] * 5),
        ),
        f"Programs are drawn in rounds of ten as in a campaign; distinct ones are counted within each {_chunk(compared)}.",
        *differences,
    ]


def _chunk(compared: Sequence[Compared]) -> int:
    return max(one.judged for one in compared)


def faults(lowered: Sequence[Lowered], hunted: Sequence[Hunted]) -> list[str]:
    """Return the section on planted faults."""
    by_name = {one.name: one for one in FAULTS}
    known = [one for one in hunted if one.name in by_name]
    killed = [one for one in known if one.after]
    unexplained = survivors(known)
    drawn = Counter[str]()
    for one in lowered:
        drawn[one.name.split()[0]] += one.drawn
    rows = [_fault_row(by_name[one.name], one) for one in known]
    waiting = len(FAULTS) - len(known)
    explained = [f"- {one.name}: {by_name[one.name].why}." for one in known if not one.after and by_name[one.name].why]
    return [
        "## Planted faults",
        f"**{len(killed)} of {len(known)} faults are found**"
        f"{f'; {len(explained)} cannot be, for the reason below' if explained else ''}"
        f"{f'; **{len(unexplained)} survive**' if unexplained else ''}. Each is one edit: of the C that TileLang generates, "
        "of the source of a function of TileLang's front end or passes, of our text, or of our plain C, which runs on a CPU "
        f"what is compiled for CUDA only. The first {drawn['plain-c']:,} drawn programs are tried on plain C, the first "
        f"{drawn['tilelang-to-c']:,} on TileLang, without those that it gets wrong by itself."
        f"{f' {waiting} more faults were not run.' if waiting else ''}",
        "A program is minimised for a few seconds only: with more time it becomes smaller.",
        table(
            ("fault", "in", "found after", "nodes", "minimal", "operations of the minimal program"),
            rows,
            ("---", "---", "---:", "---:", "---:", "---"),
        ),
        *(["Survivors that break no promise:\n\n" + "\n".join(explained)] if explained else []),
    ]


def survivors(hunted: Iterable[Hunted]) -> list[Hunted]:
    """Return the faults that were not found and have no reason not to be."""
    why = {one.name: one.why for one in FAULTS}
    return [one for one in hunted if not one.after and not why.get(one.name)]


def _fault_row(fault: Fault, one: Hunted) -> tuple[str, ...]:
    if not one.after:
        return fault.name, _where(fault), "not" if fault.why else "**not**", "", "", ""
    symptom = "" if one.symptom == "wrong value" else f" ({one.symptom})"
    small = str(one.small) if one.small else ""
    return fault.name, _where(fault), str(one.after), str(one.nodes or ""), small, f"{one.operations}{symptom}"


def _where(fault: Fault) -> str:
    if fault.place == GENERATED:
        return "generated C"
    if fault.place.startswith(PLAIN):
        return "plain C"
    if fault.place.startswith("mhc."):
        return "our text"
    return "TileLang's passes" if ".phase:" in fault.place else "TileLang's front end"


def coverage(covered: Sequence[Covered]) -> list[str]:
    """Return the section on coverage."""
    specs = list(dict.fromkeys(one.spec for one in covered))
    counts, judged, names = _totals(covered, specs)
    missing = gaps(covered)
    head = [("judged of each target", *(f"{judged[spec]:,}" for spec in specs))]
    parts = [
        "## What is drawn for each target",
        "Programs that are judged, and how many of them have each production of the grammar. "
        f"{_NO}: the target cannot have it, for a reason below. "
        + (
            f"**{len(missing)} cells are 0**, of few judged programs where another target has it."
            if missing
            else "No cell is 0."
        ),
        table(("", *(names[spec] for spec in specs)), head, ("---", *["---:"] * len(specs))),
    ]
    for group, labels in SINGLES.items():
        rows = [(_label(one), *(_cell(one, spec, counts) for spec in specs)) for one in labels]
        parts.append(table((group, *(names[spec] for spec in specs)), rows, ("---", *["---:"] * len(specs))))
    rows = []
    for group, labels in PAIRS.items():
        cells = []
        for spec in specs:
            possible = [one for one in labels if not _excluded(one, spec)]
            cells.append(f"{sum(counts[spec][one] > 0 for one in possible)} of {len(possible)}")
        rows.append((group, *cells))
    parts += [
        "Pairs of an operation and a dtype, or of two dtypes, that at least one judged program has:",
        table(("pairs", *(names[spec] for spec in specs)), rows, ("---", *["---:"] * len(specs))),
    ]
    largest = max(specs, key=lambda spec: judged[spec])
    lacking = [
        one for labels in PAIRS.values() for one in labels if not counts[largest][one] and not _excluded(one, largest)
    ]
    parts.append(f"Pairs that no program for {names[largest]} has: {', '.join(lacking) or 'none'}.")
    whys = {_excluded(one, spec) for spec in specs for labels in SINGLES.values() for one in labels} - {""}
    parts.append("What a target cannot have:\n\n" + "\n".join(f"- {one}" for one in sorted(whys)))
    return parts


def gaps(covered: Sequence[Covered]) -> list[tuple[str, str]]:
    """Return the productions that no judged program of a target has, although one could."""
    specs = list(dict.fromkeys(one.spec for one in covered))
    counts, _, _ = _totals(covered, specs)
    return [
        (spec, one)
        for spec in specs
        for labels in SINGLES.values()
        for one in labels
        if not counts[spec][one] and not _excluded(one, spec)
    ]


def _totals(
    covered: Sequence[Covered], specs: Sequence[str]
) -> tuple[dict[str, Counter[str]], dict[str, int], dict[str, str]]:
    counts = {spec: Counter[str]() for spec in specs}
    for one in covered:
        counts[one.spec].update(one.productions)
    judged = {spec: sum(one.judged for one in covered if one.spec == spec) for spec in specs}
    names = {spec: next((one.target for one in covered if one.spec == spec and not one.ended), spec) for spec in specs}
    return counts, judged, names


def _excluded(production: str, spec: str) -> str:
    target = target_named(spec)
    assert target is not None
    return excluded(production, features_of(target))


def _cell(production: str, spec: str, counts: dict[str, Counter[str]]) -> str:
    if counts[spec][production]:
        return f"{counts[spec][production]:,}"
    return _NO if _excluded(production, spec) else "**0**"


def _label(production: str) -> str:
    for prefix in ("node ", "operation ", "loop ", "scope "):
        if production.startswith(prefix):
            rest = production.removeprefix(prefix)
            return f"`{rest}`" if prefix == "operation " else rest
    return production
