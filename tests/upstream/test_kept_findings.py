"""The exported findings in docs/results/upstream are what export writes of their programs, and show no machine."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mhc.fuzz.findings.finding import Finding, from_document
from mhc.upstream.declared import Symptom, text
from mhc.upstream.issue import text as issue
from mhc.upstream.program.program import HOST, make
from mhc.upstream.releases.recheck import find
from mhc.upstream.verify import run
from tests.support.exports import SELDOM
from tests.support.needs import needs_tilelang

PLACE = Path(__file__).parents[2] / "docs" / "results" / "upstream"
KEPT = sorted(path.parent for path in PLACE.glob("*/export.json"))
WALK = PLACE.with_name("walk") / "ea5e16fd-tilelang"


def test_there_are_some_and_recheck_finds_them() -> None:
    assert len(KEPT) >= 4
    assert [one.folder for one in find([PLACE])] == KEPT


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_texts_are_of_their_parts(folder: Path) -> None:
    document = json.loads((folder / "export.json").read_text())
    program = document["program"]
    symptom = Symptom(**{key: program.get(key) for key in ("raises", "expected", "found")})
    made = text(
        f"{Path(__file__).parents[1] / 'probes' / program['file']}:{program['function']}", symptom, document["told"]["at"]
    )
    assert (folder / "repro.py").read_text() == made
    assert (folder / "issue.md").read_text() == issue.compose(folder)
    if document["to"] == "tilelang":
        assert document["environment"]["packages"]["tilelang"] == "0.1.8"
        assert json.loads((folder / "matrix.json").read_text())["newest"]["version"] == "0.1.15"


def walked() -> Finding:
    return from_document(json.loads(WALK.with_name("ea5e16fd.json").read_text()))


def test_the_walk_s_issue_is_of_its_parts() -> None:
    assert (WALK / "issue.md").read_text() == issue.compose(WALK)
    document = json.loads((WALK / "export.json").read_text())
    assert document["attribution"]["suspect"] == "compiler"
    assert walked().fingerprint.document == document["finding"]["fingerprint"]


@SELDOM
def test_the_walk_is_exported_as_it_is_kept() -> None:
    found = replace(walked(), spec=f"{WALK.with_name('mean.py')}:MEAN")
    assert make(found, "tilelang", "cpu", HOST).text == (WALK / "repro.py").read_text()
    assert run(WALK / "repro.py").reproduced


@pytest.mark.parametrize("folder", [*KEPT, WALK], ids=lambda folder: folder.name)
def test_no_path_of_a_machine(folder: Path) -> None:
    for path in folder.iterdir():
        found = re.findall(r"(?<![\w.:/<])/(?:home|root|tmp|work|usr|opt)/\S*", path.read_text())
        assert not found, path


@pytest.mark.slow
@needs_tilelang
@pytest.mark.parametrize("name", ["abs", *(pytest.param(one, marks=SELDOM) for one in ("constants", "copy", "power"))])
def test_they_still_reproduce(name: str) -> None:
    outcome = run(PLACE / name / "repro.py")
    assert outcome.reproduced, outcome.output
