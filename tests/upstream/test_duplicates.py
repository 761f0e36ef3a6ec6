"""Known issues upstream: the file, and how a finding is compared with it."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from mhc.upstream.issue import duplicates
from mhc.upstream.issue.duplicates import FILE, Known, known_issues, matches, section, symptom_kind
from tests.support.fake_interpreters import exported

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


def known(
    number: int, keywords: str, symptoms: str = "value", subjects: str = "", repository: str = "tile-ai/tilelang"
) -> Known:
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
    known(6, "T.gemm wgmma", repository="apache/tvm"),
    known(7, "T.gemm wgmma", repository="triton-lang/triton"),
    known(8, "T.gemm", "value", "dx", repository="c/d"),
)


def numbers(text: str, symptom: str = "value", subject: str = "") -> list[tuple[int, bool]]:
    return [(one.known.number, one.likely) for one in matches(text, symptom, subject, ISSUES, to="tilelang")]


def test_the_likeliest_come_first_and_of_equals_the_maintainers_own() -> None:
    assert numbers("T.gemm(a, b) over wgmma") == [(1, True), (6, True), (3, False)]


def test_the_output_that_is_wrong_decides() -> None:
    found = numbers("T.gemm(a, b) over wgmma", subject="dx")
    assert found == [(5, True), (1, True), (6, True), (8, False), (3, False)]
    assert "the output dx" in matches("T.gemm wgmma", "value", "dx", ISSUES, to="tilelang")[0].reasons


def test_the_symptom_decides() -> None:
    assert numbers("T.gemm wgmma", "raises ValueError") == [(3, True), (1, False), (6, False)]
    reasons = [one.reasons[-1] for one in matches("T.gemm wgmma", "raises ValueError", "", ISSUES, to="tilelang")]
    assert reasons == ["the same symptom", "another symptom", "another symptom"]


def test_one_word_in_common_says_nothing() -> None:
    assert numbers("T.cumsum") == []


@pytest.mark.parametrize("text", ["T.gemm_sp(a, wgmma_fence)", "XT.gemm(a, Xwgmma)", "gemm", ""])
def test_keywords_are_whole_words(text: str) -> None:
    assert numbers(text) == []


def test_what_all_issues_have_says_little() -> None:
    [found] = matches("T.gemm clear_accum", "value", "", ISSUES, to="tilelang")
    [other] = matches("clear_accum FullRow", "value", "", ISSUES, to="tilelang")
    assert found.known.number == other.known.number == 2
    assert found.score < other.score


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
    ("text", "symptom", "to", "first"),
    [
        ("T.gemm(a, b), 24 columns, tl.disable_warp_specialized", "value", "tilelang", "tile-ai/tilelang#2593"),
        ("y[0] = x[0] - x[0], expected nan, x * 0", "class", "tilelang", "tile-ai/tilelang#2638"),
        (
            "T.copy(x, local), is_cpu=True: Target context required.",
            "raises InternalError",
            "tilelang",
            "tile-ai/tilelang#1899",
        ),
        ('tl.dot(a, b, input_precision="ieee") of bfloat16', "value", "triton", "triton-lang/triton#10176"),
    ],
)
def test_what_is_known_is_found(text: str, symptom: str, to: str, first: str) -> None:
    found = matches(text, symptom, "", known_issues()[1], to=to)
    assert found[0].known.name == first
    assert found[0].likely


def test_the_section_and_the_first_lines_of_the_issue_name_the_likely_ones(tmp_path: Path) -> None:
    text = "T.gemm(a, b), 24 columns, tl.disable_warp_specialized; a constant, T.cast, FloatImm\n"
    folder = exported(tmp_path / "out", repro=text)
    duplicates.write(folder)
    text = (folder / "issue.md").read_text()
    link = "[tile-ai/tilelang#2593](https://github.com/tile-ai/tilelang/issues/2593) (open)"
    assert f"Not to be filed: likely the same: {link}." in text.partition("## Program")[0]
    part = text.partition("## Known issues")[2]
    assert part.index("Likely the same:") < part.index(link) < part.index("Perhaps related:")
    assert "Has `T.gemm`; `tl.disable_warp_specialized`; `24`; the same symptom." in part


def test_nothing_known_is_said_with_its_day(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", repro="x = 1\n")
    assert duplicates.write(folder) == []
    assert f"None of the issues known on {DOCUMENT['asked']} looks like it." in (folder / "issue.md").read_text()
    assert "Not to be filed" not in (folder / "issue.md").read_text()
    assert section([], "a day") == "None of the issues known on a day looks like it.\n"


def test_what_every_repro_has_is_not_compared(tmp_path: Path) -> None:
    text = """T.gemm\nsys.excepthook = other\nx = 1\nprint(f"x: expected")\n24, tl.disable_warp_specialized\n"""
    assert duplicates.write(exported(tmp_path / "out", repro=text)) == []
    assert duplicates.write(exported(tmp_path / "other", repro=text.replace("x = 1", "T.gemm wgmma 24"))) != []
