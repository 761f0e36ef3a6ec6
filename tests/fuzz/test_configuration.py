"""The configuration of a project: where it is found, what it means, what is refused, and what a campaign makes of it."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from mhc import default_case, load
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli import configuration, ledger
from mhc.fuzz.cli.configuration import KEYS
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.run import run_campaign
from mhc.fuzz.cli.settings import Settings
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.report.live import LiveServer
from mhc.oracles.verdict import Verdict, failed, passed
from tests.fuzz.test_minimise import stubs
from tests.support.helpers import ROOT
from tests.support.report_stores import document

SCHEMA = ROOT / "docs" / "mhc-fuzz.schema.json"
KERNEL = """
from mhc import load
IMPL = replace(load("manual"), name="mine")
"""
FOUND = finding("manual", load("manual"), default_case(), failed("bound", "dx", "value", ""))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is the current folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of the campaigns that were to start; none runs."""
    found: list[Settings] = []

    def start(settings: Settings) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr("mhc.fuzz.cli.main.run_campaign", start)
    return found


def own(folder: Path, text: str) -> Path:
    path = folder / "mhc-fuzz.toml"
    path.write_text(text, encoding="utf-8")
    return path


def shared(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(f"[project]\nname = 'x'\n[tool.mhc-fuzz]\n{text}", encoding="utf-8")
    return path


def fuzz(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def values(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that `--show-config` prints, and each key's source."""
    rows = [line.removeprefix("# ") for line in text.splitlines()[1:]]
    return tomllib.loads(text), {row.split()[0]: row.rpartition(" # ")[2] for row in rows if " # " in row}


@pytest.mark.parametrize("write", [own, shared])
def test_a_campaign_takes_what_the_file_says(
    write: Callable[[Path, str], Path], project: Path, started: list[Settings]
) -> None:
    write(project, 'impl = ["norm.py:IMPL"]\nagainst = ["golden"]\nminutes = 3\nseed = 5\nworkers = 1\nout = "runs"\n')
    fuzz()
    (found,) = started
    assert (found.specs, found.against, found.budget.seconds) == (("norm.py:IMPL",), ("golden",), 180.0)
    assert (found.seed, found.workers, found.folder.parent) == (5, 1, Path("runs"))


def test_paths_are_relative_to_the_file(project: Path, started: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    own(project, 'impl = ["src/norm.py:IMPL", "golden", "pkg.norm:IMPL"]\nout = "runs"\nfixtures = "tests/kept"\n')
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    fuzz()
    (found,) = started
    assert found.specs == ("../../src/norm.py:IMPL", "golden", "pkg.norm:IMPL")
    assert (found.folder.parent, found.fixtures) == (Path("../../runs"), Path("../../tests/kept"))
    own(project / "deep", f'programs = ["tilelang-to-c@site"]\nout = "{project}/elsewhere"\n')
    monkeypatch.chdir(ROOT)
    fuzz("--config", project / "deep" / "mhc-fuzz.toml")
    assert started[1].specs == (f"tilelang-to-c@{project}/deep/site",)
    assert started[1].folder.parent == project / "elsewhere"


@pytest.mark.parametrize(
    ("arguments", "kept", "dropped"),
    [
        (("--seed", 9), {"seed": 9, "minutes": 3.0, "impl": ["norm.py:IMPL"]}, set()),
        (("--hours", 1), {"hours": 1.0, "impl": ["norm.py:IMPL"]}, {"minutes", "cases"}),
        (("--cases", 9), {"cases": 9}, {"minutes"}),
        (("--impl", "other.py:IMPL"), {"impl": ["other.py:IMPL"], "minutes": 3.0}, {"against"}),
        (("--operator", "rms_norm"), {"operator": "rms_norm"}, {"impl", "against"}),
        (("--against", "manual"), {"against": ["manual"], "impl": ["norm.py:IMPL"]}, set()),
        (("--resume", "."), {"workers": 1}, {"impl", "against", "minutes", "cases", "seed"}),
    ],
)
def test_the_command_line_is_above_the_file(
    arguments: tuple[object, ...], kept: dict[str, object], dropped: set[str], project: Path
) -> None:
    own(project, 'impl = ["norm.py:IMPL"]\nagainst = ["golden"]\nminutes = 3\ncases = 7\nseed = 5\nworkers = 1\n')
    found, sources = values(fuzz("--show-config", *arguments))
    assert {key: found[key] for key in kept} == kept
    assert not dropped & found.keys()
    assert sources["workers"] == "mhc-fuzz.toml"
    assert sources["run-limit"] == "default"
    for key in kept:
        given = f"--{key}" in arguments
        assert sources[key] == ("command line" if given else "mhc-fuzz.toml")
    if "--resume" in arguments:
        assert sources["impl"] == "the run ."


def test_what_is_shown_is_a_file_that_says_the_same(project: Path) -> None:
    own(project, 'impl = ["norm.py:IMPL", "a \\"b\\".py:X"]\ndevice = "cpu"\nmax-elements = 99\n')
    before, _ = values(text := fuzz("--show-config", "--cases", 4))
    assert text.startswith(f"# configuration: {project}/mhc-fuzz.toml\n")
    own(project, text)
    after, sources = values(fuzz("--show-config"))
    assert before == after
    assert after["max-elements"] == 99
    assert sources["cases"] == "mhc-fuzz.toml"
    assert fuzz("--show-config", "--config", os.devnull).startswith(f"# configuration: {os.devnull}\n")


def test_without_a_file_there_are_only_defaults(project: Path) -> None:
    text = fuzz("--show-config")
    assert text.startswith("# configuration: none\n")
    assert set(values(text)[0]) == {"run-limit", "compile-limit", "device", "out"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("minuts = 3", "minuts: no such key; did you mean minutes? Allowed are impl, against, operator"),
        ("max_elements = 3", "max_elements: no such key; did you mean max-elements?"),
        ("zzz = 3", "zzz: no such key. Allowed are impl"),
        ("rtol = 1e-3", "rtol: no such key: it follows from the formula; less precision is declared: "),
        ("minutes = -1", "minutes = -1: Expected `float` > 0.0"),
        ("minutes = nan", "minutes = nan: Expected `float` > 0.0"),
        ("cases = 1.5", "cases = 1.5: Expected `int`, got `float`"),
        ('impl = "norm.py:IMPL"', "impl = 'norm.py:IMPL': Expected `array`, got `str`"),
        ("impl = []", "impl = []: Expected `array` of length >= 1"),
        ('impl = [""]', "impl = ['']: Expected `str` of length >= 1 - at `$.impl[0]`"),
        ('device = "gpu"', "device = 'gpu': Invalid enum value 'gpu'; allowed are cpu, cuda"),
        ('operator = "rms-norm"', "operator = 'rms-norm': 'rms-norm' is not one of"),
        ("hours = 1\nminutes = 3", "hours: minutes is given too; give hours or minutes, not both"),
        ('impl = ["x"]\noperator = "rope"', "impl: operator is given too"),
        (
            'known = [{finding = "x.json", issue = "#1", reason = "a b c"}]',
            "'x.json', 'issue': '#1', 'reason': 'a b c'}: file: ",
        ),
        ('known = [{finding = "x.json"}]', "Object missing required field `issue` - at `$.known[0]`"),
    ],
)
@pytest.mark.parametrize("write", [own, shared])
def test_what_is_not_allowed_is_refused(
    write: Callable[[Path, str], Path], text: str, wanted: str, project: Path, started: list[Settings]
) -> None:
    file = write(project, text)
    table = "[tool.mhc-fuzz] " if write is shared else ""
    output = fuzz(status=2)
    assert f"Error: {file.name}: {table}{wanted}" in output or (
        wanted in output and f"{file.name}: {table}known = " in output
    )
    assert not started


def test_a_file_that_is_no_toml_and_two_files_are_refused(project: Path) -> None:
    path = own(project, "impl = [")
    assert f"{path}: cannot be read: " in fuzz(status=2)
    own(project, "seed = 1")
    shared(project, "seed = 1")
    assert "pyproject.toml beside it has [tool.mhc-fuzz] too; keep one of them" in fuzz(status=2)
    (project / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    assert values(fuzz("--show-config"))[0]["seed"] == 1
    assert "has no table [tool.mhc-fuzz]" in fuzz("--config", "pyproject.toml", status=2)


def test_the_search_ends_at_the_root_of_a_repository(project: Path) -> None:
    own(project.parent, "seed = 1")
    assert configuration.find(project) == project.parent / "mhc-fuzz.toml"
    (project / ".git").mkdir()
    assert configuration.find(project) is None


def test_a_file_above_that_belongs_to_somebody_else_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names code that is executed, and a folder above may be open to everybody, as /tmp is."""
    path = own(project.parent, "seed = 1")
    monkeypatch.setattr(configuration, "_owner", lambda file: 12345 if file == path else os.getuid())
    assert f"{path}: belongs to user 12345; if you trust it, give --config {path}" in fuzz(status=2)
    assert values(fuzz("--show-config", "--config", path))[0]["seed"] == 1
    monkeypatch.setattr(configuration, "_owner", lambda _: 12345)  # as of a checkout in a container
    assert values(fuzz("--show-config"))[0]["seed"] == 1


def test_an_implementation_that_the_file_names_wrongly_is_told_of_with_the_file(project: Path) -> None:
    shared(project, 'impl = ["norm.py:IMPL"]\n')
    assert "Error: pyproject.toml: [tool.mhc-fuzz] impl norm.py: no such file" in fuzz(status=2)
    shared(project, 'against = ["norm.py:IMPL"]\n')
    assert "Error: pyproject.toml: [tool.mhc-fuzz] against norm.py: no such file" in fuzz(status=2)
    assert "Error: --impl norm.py: no such file" in fuzz("--impl", "norm.py:IMPL", status=2)


def test_the_schema_is_that_of_the_keys_and_takes_what_is_taken() -> None:
    """To write it anew: python -m mhc.fuzz --config-schema > docs/mhc-fuzz.schema.json."""
    assert fuzz("--config-schema") == SCHEMA.read_text(encoding="utf-8")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    properties = schema["$defs"]["Keys"]["properties"]
    assert tuple(properties) == KEYS
    assert all(one["description"] for one in properties.values())
    jsonschema.validate({"impl": ["x.py:IMPL"], "hours": 2, "device": "cuda"}, schema)
    refused: list[dict[str, Any]] = [
        {"minuts": 1},
        {"minutes": 0},
        {"impl": "x.py:IMPL"},
        {"device": "gpu"},
        {"known": [{}]},
    ]
    for wrong in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_each_option_of_a_campaign_is_a_key_or_belongs_to_one_command_line() -> None:
    names = {name.removeprefix("--") for one in main.params for name in one.opts if name.startswith("--")}
    alone = {"resume", "resume-or-start", "trust", "config", "show-config", "config-schema"}
    assert names == {*KEYS, *alone} - {"known"}


def listed(project: Path, **more: str) -> None:
    """A ledger of one finding, on dx of `manual`."""
    (project / f"{FOUND.fingerprint.id}.json").write_text(FOUND.to_json(), encoding="utf-8")
    entry = {"finding": f"{FOUND.fingerprint.id}.json", "issue": "#12", "reason": "waits for a release", **more}
    own(project, "[[known]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items()))


def test_a_known_finding_fails_no_report(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(project / FILE)
    store.set_meta(device="cpu", seed=1, implementations=[{"name": "manual", "spec": "manual"}])
    id_, found = document("manual", "dx", "value", "dx[0] = 1, float64 0, bound 0")
    store.keep(id_, found, "raw", 5.0)
    store.close()
    fuzz("report", ".", status=1)
    listed(project)
    output = fuzz("report", ".", status=2)  # nothing was judged, and no finding is new
    assert "known: manual: dx: value (bound): waits for a release (#12)" in output
    assert "# known: manual: dx: value (bound) (#12)" in fuzz("--show-config")
    pages = list[str]()
    monkeypatch.setattr(LiveServer, "serve_forever", lambda server: pages.append(server.report.answer().body.decode()))
    fuzz("serve", ".")
    assert "waits for a release (#12)" in pages[0]


@pytest.mark.parametrize(
    ("answer", "more", "refused"),
    [
        (failed("bound", "dx", "value", ""), {}, False),
        (passed("bound", "dx"), {}, True),
        (passed("bound", "dx"), {"device": "cuda"}, False),
    ],
)
def test_a_known_finding_must_still_fail(
    answer: Verdict,
    more: Mapping[str, str],
    refused: bool,
    project: Path,
    started: list[Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed(project, **more)
    monkeypatch.setattr(ledger, "processes", lambda *_: stubs(lambda case, depth: answer)[0])
    monkeypatch.setattr("mhc.fuzz.cli.run._opened", lambda settings: 1 / 0)  # it would begin
    fuzz("--impl", "manual")
    (settings,) = started
    wanted = f"mhc-fuzz.toml: known: {FOUND.fingerprint.id}.json does not fail any more .3 runs on cpu.; take out the entry"
    with pytest.raises(Exception, match=wanted if refused else "division by zero"):
        run_campaign(settings)
    fuzz("--impl", "golden")
    with pytest.raises(ZeroDivisionError):  # another implementation's entries are not run
        run_campaign(started[1])


def run_of(folder: Path, **meta: Any) -> Path:
    """A run that checked `manual` for 40 s, with 30 cases."""
    folder.mkdir()
    with_ = {"implementations": [{"name": "manual", "spec": "manual"}], "chosen": True, "device": "cpu", "seed": 4}
    store = Store.create(folder / FILE)
    store.set_meta(**{**with_, "seconds": 40.0, "cases": None, **meta})
    store.tell_leg(store.begin_leg(0.0), 40.0, "budget spent")
    store.count("manual", "checked", 30)
    store.close()
    return folder


def test_a_run_is_started_and_then_resumed_for_as_long_again(project: Path, started: list[Settings]) -> None:
    fuzz("--resume-or-start", "night", "--impl", "manual", "--minutes", 2)
    assert (started[0].folder, started[0].resumed, started[0].exact) == (Path("night"), False, True)
    run_of(project / "night")
    for limits in (("--minutes", 2), ("--cases", 5), ()):
        fuzz("--resume-or-start", "night", "--impl", "manual", *limits)
        assert started[-1].resumed
        assert (started[-1].folder, started[-1].seed, started[-1].specs) == (Path("night"), 4, ("manual",))
    assert [(one.budget.seconds, one.budget.cases) for one in started[1:]] == [
        (160.0, float("inf")),
        (float("inf"), 35),
        (100.0, float("inf")),
    ]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--impl", "golden"), "checks manual, not golden"),
        ((), "checks manual, not built-in ones of mhc_pre"),
        (("--impl", "manual", "--against", "golden"), "compares with nothing, not with golden"),
        (("--impl", "manual", "--device", "cuda"), "runs on cpu, not on cuda"),
        (("--impl", "manual", "--seed", 5), "has the seed 4, not 5"),
        (("--programs", "tilelang"), "checks manual, not tilelang-to-c"),
    ],
)
def test_a_run_about_something_else_is_not_resumed(
    arguments: tuple[object, ...], wanted: str, project: Path, started: list[Settings]
) -> None:
    run_of(project / "night")
    assert f"--resume-or-start night: the run in it {wanted}" in fuzz("--resume-or-start", "night", *arguments, status=2)
    assert not started


def test_a_run_of_built_in_ones_and_of_programs_is_resumed(project: Path, started: list[Settings]) -> None:
    run_of(project / "all", chosen=False)
    fuzz("--resume-or-start", "all")
    run_of(project / "programs", implementations=[{"name": "tilelang-to-c", "spec": "tilelang-to-c"}])
    fuzz("--resume-or-start", "programs", "--programs", "tilelang")
    assert [one.resumed for one in started] == [True, True]
    assert "not both" in fuzz("--resume-or-start", "all", "--resume", "all", status=2)


def test_a_name_in_a_run_that_is_not_given_again_is_not_executed(project: Path, started: list[Settings]) -> None:
    (project / "mine.py").write_text(KERNEL, encoding="utf-8")
    run_of(project / "night", implementations=[{"name": "mine", "spec": "mine.py:IMPL"}])
    fuzz("--resume-or-start", "night", "--impl", "mine.py:IMPL")
    own(project, 'impl = ["mine.py:IMPL"]')
    fuzz("--resume-or-start", "night")
    assert len(started) == 2
    assert "names mine.py:IMPL" in fuzz("--resume", "night", status=2)


def test_a_folder_with_something_else_is_not_taken_for_a_run(project: Path) -> None:
    (project / "night").mkdir()
    (project / "night" / "notes").touch()
    output = fuzz("--resume-or-start", "night", "--impl", "manual", "--cases", 1, status=2)
    assert f"--resume-or-start night: has no {FILE}, and is not empty" in output
    assert [one.name for one in project.glob("night*")] == ["night"]


COARSE = """
from dataclasses import replace
from mhc import load
manual = load("manual")
def forward(x, phi, *rest, **scalars):
    return manual.forward(x, phi.bfloat16().to(phi.dtype), *rest, **scalars)
IMPL = replace(manual, name="coarse", forward=forward, backward=None, dtypes=("float32",))
"""


def test_the_page_shows_a_file_that_is_right_and_names_each_key(project: Path) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = tomllib.loads(block)["tool"]["mhc-fuzz"]
    (entry,) = shown.pop("known")
    block = block.replace(entry["finding"], name := f"{FOUND.fingerprint.id}.json")
    (project / "pyproject.toml").write_text(block, encoding="utf-8")
    (project / name).write_text(FOUND.to_json(), encoding="utf-8")
    defaults = values(fuzz("--show-config", "--config", os.devnull))[0]
    assert values(fuzz("--show-config"))[0] == defaults | shown
    table = page.split("## Keys")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)`", table)) >= set(KEYS)


def test_the_names_of_impl_may_be_lines_of_one_text(project: Path, started: list[Settings]) -> None:
    fuzz("--impl", "manual\n  norm.py:IMPL\n\n", "--impl", "golden")
    assert started[0].specs == ("manual", "norm.py:IMPL", "golden")
    fuzz("--impl", "")
    assert started[1].specs == ("",)  # nothing is no way to ask for all built-in ones


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "status"), [("", 1), ("[matmul=bfloat16]", 0)])
def test_less_precision_that_is_declared_with_the_name_is_what_workers_judge(
    declared: str, status: int, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mhc.fuzz.cli.run.MINIMISE", False)
    (project / "coarse.py").write_text(COARSE, encoding="utf-8")
    own(project, f'impl = ["coarse.py:IMPL{declared}"]\ncases = 12\nseed = 1\nworkers = 1\nout = "runs"\n')
    output = fuzz(status=status)
    assert ("Judged as declared: coarse: matmul in bfloat16." in output) == bool(declared)
    if not declared:
        path = next((project / "runs").glob("*/*.json"))
        fuzz("replay", path, "--impl", "coarse.py:IMPL", status=1)
        fuzz("replay", path, "--impl", "coarse.py:IMPL[matmul=bfloat16]")
