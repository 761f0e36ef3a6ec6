"""The wheel: built, unpacked away from the checkout, imported and run from another folder.

`make wheel` does the same in an empty environment, with the dependencies installed anew.
"""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from mhc.adapters import MODULES, kernels
from mhc.environment import TILELANG
from mhc.registry import BUILT_IN
from tests.support.helpers import ROOT

USE = """
import json, pathlib, runpy, sys
import mhc, mhc.oracles.judge, mhc.strategies.cases
print(json.dumps([str(pathlib.Path(module.__file__).resolve()) for module in (mhc, mhc.oracles, mhc.strategies.cases)]))
sys.argv = ["mhc.fuzz", "list"]
runpy.run_module("mhc.fuzz", run_name="__main__")
"""


@pytest.mark.slow
def test_the_wheel_imports_and_runs_from_another_folder(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    (metadata,) = {top for top in (name.split("/")[0] for name in names) if top.endswith(".dist-info")}
    assert {name.split("/")[0] for name in names} == {"mhc", metadata}
    described = (site / metadata / "METADATA").read_text(encoding="utf-8")
    required = [line for line in described.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert not [line for line in required if "tilelang" in line or "tvm" in line or "mhc-fuzz" in line]
    templates = (ROOT / "mhc" / "fuzz" / "report" / "templates").iterdir()
    assert {"mhc/py.typed", *(f"mhc/fuzz/report/templates/{one.name}" for one in templates)} <= set(names)
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", USE], cwd=elsewhere, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places, *listed = done.stdout.splitlines()
    assert places.count(str(site.resolve())) == 3, places
    assert [line.split()[0] for line in listed] == [
        *(one.name for one in BUILT_IN),
        *(name for library in MODULES for name in kernels(library)),
    ]


def test_the_extra_is_what_the_kernels_ask_for() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert [one.partition(";")[0] for one in extras["tilelang"]] == [f"{name}=={pin}" for name, pin in TILELANG.items()]
    assert extras["all"] == [f"mhc-fuzz[{','.join(name for name in extras if name not in {'all', 'dev', 'docs'})}]"]
    assert "mhc-fuzz[all]" in extras["dev"]
