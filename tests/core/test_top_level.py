"""`mhc.oracles` and `mhc.strategies`: from a checkout, a copy without links, the wheel, and by their former names."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mhc.registry import load
from mhc.top_level import folders_of
from tests.support.helpers import ROOT

PLACES = """
import json, sys
sys.path[:0] = [sys.argv[1]]
import mhc.oracles.verdict, mhc.strategies.choice, oracles.verdict as verdict, strategies.choice
from oracles import linear
from strategies.choice import choice
print(json.dumps([mhc.oracles.verdict.__file__, mhc.strategies.choice.__file__]))
assert verdict is mhc.oracles.verdict and verdict.__name__ == verdict.Verdict.__module__ == "mhc.oracles.verdict"
assert linear is sys.modules["mhc.oracles.linear"] and choice is mhc.strategies.choice.choice
"""


@pytest.mark.parametrize("links", [True, False])
def test_each_module_is_loaded_once_from_the_folder_at_top_level(links: bool, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "mutants")
    for name in ("mhc", "oracles", "strategies"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=links, ignore=ignored)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    assert (tmp_path / "mhc" / "oracles").is_symlink() == links
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", PLACES, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [str(tmp_path / "oracles/verdict.py"), str(tmp_path / "strategies/choice.py")]


def test_an_installed_package_is_in_its_own_folder(tmp_path: Path) -> None:
    """Also in a source archive, which has a pyproject.toml, and no folder at top level."""
    assert folders_of("mhc.oracles", str(tmp_path / "mhc/oracles/__init__.py")) == [str(tmp_path / "mhc/oracles")]
    (tmp_path / "pyproject.toml").touch()
    assert folders_of("mhc.oracles", str(tmp_path / "mhc/oracles/__init__.py")) == [str(tmp_path / "mhc/oracles")]
    (tmp_path / "oracles").mkdir()
    assert folders_of("mhc.oracles", str(tmp_path / "mhc/oracles/__init__.py")) == [str(tmp_path / "oracles")]


def test_a_former_name_of_an_implementation_loads_it() -> None:
    name = "oracles.mutants.load:dx_without_gamma"
    assert load(name).forward is load(f"mhc.{name}").forward


def test_a_former_name_of_nothing_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"mhc\.oracles\.nothing"):
        __import__("oracles.nothing")
