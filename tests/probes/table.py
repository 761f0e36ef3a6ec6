"""The tables of docs/tilelang/notes-revisited.md, from the records. `python -m tests.probes.table` writes them."""

from pathlib import Path

from .limits import LIMITS
from .notes import NOTES
from .outcomes import Probe

PAGE = Path(__file__).parents[2] / "docs" / "tilelang" / "notes-revisited.md"
HEAD = "| probe | reported | on 0.1.8 | whose | why | instead |\n|---|---|---|---|---|---|\n"
REPRODUCES = {"yes": "reproduces", "no": "**does not reproduce**", "in part": "in part"}
BEGIN, END = "<!-- written by python -m tests.probes.table -->\n", "<!-- until here -->\n"


def row(probe: Probe) -> str:
    """One probe."""
    cells = (probe.reported, REPRODUCES[probe.reproduces], probe.whose, probe.why, probe.instead)
    link = f"[{probe.name}](../../tests/probes/{probe.name}.py)"
    return "| " + " | ".join([link, *(cell.replace("|", "\\|") for cell in cells)]) + " |\n"


def outcomes(probe: Probe) -> str:
    """Its steps, each with the outcome that the suite wants."""
    lines = [f"  - `{step}`: {str(wanted).replace('|', chr(92) + '|')}\n" for step, wanted in probe.steps.items()]
    return f"- **{probe.name}**\n" + "".join(lines)


def table() -> str:
    """All that the page has from the records."""
    parts = []
    for title, probes in (("## What the notes reported", NOTES), ("## What else 0.1.8 lacks or gets wrong", LIMITS)):
        parts.append(f"{title}\n\n{HEAD}" + "".join(map(row, probes)) + "\n")
    return "".join(parts) + "## Each step and its outcome\n\n" + "".join(map(outcomes, (*NOTES, *LIMITS)))


if __name__ == "__main__":
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + table() + END + after)
