"""Every snippet of docs/tilelang/ runs, its table of probes is the records', and the knowledge base fits its schema."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.probes.isolated import Results, isolated, run_folder
from tests.probes.records import PROBES
from tests.probes.runner import describe
from tests.probes.table import table

FOLDER = Path(__file__).parents[2] / "docs" / "tilelang"
PAGES = ("README.md", "cheat-sheet.md")
FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of Python: where it is, how far it goes, and the page's preamble with it."""

    page: str
    line: int
    mode: str
    program: str


def snippets() -> list[Snippet]:
    """All Python blocks of the pages, but for the preambles."""
    found = []
    for page in PAGES:
        text, preamble = (FOLDER / page).read_text(), ""
        for match in FENCE.finditer(text):
            language, mode, body = match.groups()
            if language != "python":
                continue
            if mode == "preamble":
                preamble = body
                continue
            found.append(Snippet(page, text[: match.start()].count("\n") + 1, mode, f"{preamble}\n\n{body}"))
    return found


SNIPPETS = snippets()


def nvcc() -> str | None:
    """A compiler for CUDA, where TileLang would find it."""
    home = os.environ.get("CUDA_HOME")
    return shutil.which("nvcc") or (shutil.which("nvcc", path=str(Path(home) / "bin")) if home else None)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Results:
    """The outcome of every snippet, run once for the whole suite."""
    folder = run_folder(tmp_path_factory) / f"snippet-files-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    steps: list[tuple[str, str | None]] = []
    for snippet in SNIPPETS:
        if snippet.mode == "compile" and nvcc() is None:
            continue
        path = folder / f"{snippet.page}-{snippet.line}.py"
        path.write_text(snippet.program)  # TileLang reads a kernel's source from its file
        steps.append((str(path), None))
    outcomes = isolated("snippets", steps, {}, tmp_path_factory, testrun_uid)
    return {(Path(path).name, step): outcome for (path, step), outcome in outcomes.items()}


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: f"{snippet.page}:{snippet.line}-{snippet.mode}")
def test_snippet(snippet: Snippet, results: Results) -> None:
    assert snippet.mode in {"run", "lower", "compile"}, f"say how far {snippet.page}:{snippet.line} goes"
    if snippet.mode == "compile" and nvcc() is None:
        pytest.skip("nvcc is neither in PATH nor in CUDA_HOME: lowered only, by the other snippets")
    got = results[f"{snippet.page}-{snippet.line}.py", None]
    assert got["kind"] == "returns", f"docs/tilelang/{snippet.page}, line {snippet.line}: {describe(got)}\n{got['text']}"


def test_what_snippets_say_they_do() -> None:
    for snippet in SNIPPETS:
        body, place = snippet.program, f"{snippet.page}:{snippet.line}"
        assert "assert " in body, f"{place} checks nothing"
        assert (snippet.mode == "compile") == ("compile_cuda(" in body), place


def test_the_table_of_probes_is_that_of_the_records() -> None:
    page = (FOLDER / "notes-revisited.md").read_text()
    assert table() in page, "python -m tests.probes.table writes it"


def test_the_knowledge_base_fits_its_schema() -> None:
    schema = json.loads((FOLDER / "knowledge.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    knowledge = json.loads((FOLDER / "knowledge.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(knowledge)
    names = [entry["id"] for entry in knowledge["entries"]]
    assert len(set(names)) == len(names)
    probes = {probe.name for probe in PROBES}
    shown = {entry["probe"] for entry in knowledge["entries"] if entry["probe"]}
    assert shown - probes == set(), "no such probe"
    assert probes - shown == set(), "a probe that no entry speaks of"
    for entry in knowledge["entries"]:
        assert entry["probe"] or entry["status"] == "cited", f"{entry['id']} is neither shown nor cited"
        assert entry["status"] != "cited" or entry["sources"], f"{entry['id']} cites nothing"


@pytest.mark.parametrize("broken", ["kind", "versions", "sources"])
def test_the_schema_refuses(broken: str) -> None:
    schema = json.loads((FOLDER / "knowledge.schema.json").read_text())
    knowledge = json.loads((FOLDER / "knowledge.json").read_text())
    knowledge["entries"][0][broken] = "something else"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(knowledge)


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (FOLDER / target).exists(), f"{page.name} -> {target}"
