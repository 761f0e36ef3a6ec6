"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], rule: str | Sequence[str] = "---") -> str:
    """Return a table; a bar in a cell is escaped. rule: below the head, for all columns or for each."""
    below = [rule] * len(head) if isinstance(rule, str) else rule
    lines = [f"| {' | '.join(_escaped(cell) for cell in cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0].replace("|  |", "| |"), f"|{'|'.join(below)}|", *lines[1:]])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns are padded, all but the first to the right: it reads well in a terminal too."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]

    def padded(cells: Sequence[str]) -> str:
        right = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *right[1:]])} |"

    rule = ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    return "\n".join([padded(head), f"|{'|'.join(rule)}|", *map(padded, rows)])
