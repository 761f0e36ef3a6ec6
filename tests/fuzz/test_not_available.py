"""What is not installed is told of, with what to install: by every verb with status 2, and by reports."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import mhc.registry
from mhc import environment
from mhc.environment import tilelang_unmet, unmet
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.options import not_available
from mhc.fuzz.report import markdown, read
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.page import page
from mhc.programs.targets import target_named
from mhc.registry import load
from tests.support.exports import finding
from tests.support.needs import skipped_for

LACKS = "pack is not installed: pip install 'mhc-fuzz[pack]'"
TILELANG = "tilelang is not installed: pip install 'mhc-fuzz[tilelang]'"
Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a function that sets the versions which the package finds."""

    def pretend(**versions: str) -> None:
        def version(name: str) -> str:
            try:
                return versions[name.replace("-", "_")]
            except KeyError:
                raise PackageNotFoundError(name) from None

        monkeypatch.setattr(environment, "version", version)

    return pretend


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one built-in implementation that lacks something."""
    one = replace(load("manual"), name="absent", devices=("cpu",), unavailable=lambda: LACKS)
    monkeypatch.setattr(mhc.registry, "BUILT_IN", (load("manual"), load("golden"), one))


def test_what_is_pinned_and_what_is_not(installed: Installed) -> None:
    installed(tilelang="0.1.8", apache_tvm_ffi="0.1.9")
    assert tilelang_unmet() is tilelang_unmet(pinned=False) is None
    installed(tilelang="0.1.8", apache_tvm_ffi="0.1.12")
    wrong = "apache-tvm-ffi 0.1.12 is installed, 0.1.9 is needed: pip install 'mhc-fuzz[tilelang]', in another environment"
    for pinned in (True, False):
        assert (tilelang_unmet(pinned=pinned) or "").startswith(wrong)
    installed(tilelang="0.1.15", apache_tvm_ffi="0.1.12")
    assert (tilelang_unmet() or "").startswith("tilelang 0.1.15 is installed, 0.1.8 is needed: ")
    assert tilelang_unmet(pinned=False) is None, "programs run on any release"
    installed()
    assert tilelang_unmet() == tilelang_unmet(pinned=False) == TILELANG
    assert unmet({}, "none") is None


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    "words",
    [
        ("--impl", "absent"),
        ("--impl", "manual", "--against", "absent"),
        ("replay", "FOUND"),
        ("minimise", "FOUND"),
        ("promote", "FOUND"),
        ("export", "--to", "torch", "FOUND"),
    ],
    ids=" ".join,
)
def test_each_verb_refuses_it(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    file.write_text(finding("absent", "dx").to_json(), encoding="utf-8")
    done = CliRunner().invoke(main, [str(file) if one == "FOUND" else one for one in words])
    assert done.exit_code == 2, done.output
    assert done.stderr.splitlines()[-1].endswith(f" absent: not available: {LACKS}")


def test_programs_are_refused_without_a_compiler(installed: Installed, tmp_path: Path) -> None:
    installed()
    done = CliRunner().invoke(main, ["--programs", "tilelang", "--out", str(tmp_path)])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        f"Error: --programs tilelang-to-c: not available: {TILELANG}",
    )
    target = target_named("tilelang-to-c")
    assert target is not None
    assert replace(target, site=tmp_path).unavailable() is None, "it has a release of its own"


def test_a_function_of_tilelang_is_not_exported_without_it(installed: Installed) -> None:
    installed()
    words = ["--to", "tilelang", "--program", "a.py:f", "--title", "a", "--out", "out", "--raises", "E: a"]
    done = CliRunner().invoke(main, ["export", *words])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: --to tilelang: {TILELANG}")


@pytest.mark.usefixtures("absent")
def test_the_list_has_it_with_the_reason() -> None:
    lines = CliRunner().invoke(main, ["list"]).stdout.splitlines()
    assert [line.partition("not available: ")[2] for line in lines[:3]] == ["", "", LACKS]


@pytest.mark.usefixtures("absent")
def test_a_campaign_leaves_it_out_and_its_reports_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not_available("cpu") == {"absent": LACKS}
    assert not_available("cuda") == {}
    monkeypatch.setattr("mhc.fuzz.cli.run.Campaign", lambda *_, **__: SimpleNamespace(run=lambda: "budget spent"))
    done = CliRunner().invoke(main, ["--cases", "1", "--out", str(tmp_path)])
    assert done.stdout.startswith("checking manual, golden on cpu"), done.output
    assert f"absent: not available: {LACKS}" in done.stderr.splitlines()
    (folder,) = tmp_path.iterdir()
    store = Store(folder / FILE)
    run = read(folder, store)
    store.close()
    assert run.gaps["absent"] == f"not available: {LACKS}"
    for text in (markdown(run), junit(run).replace("&#x27;", "'"), page(run).replace("&#39;", "'")):
        assert f"not available: {LACKS}" in text


def test_continuous_integration_skips_nothing() -> None:
    assert skipped_for(LACKS, {}) == LACKS
    assert skipped_for(LACKS, {"CI": "true"}) == ""
    assert skipped_for(None, {}) == ""
