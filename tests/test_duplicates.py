"""Known issues upstream: the file, and how a finding is compared with it."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from mhc.upstream import duplicates
from mhc.upstream.duplicates import FILE, Known, known_issues, matches, section, symptom_kind
from tests.fake_interpreters import exported

SCHEMA = json.loads(FILE.with_suffix(".schema.json").read_text(encoding="utf-8"))
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))

INCIDENTS = {
    "tile-ai/tilelang": {1758, 2199, 2593},
    "ROCm/aiter": {3033, 4432},
    "NVIDIA/Megatron-LM": {6172, 7524},
    "triton-lang/triton": {10176},
    "vllm-project/vllm": {56342},
    "PaddlePaddle/PaddleFleet": {1264},
    "tile-ai/TileOPs": {712},
}
"""Those that the oracles were designed by."""


def test_the_file_fits_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(DOCUMENT)
    names = [(one["repository"], one["number"]) for one in DOCUMENT["issues"]]
    assert len(set(names)) == len(names)
    for repository, numbers in INCIDENTS.items():
        assert numbers <= {number for name, number in names if name == repository}, repository


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "12"),
        ("state", "fixed"),
        ("symptoms", []),
        ("symptoms", ["wrong"]),
        ("keywords", []),
        ("repository", "tile"),
    ],
)
def test_the_schema_refuses(field: str, value: Any) -> None:
    broken = copy.deepcopy(DOCUMENT)
    broken["issues"][0][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(broken)


def known(number: int, keywords: str, symptoms: str = "value", subjects: str = "", repository: str = "a/b") -> Known:
    return Known(
        repository=repository,
        number=number,
        state="open",
        title=f"what {number} is",
        symptoms=tuple(symptoms.split()),
        subjects=tuple(subjects.split()),
        keywords=tuple(keywords.split()),
    )


ISSUES = (
    known(1, "T.gemm wgmma"),
    known(2, "T.gemm clear_accum FullRow"),
    known(3, "T.gemm|T.copy wgmma", "raises"),
    known(4, "T.cumsum"),
    known(5, "wgmma T.gemm", "value", "dx"),
    known(6, "T.gemm wgmma", repository="c/d"),
)


def test_the_likeliest_come_first() -> None:
    found = matches("T.gemm(a, b) over wgmma", "value", "dx", ISSUES, repositories=["c/d"])
    assert [one.known.number for one in found] == [6, 5, 1, 3]
    assert [one.likely for one in found] == [True, True, True, False]
    assert [one.known.number for one in matches("T.gemm over wgmma", "value", "dx", ISSUES, repositories=["a/b"])][:3] == [
        5,
        1,
        6,
    ]


def test_a_subject_and_a_symptom_count() -> None:
    one = ISSUES[4:5] + ISSUES[3:4] * 9
    part = [matches("wgmma", symptom, subject, one)[:1] for symptom in ("value", "raises X") for subject in ("dx", "dphi")]
    assert [[match.likely for match in found] for found in part] == [[True], [], [], []]
    assert matches("T.gemm wgmma", "raises X", "", ISSUES)[0].known.number == 3
    assert "the same symptom" in matches("T.gemm wgmma", "raises X", "", ISSUES)[0].reasons


@pytest.mark.parametrize("text", ["T.gemm_sp(a, wgmma_fence)", "XT.gemm(a, Xwgmma)", "gemm", ""])
def test_keywords_are_whole_words(text: str) -> None:
    assert matches(text, "value", "dx", ISSUES[:3]) == []


def test_what_all_issues_have_says_little() -> None:
    found = matches("T.gemm clear_accum", "value", "", ISSUES)
    assert [one.known.number for one in found] == [2]
    assert found[0].score < matches("clear_accum FullRow", "value", "", ISSUES)[0].score


@pytest.mark.parametrize(
    ("symptom", "kind"),
    [
        ("value", "value"),
        ("all zero", "zero"),
        ("raises KeyError", "raises"),
        ("SIGSEGV", "crash"),
        ("hang", "hang"),
        ("", ""),
    ],
)
def test_symptoms(symptom: str, kind: str) -> None:
    assert symptom_kind(symptom) == kind


@pytest.mark.parametrize(
    ("text", "symptom", "first"),
    [
        ("T.gemm(a, b), 24 columns, tl.disable_warp_specialized", "value", "tile-ai/tilelang#2593"),
        ("y[0] = x[0] - x[0], expected nan, x * 0", "class", "tile-ai/tilelang#2638"),
        ("T.copy(x, local), is_cpu=True: Target context required.", "raises InternalError", "tile-ai/tilelang#1899"),
        ('tl.dot(a, b, input_precision="ieee") of bfloat16', "value", "triton-lang/triton#10176"),
    ],
)
def test_what_is_known_is_found(text: str, symptom: str, first: str) -> None:
    found = matches(text, symptom, "", known_issues()[1])
    assert found[0].known.name == first
    assert found[0].likely


def test_the_section_and_the_first_lines_of_the_issue_name_the_likely_ones(tmp_path: Path) -> None:
    text = "T.gemm(a, b), 24 columns, tl.disable_warp_specialized; a constant, T.cast, FloatImm\n"
    folder = exported(tmp_path / "out", repro=text)
    duplicates.write(folder)
    text = (folder / "issue.md").read_text()
    link = "[tile-ai/tilelang#2593](https://github.com/tile-ai/tilelang/issues/2593) (open)"
    assert f"Likely the same: {link}" in text.partition("## Program")[0]
    part = text.partition("## Known issues")[2]
    assert part.index("Likely the same:") < part.index(link) < part.index("Perhaps related:")
    assert "Has `T.gemm`; `tl.disable_warp_specialized`; `24`; the same symptom." in part


def test_nothing_known_is_said_with_its_day(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", repro="x = 1\n")
    assert duplicates.write(folder) == []
    assert f"None of the issues known on {DOCUMENT['asked']} looks like it." in (folder / "issue.md").read_text()
    assert "Likely the same" not in (folder / "issue.md").read_text()
    assert section([], "a day") == "None of the issues known on a day looks like it.\n"
