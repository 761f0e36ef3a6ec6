"""JSON files of anybody: each is read, or refused with one line and status 2."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

from mhc import Case, CaseError, default_case, files
from mhc.fuzz.cli.main import main
from mhc.fuzz.findings.finding import Finding, Reduction, read_against, read_case, read_finding
from mhc.oracles.error_map import error_map
from tests.fuzz.test_minimise import WRONG, found
from tests.support.mutated import mutated

REDUCED = Reduction(elements_before=9, elements=1, checks=3, seconds=1.5, reproduced=3, runs=3)
GOOD = found(WRONG)
GOOD = replace(
    GOOD,
    spec="manual",
    reduction=REDUCED,
    against="golden",
    fingerprint=replace(GOOD.fingerprint, against="golden"),
)
DOCUMENT: dict[str, Any] = json.loads(GOOD.to_json())


def changed(**fields: Any) -> bytes:
    return json.dumps({**DOCUMENT, **fields}).encode()


BAD: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b'{"case": "\xff"}',
    "nested deeply": b"[" * 100_000,
    "case nested deeply": b'{"case": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a number of 5,000 digits": b'{"schema": ' + b"9" * 5000 + b"}",
    "a size of 4,000 digits": changed(case={**DOCUMENT["case"], "B": 10**4000}),
    "a size past 2^63": changed(case={**DOCUMENT["case"], "D": 2**63}),
    "sizes that no machine has room for": changed(case={**DOCUMENT["case"], "D": 2**62}),
    "NaN": b'{"case": NaN}',
    "a list": b"[]",
    "text": b'"case"',
    "a case that is text": changed(case="text"),
    "a case that is null": changed(case=None),
    "a fingerprint that is a number": changed(fingerprint=7),
    "a fingerprint of numbers": changed(fingerprint=dict.fromkeys(DOCUMENT["fingerprint"], 7)),
    "a fingerprint of another operator": changed(fingerprint={**DOCUMENT["fingerprint"], "operator": "other"}),
    "a fingerprint with another field": changed(fingerprint={**DOCUMENT["fingerprint"], "outside": []}),
    "a reduction with other fields": changed(reduction={"elements": 1}),
    "a reduction of text": changed(reduction=dict.fromkeys(DOCUMENT["reduction"], "1")),
    "a reduction that is a list": changed(reduction=[1]),
    "against a list": changed(against=["golden"]),
    "an implementation that is a number": changed(implementation=7),
    "a reduction with a step of text": changed(reduction={**DOCUMENT["reduction"], "steps": ["first"]}),
    "errors of text": changed(errors="here"),
    "errors of another shape": changed(errors=asdict(error_map(torch.tensor([3.0, 4.0]))) | {"shape": [2, 2**62, 9]}),
    "errors of other letters": changed(errors=asdict(error_map(torch.tensor([3.0]))) | {"cells": ["<script>"]}),
    "a drawn case that is text": changed(drawn={"case": "text"}),
    "a drawn case of another operator": changed(drawn={"case": json.loads(default_case(operator="rms_norm").to_json())}),
    "a message that is an object": changed(message={}),
    "variables that are a list": changed(environment={"variables": []}),
}
VERBS = {
    "replay": ["replay"],
    "minimise": ["minimise"],
    "promote": ["promote"],
    "export": ["export", "--to", "tilelang"],
}
# A replay asks a file for its case and for names, and for nothing else.
_FOR_OTHERS = ("a fingerprint", "a reduction", "a message", "variables", "errors", "a drawn case")
PAIRS = [(what, verb) for what in BAD for verb in VERBS if verb != "replay" or not what.startswith(_FOR_OTHERS)]


@pytest.mark.parametrize(("what", "verb"), PAIRS)
def test_a_bad_file_is_status_2_and_one_line(what: str, verb: str, tmp_path: Path) -> None:
    path = tmp_path / "finding.json"
    path.write_bytes(BAD[what])
    done = CliRunner().invoke(main, [*VERBS[verb], str(path)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Error: ") == 1
    assert len(done.stderr) < 2000, "a value of any size is not quoted whole"
    assert [one.name for one in tmp_path.iterdir()] == ["finding.json"]


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_file_to_read_is_status_2(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path, tmp_path / "absent.json", Path("/dev/zero")):
        monkeypatch.setattr(files, "LARGEST", 1 << 16)
        done = CliRunner().invoke(main, [*VERBS[verb], str(path)])
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.stderr
    assert "is larger than" in done.stderr


@pytest.mark.parametrize("read", [read_finding, read_case, read_against])
def test_a_file_that_cannot_be_read_is_a_case_error(read: Callable[[Path], object], tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(CaseError, match="cannot be read"):
            read(path)


def test_the_good_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    path.write_text(GOOD.to_json(), encoding="utf-8")
    assert read_finding(path) == GOOD
    assert read_finding(path).reduction == REDUCED


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=mutated(DOCUMENT))
def test_any_document_is_a_finding_or_a_case_error(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "any.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with suppress(CaseError):
        one = read_finding(path)
        assert isinstance(one, Finding)
        assert len(one.fingerprint.id) == 8
        json.loads(one.to_json())
        assert isinstance(str(one.fingerprint), str)
    with suppress(CaseError):
        case, spec = read_case(path)
        assert isinstance(case, Case)
        assert Case.from_json(case.json) == case
        assert spec is None or isinstance(spec, str)
    with suppress(CaseError):
        against = read_against(path)
        assert against is None or isinstance(against, str)
