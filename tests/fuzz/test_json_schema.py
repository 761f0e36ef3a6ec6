"""The JSON Schemas accept what is written and kept, and refuse what the reader refuses."""

import copy
import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings

from mhc import Case, CaseError, default_case
from mhc.drawn_case import DrawnCase
from mhc.fuzz.findings.finding import from_document
from mhc.fuzz.findings.json_schema import schemas
from mhc.programs.grammar import Program
from mhc.strategies.cases import cases
from mhc.strategies.programs.programs import programs
from mhc.strategies.programs.statements import Features
from tests.support.helpers import ROOT

SCHEMAS = schemas()
FIXTURES = sorted((ROOT / "tests" / "regressions").glob("*.json"))


def read(*parts: str) -> Any:
    return json.loads(ROOT.joinpath(*parts).read_text(encoding="utf-8"))


FINDING = read("docs", "results", "walk", "ea5e16fd.json")


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(SCHEMAS[name])


def finding_of(case: DrawnCase) -> dict[str, Any]:
    return {**FINDING, "case": json.loads(case.to_json())}


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_kept_files_are_valid() -> None:
    assert len(FIXTURES) > 10
    for path in FIXTURES:
        validator("fixture").validate(read(str(path)))
    validator("finding").validate(FINDING)
    validator("case").validate(read("tests", "older_formats", "case-schema-1.json"))


@pytest.mark.parametrize("operator", ["mhc_pre", "cross_entropy"])
def test_drawn_cases_are_valid(operator: str) -> None:
    """The second operator is declared by a function, and one of its tensors is of integers."""

    @given(cases(operator=operator))
    @settings(max_examples=10)
    def valid(case: Case) -> None:
        validator("case").validate(json.loads(case.to_json()))
        validator("finding").validate(finding_of(case))

    valid()


@given(programs(Features()))
@settings(max_examples=10)
def test_drawn_programs_are_valid(program: Program) -> None:
    validator("program").validate(json.loads(program.to_json()))
    validator("finding").validate(finding_of(program))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("case/schema", 4),
        ("case/n", 17),
        ("case/dtype", "int8"),
        ("case/stride", 1),
        ("case/tensors/x/seed", -1),
        ("case/tensors/x/kind", "random"),
        ("case/tensors/x/literals", [[[0], "big"]]),
        ("case/tensors/x/layout", {"step": 0}),
        ("case/schedules", {"triton": {"BLOCK": 1.5}}),
        ("fingerprint/colour", "red"),
        ("reduction/checks", -1),
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(path: str, value: object) -> None:
    document = copy.deepcopy(finding_of(default_case()))
    from_document(document)
    validator("finding").validate(document)
    *parents, last = path.split("/")
    place = document
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(CaseError):
        from_document(document)
    with pytest.raises(jsonschema.ValidationError):
        validator("finding").validate(document)
