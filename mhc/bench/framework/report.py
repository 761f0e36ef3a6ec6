"""The result of planted faults: score, by module, by operator, and every survivor with its reason."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from mhc.bench.framework.faults import Fault
from mhc.bench.framework.plant import LEFT_OUT, Attempt, Measured
from mhc.bench.framework.waivers import WAIVERS
from mhc.bench.markdown import table
from mhc.bench.verbs import today
from mhc.environment import environment


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault and its attempt."""

    fault: Fault
    attempt: Attempt

    @property
    def reason(self) -> str:
        """Return why it may survive; "" where no reason is known."""
        return WAIVERS.get(self.fault.module, {}).get(self.fault.diff(), "")

    @property
    def unexplained(self) -> bool:
        return not self.attempt.killed and not self.reason


def line(fault: Fault, attempt: Attempt) -> str:
    """Return the line for the terminal."""
    by = f" by {attempt.by}" if attempt.by else ""
    return f"{attempt.status}{by} ({attempt.tests} tests, {attempt.seconds:.0f} s)  {fault.name}  {fault.diff()}"


def measured_line(one: Measured) -> str:
    """Return the line for the terminal."""
    failed = f", {len(one.failed)} fail unedited" if one.failed else ""
    return f"{one.name}: {len(one.tests)} tests, {sum(one.tests.values()):.0f} s{failed}"


def render(rows: Sequence[Row], missing: int, measures: Sequence[Measured], *, command: str, budget: float) -> str:
    """Return the page.

    Args:
        missing: how many faults were drawn and not run. budget: seconds of tests that each got at most.
    """
    here = environment()
    survivors = [row for row in rows if not row.attempt.killed]
    killed, unexplained = len(rows) - len(survivors), sum(row.unexplained for row in rows)
    not_run = f" {missing} more were drawn and not run." if missing else ""
    left_out = ["- `test_tilelang*`: compiles for long", *(f"- `{name}`: {reason}" for name, reason in LEFT_OUT.items())]
    parts = [
        "# Single-line faults in the framework itself",
        f"    {command}",
        f"{today()}, Python {here.python}, torch {here.packages['torch']}, hypothesis {here.packages['hypothesis']}, pytest "
        f"{version('pytest')}.",
        f"**{killed} of {len(rows)} faults are noticed by the tests: {killed / max(len(rows), 1):.1%}.** Without the"
        f" survivors that change no behaviour ({len(survivors) - unexplained}, each with its reason below):"
        f" **{killed / max(killed + unexplained, 1):.1%}**.{not_run}",
        f"""\
A fault is one edit of one line, drawn by a seed from the syntax trees; a module gets as many as its share of the
sites. It is given to the tests that execute its line, the quickest first, up to {budget:.0f} s of them, until
one fails that passes without the fault. Hypothesis draws the same cases each time. Uncovered: no test executes
the line. Survivors that change nothing are listed in `mhc/bench/framework/waivers.py`.""",
        "## Survivors",
        _survivors(survivors) if survivors else "None.",
        "## By operator",
        _counts("operator", rows, lambda row: row.fault.operator),
        "## By module",
        _counts("module", rows, lambda row: row.fault.module),
        "## Tests",
        f"{sum(len(one.tests) for one in measures)} test functions of {len(measures)} modules are used."
        " Not used, since they are slow or about something else:",
        "\n".join(left_out),
    ]
    failed = [f"- {name}" for one in measures for name in one.failed]
    if failed:
        parts += ["Failing without a fault, and so not used:", "\n".join(failed)]
    return "\n\n".join(parts) + "\n"


def _survivors(rows: Iterable[Row]) -> str:
    cells = [
        (
            row.fault.name,
            f"`{row.fault.diff()}`",
            f"{row.attempt.status}, {row.attempt.tests} tests",
            row.reason or "not understood yet",
        )
        for row in rows
    ]
    return table(("fault", "edit", "status", "reason"), cells)


def _counts(what: str, rows: Sequence[Row], of: Callable[[Row], str]) -> str:
    found: dict[str, list[bool]] = {}
    for row in sorted(rows, key=of):
        found.setdefault(of(row), []).append(row.attempt.killed)
    cells = [(name, str(len(them)), str(sum(them)), f"{sum(them) / len(them):.0%}") for name, them in found.items()]
    return table((what, "faults", "killed", ""), cells)
