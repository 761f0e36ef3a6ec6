"""One campaign over everything that misbehaves: what it says of each, and that it ends as a campaign must."""

import re
import sys
from pathlib import Path

import pytest

from mhc.bench.soak import run as soak
from mhc.bench.soak.report import statements
from mhc.bench.soak.run import RIGHT, Leg, Plan
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.oracles.mutants.misbehaving.catalogue import FILES, FILES_KIND, MISBEHAVING, ON_CPU
from tests.support.helpers import ROOT

SECONDS = 180.0
"""At most; where nothing else runs, its cases take 20."""
Ended = tuple[Plan, Leg]


def quick(plan: Plan, run: Path | None) -> list[str]:
    """The command of `soak`, for few cases on each."""
    words = [*ORIGINAL(plan, run), "--cases", "7", "--run-limit", "4", "--memory", "1.2"]
    return ["tests.support.quick_campaign" if word == "mhc.fuzz" else word for word in words]


ORIGINAL = soak.command


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The campaign over all of them and two right ones, at its end."""
    plan = Plan(
        names=[one.name for one in ON_CPU],
        seconds=SECONDS,
        workers=4,
        kills=0,
        seed=1,
        device="cpu",
        folder=tmp_path_factory.mktemp("soak"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soak, "command", quick)
        (leg,) = soak.soak(plan)
    return plan, leg


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in ON_CPU])
def test_a_campaign_says_what_it_does(name: str, ended: Ended) -> None:
    one, after = MISBEHAVING[name], ended[1].after
    found = {(oracle, symptom) for owner, oracle, symptom in after.findings.values() if owner == name}
    assert all(one.allows(*each) for each in found), found
    assert found or one.missable, f"{after.cases.get(name, 0)} cases"
    assert one.faults or name not in dict(after.faults)
    assert after.cases.get(name, 0) or found


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_the_right_ones_beside_them_are_unharmed(name: str, ended: Ended) -> None:
    after = ended[1].after
    assert name not in {owner for owner, _, _ in after.findings.values()}
    assert after.cases[name] >= 7


@pytest.mark.slow
@pytest.mark.parametrize("words", ["ends within", "writes its reports", "outlives", "exit status", "is printed", "lost"])
def test_the_campaign_ends_as_it_must(words: str, ended: Ended) -> None:
    plan, leg = ended
    (one,) = [one for one in statements(plan, [leg]) if words in one.words]
    assert one.holds, one


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_misbehaves_when_imported_is_wrong_usage(name: str, tmp_path: Path) -> None:
    path, said = tmp_path / f"{name}.py", tmp_path / "said"
    path.write_bytes(FILES[name])
    process = FORKSERVER.Process(target=_on_file, args=(path, said))
    process.start()
    process.join()
    text = said.read_text(encoding="utf-8", errors="replace")
    assert process.exitcode == 2, text
    assert name in text
    assert "Traceback" not in text


def _on_file(path: Path, said: Path) -> None:
    with said.open("w", encoding="utf-8") as sys.stderr:
        sys.stdout = sys.stderr
        from mhc.fuzz.cli.main import main  # noqa: PLC0415  in the process that is to say what it says

        main(["--cases", "1", "--impl", f"{path}:IMPL", "--out", str(said.parent / "runs")])


def test_the_table_in_the_documentation_names_each_kind() -> None:
    text = (ROOT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| What .* did \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    told = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]
    assert sorted(told) == sorted({one.kind for one in MISBEHAVING.values()} | {FILES_KIND})
