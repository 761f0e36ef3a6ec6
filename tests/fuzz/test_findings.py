"""Fingerprints, and findings as files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mhc import default_case, load
from mhc.case_json import CaseError
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import (
    MOST_STEPS,
    Drawn,
    Reduction,
    Step,
    finding,
    from_document,
    read_against,
    read_case,
    read_finding,
)
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.error_map import error_map
from mhc.oracles.verdict import Status, failed

MANUAL = replace(load("manual"), name="mine")
CASE = default_case(B=2, S=3, n=2, D=4, dtype="float32")
PRINT = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")


def test_a_fingerprint_is_all_that_it_says() -> None:
    assert PRINT.document == {
        **{"operator": "mhc_pre", "implementation": "mine", "oracle": "bound", "subject": "dx", "symptom": "value"}
    }
    assert len(PRINT.id) == 8
    assert int(PRINT.id, 16) >= 0
    ids = {
        PRINT.id,
        *(replace(PRINT, **{name: "other"}).id for name in (*PRINT.document, "against")),
    }
    assert len(ids) == 7
    compared = replace(PRINT, against="golden")
    assert "against" not in PRINT.document
    assert compared.document == {**PRINT.document, "against": "golden"}
    assert Fingerprint(**json.loads(json.dumps(compared.document))) == compared
    assert Fingerprint(**PRINT.document) == PRINT
    assert str(compared) == "mine: dx: value (bound with golden)"
    verdict = failed("bound", "dx", "value", "")
    assert Fingerprint.of(verdict, "mhc_pre", "mine") == PRINT
    assert PRINT.fits(verdict)
    assert not PRINT.fits(replace(verdict, status=Status.PASS))
    for change in ({"oracle": "algebra"}, {"subject": "dphi"}, {"symptom": "all zero"}, {"against": "golden"}):
        assert not PRINT.fits(replace(verdict, **change))  # type: ignore[arg-type]
    assert compared.fits(replace(verdict, against="golden"))
    assert not compared.fits(verdict)


def test_a_finding_as_a_file_with_what_pictures_need(tmp_path: Path) -> None:
    errors = error_map(torch.tensor([[0.0, 5.0]], dtype=torch.float64))
    steps = (Step(checks=3, elements=9, sizes={"B": 9}), Step(checks=5, elements=3, sizes={"B": 3}))
    reduction = Reduction(elements_before=9, elements=3, checks=5, seconds=1.5, reproduced=3, runs=3, steps=steps)
    verdict = replace(failed("bound", "dx", "value", ""), where=errors)
    made = replace(finding("mine.py:IMPL", MANUAL, CASE, verdict), reduction=reduction)
    made = replace(made, drawn=Drawn(case=default_case(D=7), errors=errors))
    assert made.errors == errors
    assert from_document(json.loads(made.to_json())) == replace(made, variables={})
    assert '"cells": [\n      ".1"\n    ]' in made.to_json(), "the map can be read as text"
    document = made.document
    for name, value in (
        ("errors", {**document["errors"], "cells": ["."]}),
        ("errors", "text"),
        ("drawn", {"case": document["case"], "errors": {}}),
        ("drawn", {"errors": document["errors"]}),
        ("drawn", {"case": json.loads(default_case(operator="rms_norm").to_json())}),
        ("reduction", {**document["reduction"], "steps": [document["reduction"]["steps"][0]] * (MOST_STEPS + 1)}),
        ("reduction", {**document["reduction"], "steps": [{"checks": -1, "elements": 1, "sizes": {}}]}),
    ):
        with pytest.raises(CaseError, match=r"^(errors|drawn|reduction)"):
            from_document(json.loads(json.dumps({**document, name: value})))
    kept = read_finding(fixtures.write(made, tmp_path))
    assert kept == replace(made, variables={}, errors=None, drawn=None, reduction=replace(reduction, steps=()))


def test_a_finding_as_a_file(tmp_path: Path) -> None:
    failure = replace(failed("bound", "dx", "value", "dx[0] = 1"), against="golden")
    reduction = Reduction(elements_before=9, elements=3, checks=5, seconds=1.5, reproduced=2, runs=4)
    made = replace(finding("mine.py:IMPL", MANUAL, CASE, failure, "golden.py:IMPL"), reduction=reduction)
    path = tmp_path / "finding.json"
    path.write_text(made.to_json(), encoding="utf-8")
    assert read_finding(path) == replace(made, variables={})
    assert read_case(path) == (CASE, "mine.py:IMPL")
    assert read_against(path) == "golden.py:IMPL"
    document = json.loads(made.to_json())
    assert list(document) == [*("fingerprint", "implementation", "against", "message", "reduction", "environment", "case")]
    assert made.to_json().startswith('{\n  "fingerprint"')
    bare = replace(made, against=None, reduction=None)
    assert "against" not in bare.document
    assert bare.document["reduction"] is None
    path.write_text(bare.to_json(), encoding="utf-8")
    assert read_against(path) is None
    assert read_finding(path).reduction is None
    path.write_text(CASE.to_json(), encoding="utf-8")
    assert read_case(path) == (CASE, None)
    assert read_against(path) is None
    with pytest.raises(CaseError, match=r"^fingerprint: missing"):
        read_finding(path)
    path.write_text(json.dumps({**document, "implementation": None}), encoding="utf-8")
    with pytest.raises(CaseError, match=r"^fingerprint: missing"):
        read_finding(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(CaseError, match="is not JSON"):
        read_case(path)
    for name, value in (("fingerprint", {"operator": "x"}), ("reduction", {"elements": 1})):
        with pytest.raises(CaseError, match="has other fields than expected"):
            from_document({**document, name: value})
    with pytest.raises(CaseError, match=r"^case\.|^n|^D|schema"):
        from_document({**document, "case": {}})
    assert made.hung is False
    assert replace(made, fingerprint=replace(made.fingerprint, symptom="hang")).hung
    assert (reduction.rate, reduction.stable) == (0.5, False)
    assert replace(reduction, reproduced=4).stable
    assert replace(reduction, reproduced=0, runs=0).rate == 0.0
    assert not replace(reduction, reproduced=0, runs=0).stable
    environment = replace(made, variables={"SOME_VARIABLE": "7"}).document["environment"]
    assert environment["variables"]["SOME_VARIABLE"] == "7"
