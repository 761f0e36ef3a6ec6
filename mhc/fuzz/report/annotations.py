"""Annotations of GitHub: lines that its runner shows beside the source, and the summary of a job."""

import ast
from contextlib import suppress
from pathlib import Path

from mhc.fuzz.report.stored_run import Run
from mhc.fuzz.report.words import bounded, cut, plural

_LARGEST = 1 << 20  # bytes of a source file that is searched, and of a summary: GitHub drops a larger one


def annotations(run: Run, most: int, root: Path) -> str:
    """Return a line for each fault of the harness and each new finding, `most` at most, and a line for those left out.

    A finding is shown at the line that defines its implementation, where that is a file in `root`.

    Args:
        root: the folder of the checkout, to which the runner takes paths to be relative.
    """
    lines = [
        *(_line("error", "mhc-fuzz: fault of the harness", bounded(fault.line)) for fault in run.faults),
        *(
            _line(
                "error",
                f"mhc-fuzz: {found.title}",
                f"{found.message}\n{found.shape}\n{found.stability}\n{found.replay}",
                defined_in(found.finding.spec, root),
            )
            for found in run.new_findings
        ),
    ]
    left = len(lines) - most
    lines = lines[:most]
    if left > 0:
        lines.append(_line("notice", "mhc-fuzz", f"{plural(left, 'more finding')}: see the summary of the job"))
    return "".join(f"{line}\n" for line in lines)


def summary(text: str) -> str:
    """Return the summary of a job: `text`, cut where GitHub would drop it."""
    data = text.encode()
    note = "\n\nThe rest is in summary.md of the run's folder.\n"
    return text if len(data) < _LARGEST else data[: _LARGEST - len(note) - 1].decode(errors="ignore") + note


def defined_in(spec: str, root: Path) -> tuple[str, int] | None:
    """Return the file below `root`, relative to it, and the line that define an implementation; imports nothing.

    None if there is no such file, as for a built-in implementation.

    Args:
        spec: FILE.py:NAME, relative to the current folder, or package.module:NAME, in it or in `src`.
    """
    place, _, name = spec.partition("[")[0].rpartition(":")
    module = place.replace(".", "/")
    ways = [place] if place.endswith(".py") else [f"{module}.py", f"{module}/__init__.py"]
    candidates = [Path(folder, way) for folder in ("", "src") for way in ways]
    for path in candidates if place else ():
        with suppress(OSError, ValueError, SyntaxError, RecursionError):
            inside = path.resolve(strict=True).relative_to(root.resolve())
            with path.open("rb") as file:
                tree = ast.parse(file.read(_LARGEST))
            return str(inside), next((node.lineno for node in tree.body if name in _names(node)), 1)
    return None


def _names(node: ast.stmt) -> set[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for one in targets if isinstance(one, ast.Name)}


def _line(kind: str, title: str, message: str, where: tuple[str, int] | None = None) -> str:
    properties = {"file": where[0], "line": where[1]} if where else {}
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in {**properties, "title": cut(title, 200)}.items())
    return f"::{kind} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
