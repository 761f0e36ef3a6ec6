"""Pictures of findings: what is coloured, what is refused, and that those of docs/gallery are what the command draws."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc import default_case, load
from mhc.bench.cli import main
from mhc.bench.gallery import of_finding
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding, finding, read_finding
from mhc.oracles.verdict import Status
from tests.support.helpers import ROOT

GALLERY = ROOT / "docs" / "gallery"
MUTANT = "mhc.oracles.mutants.load:post_without_its_2"


def found() -> Finding:
    mutant = load(MUTANT)
    case = default_case(B=1, S=3, n=2, D=4, dtype="float32")
    failure = next(one for one in check(mutant, case, "cpu", Level.PLAIN).verdicts if one.status is Status.FAIL)
    return finding(MUTANT, mutant, case, failure)


def test_each_element_is_coloured_by_its_error() -> None:
    picture = of_finding(found())
    assert "h_post [1, 3, 2]: error / bound" in picture
    cells = re.findall(r'class="(l\d)"><title>(h_post\[[\d, ]+\]): ([\d.e+]+)</title>', picture)
    assert [name for _, name, _ in cells] == [f"h_post[0, {s}, {n}]" for s in range(3) for n in range(2)]
    assert {level for level, _, ratio in cells if float(ratio) > 10} == {"l4"}


def test_a_finding_that_passes_now_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "finding.json"
    path.write_text(found().to_json().replace(MUTANT, "manual"), encoding="utf-8")
    result = CliRunner().invoke(main, ["gallery", "--out", str(tmp_path), str(path)])
    assert result.exit_code == 2
    assert "no element exceeds its bound here" in result.stderr


def test_what_a_finding_names_is_executed_only_where_it_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "finding.json"
    path.write_text(found().to_json(), encoding="utf-8")
    arguments = ["gallery", "--out", str(tmp_path), str(path)]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, (tmp_path / "finding.svg").exists()) == (2, False)
    assert CliRunner().invoke(main, [*arguments, "--trust"]).exit_code == 0
    assert (tmp_path / "finding.svg").read_text(encoding="utf-8") == of_finding(found())


def test_the_page_shows_each_picture() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(gallery/([\w-]+\.svg)\)", page)) == {path.name for path in GALLERY.glob("*.svg")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["constants", "counting-down", "narrow-integers", "nested-remainder", "unsigned-constant"])
def test_a_picture_is_that_of_its_finding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert of_finding(read_finding(GALLERY / f"{name}.json")) == (GALLERY / f"{name}.svg").read_text(encoding="utf-8")
