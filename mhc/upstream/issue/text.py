"""Compose the text of an issue: symptom, summary, program, values, and what was ruled out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mhc.files import replace_text

REPOSITORIES = {
    "tilelang": ("tile-ai/tilelang", "tile-ai/tvm", "apache/tvm"),
    "triton": ("triton-lang/triton",),
    "torch": ("pytorch/pytorch",),
}
"""The repositories that take reports on a DSL, its own first."""

SECTIONS = {"tvm": "TVM alone", "matrix": "Versions", "attribution": "Attribution", "duplicates": "Known issues"}
"""Files beside the issue, `NAME.md`, and the headings under which their text goes into it."""

PORTED = "repro-{}.py"
"""The program as a newer release takes it, where its interface has changed; `{}` is the release."""

_CLASSES = {"value": "wrong value", "class": "wrong NaN or infinity", "all zero": "all zeros"}
_SILENT = {*_CLASSES, "wrong value", "race", "hang"}
"""Symptoms of a program that compiles; with others the compiler refuses a valid program, or crashes."""
# what a section says before it is written; one that is not here is left out then
_NOT_YET = {
    "matrix": "Not run on other releases yet.",
    "attribution": "Not run under other settings yet: the program is the first suspect.",
    "duplicates": "Not compared with known issues yet.",
}


def symptom_class(symptom: str) -> str:
    """Return what a title calls a symptom."""
    return _CLASSES.get(symptom, symptom)


def title(document: Mapping[str, Any]) -> str:
    """Return one line: class of the symptom, where, of what; for TileLang with the tags that its tracker uses."""
    facts, symptom = document["told"], str(document["symptom"])
    where = ", ".join(filter(None, (facts["at"], facts["where"])))
    tags = (
        f"[BUG][Fuzzer][{'wrong-code' if symptom in _SILENT else 'ice-on-valid-code'}] "
        if document["to"] == "tilelang"
        else ""
    )
    return f"{tags}{symptom_class(symptom)}: {where}"


def command(document: Mapping[str, Any]) -> str:
    """Return the command that files the issue; it is never run here."""
    quoted = title(document).replace("'", "'\\''")
    return f"gh issue create --repo {REPOSITORIES[document['to']][0]} --title '{quoted}' --body-file issue.md"


def compose(folder: Path) -> str:
    """Return the text of `issue.md` from what an exported folder has: `export.json`, `repro.py`, and sections."""
    document = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    facts = document["told"]
    name, repro = _program(folder)
    lines = [
        f"# {title(document)}",
        "",
        *_first(folder, document),
        f"- What: {facts['values']}",
        f"- How often: {facts['rate']}.",
        f"- Control: {facts['control']}",
        "",
        "## Program",
        "",
        f"{_lines(facts, repro)}. It exits with 1 where it reproduces, 0 where it does not, "
        "2 where something else goes wrong.",
        *([] if name == "repro.py" else ["", f"This is `{name}`; `repro.py` is for the releases before (see Versions)."]),
        "",
        "```python",
        repro.rstrip(),
        "```",
        "",
        "## Where it fails and where not",
        "",
        *_table(facts["table"]),
        "",
        "## Environment",
        "",
        *_environment(document["environment"], document["to"]),
    ]
    for name, heading in SECTIONS.items():
        path = folder / f"{name}.md"
        text = path.read_text(encoding="utf-8").rstrip() if path.is_file() else _NOT_YET.get(name)
        lines += ["", f"## {heading}", "", text] if text else []
    if facts["source"]:
        lines += ["", "## Generated code", "", "```c", facts["source"].rstrip(), "```"]
    if not _reasons_not_to_file(folder, document):
        lines += ["", "<!-- To file it (nothing has been sent):", command(document), "-->"]
    return "\n".join(lines) + "\n"


def _first(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Return what must be read before all else: each reason not to file it."""
    return [line for reason in _reasons_not_to_file(folder, document) for line in (f"Not to be filed: {reason}.", "")]


def _reasons_not_to_file(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Return why a finding should not be filed as it is; empty where nothing speaks against it.

    A program that a person declared to be the DSL's limit has no finding, and is not taken for a fault of its kernel.
    """
    healed, known = _healed(folder), _read(folder / "duplicates.json")
    likely = [f"[{one['name']}]({one['address']}) ({one['state']})" for one in known.get("likely", ())]
    suspect = document.get("attribution", {}).get("suspect", "compiler") if "finding" in document else "compiler"
    return [
        *([f"it passes on {healed}, the newest release that says anything"] if healed else []),
        *([f"likely the same: {', '.join(likely)}"] if likely else []),
        *([f"the {suspect} is the first suspect (see Attribution)"] if suspect != "compiler" else []),
    ]


def _newest(folder: Path) -> Mapping[str, Any]:
    """Return the newest release of the matrix that says whether the finding is there; empty without one."""
    return _read(folder / "matrix.json").get("newest") or {}


def _healed(folder: Path) -> str | None:
    """Return the newest release, where the finding is gone there."""
    newest = _newest(folder)
    return newest["version"] if newest.get("state") == "passes" else None


def _program(folder: Path) -> tuple[str, str]:
    """Return the program that the newest failing release takes: its file's name, and its text."""
    ported = PORTED.format(_newest(folder).get("version"))
    name = ported if _healed(folder) is None and (folder / ported).is_file() else "repro.py"
    return name, (folder / name).read_text(encoding="utf-8")


def _read(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(folder: Path) -> None:
    """Compose `issue.md` anew, after a section has come to the folder."""
    replace_text(folder / "issue.md", compose(folder))


def _lines(facts: Mapping[str, Any], repro: str) -> str:
    """Return how long the program is, and what it is made of."""
    count = len(repro.splitlines())
    if count == facts["whole"]:
        return f"{count} lines: {facts['form']}"
    return (
        f"{count} lines, of {facts['whole']} before its statements were reduced (`whole.py`): {facts['form']}, "
        "as far as it matters for the numbers below"
    )


def _table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return ["| case | | seen |", "|---|---|---|", *(f"| {row['change']} | {row['how']} | {row['seen']} |" for row in rows)]


def _environment(document: Mapping[str, Any], to: str) -> list[str]:
    packages = document["packages"]
    wanted = dict.fromkeys((to, "torch", "numpy", *(["apache-tvm-ffi"] if to == "tilelang" else [])))
    versions = ", ".join(f"{name} {packages.get(name, 'absent')}" for name in wanted)
    devices = ", ".join(document["devices"]) or "no GPU"
    variables = ", ".join(f"{name}={value}" for name, value in document["variables"].items())
    return [
        f"- {versions}",
        f"- Python {document['python']}, {document['platform']}",
        f"- {document['processor']}; CUDA {document['cuda']}; {devices}",
        *([f"- {variables}"] if variables else []),
    ]
