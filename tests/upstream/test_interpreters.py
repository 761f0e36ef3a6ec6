"""Releases of a DSL, and the environments that have them."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.fuzz.cli.main import main
from mhc.upstream.releases.interpreters import Interpreters, Unavailable, cache_folder, newest
from mhc.upstream.releases.releases import RELEASES, Release, chosen, order, port, release
from tests.support.fake_interpreters import FAKE_TILELANG, exported, registry


@pytest.mark.parametrize("to", [to for to in RELEASES if RELEASES[to]])
def test_releases_are_listed_in_their_order_and_companions_are_pinned(to: str) -> None:
    listed = [one.version for one in RELEASES[to]]
    assert listed == sorted(set(listed), key=order)
    assert all("==" in name for one in RELEASES[to] for name in one.companions or ())


def test_a_release_is_numbers_with_dots() -> None:
    assert order("0.1.7") < order("0.1.7.post3") < order("0.1.8") < order("0.1.15") == order("0.1.15+cuda.git1")
    with pytest.raises(ValueError, match=r"must be numbers with dots.* was '0\.1\.8rc1'"):
        release("tilelang", "0.1.8rc1")


def test_what_is_run_if_nothing_is_said() -> None:
    names = [one.version for one in chosen("tilelang", "0.1.13", "0.2.0")]
    assert names == ["0.1.13", "0.1.14", "0.1.15", "0.2.0"]
    assert chosen("tilelang", "0.1.13", "0.2.0")[-1].companions is None
    assert [one.version for one in chosen("tilelang", "0.1.15", "0.1.15")] == ["0.1.15"]
    assert [one.version for one in chosen("tilelang", "0.1.15", None)] == ["0.1.15"]


def test_a_program_is_changed_for_the_releases_that_want_it() -> None:
    text = "with T.Kernel(1, is_cpu=True):\ntarget = Target('cuda -arch=sm_90')\n"
    assert port("tilelang", "0.1.9", text) == (text, ())
    middle, reasons = port("tilelang", "0.1.10", text)
    assert middle == 'with T.Kernel(1, is_cpu=True):\ntarget = Target({"kind": "cuda", "arch": "sm_90"})\n'
    assert reasons == ("from 0.1.10 on, `Target` takes a dictionary where it took options",)
    assert port("tilelang", "0.1.15", text)[0].startswith("with T.Kernel(1):\n")
    assert port("triton", "3.9.0", text) == (text, ())


def test_none_is_made_where_none_may_be(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no interpreter was given"):
        Interpreters(tmp_path, {}, makes=False).python("tilelang", Release("0.1.8"))


@pytest.fixture
def fake_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip asks an index in a folder, and nothing else, for two releases: one that works, one that does not import."""
    broken = {"tilelang/__init__.py": "raise ImportError('Type already registered')\n", "tilelang/language.py": ""}
    address = registry(
        tmp_path / "index",
        {
            ("tilelang", "0.1.8"): FAKE_TILELANG,
            ("tilelang", "0.1.9"): broken,
            ("apache-tvm-ffi", "0.1.9"): {"tvm_ffi/__init__.py": ""},
        },
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return tmp_path


@pytest.mark.slow
def test_environments_are_made_once_and_what_does_not_import_is_skipped(fake_registry: Path) -> None:
    """The fake repro tells by exit status that it sees its own TileLang, the companion, and PyTorch behind them."""
    text = """
    import sys
    from importlib.util import find_spec
    own = [find_spec(name).origin.startswith(sys.prefix) for name in ("tilelang", "tvm_ffi", "torch")] == [True, True, False]
    print("REPRODUCED" if own else "OTHER: not its own")
    raise SystemExit(1 if own else 2)
    """
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    folder = exported(fake_registry / "out", repro=lines)
    wanted = [f"--releases={version}" for version in ("0.1.8", "0.1.9", "0.1.10")]
    arguments = ("matrix", folder, "--cache", fake_registry / "cache", *wanted)
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    told = {one["version"]: one for one in json.loads((folder / "matrix.json").read_text())["rows"]}
    assert told["0.1.8"]["state"] == "fails", told["0.1.8"]
    assert told["0.1.8"]["packages"]["apache-tvm-ffi"] == "0.1.9"
    assert told["0.1.8"]["install"] == ["tilelang==0.1.8", "apache-tvm-ffi==0.1.9"]
    assert told["0.1.9"]["state"] == "skipped"
    assert "ImportError: Type already registered" in told["0.1.9"]["reason"]
    assert "No matching distribution found for tilelang==0.1.10" in told["0.1.10"]["reason"]
    kept = sorted((fake_registry / "cache").iterdir())
    assert [one.name.rpartition("-")[0] for one in kept] == ["tilelang-0.1.8", "tilelang-0.1.9"]
    (fake_registry / "index" / "tilelang" / "index.html").write_text("")  # what is kept needs no registry
    assert Interpreters(fake_registry / "cache").python("tilelang", RELEASES["tilelang"][1]).is_file()


def test_the_registry_is_asked_for_the_newest(fake_registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert newest("tilelang") == "0.1.9"
    monkeypatch.setenv("PIP_INDEX_URL", (fake_registry / "nowhere").as_uri())
    with pytest.raises(Unavailable, match="No matching distribution found for tilelang"):
        newest("tilelang")


def test_an_environment_is_another_where_its_companions_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []

    def make(place: Path, to: str, release: Release) -> None:
        place.mkdir()
        made.append(release.version)

    monkeypatch.setattr("mhc.upstream.releases.interpreters._make", make)
    for companions in (("a==1",), ("a==2",), ("a==1",), None):
        Interpreters(tmp_path).python("tilelang", Release("0.1.9", companions))
    assert len(made) == len(list(tmp_path.iterdir())) == 3


def test_where_environments_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MHC_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "releases"
