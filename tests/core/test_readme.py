"""What the README says works: its kernel, its commands and links, and the layout page names the tree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mhc import default_case, load
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.oracles.verdict import Status
from tests.support.helpers import ROOT

READMES = ("README.md", "README.zh.md")
NORM = ROOT / "docs" / "examples" / "rms_norm.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def python_blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def code_lines(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.strip() and not line.strip().startswith("#")]


@pytest.mark.parametrize("name", READMES)
def test_the_kernel_that_is_shown_is_the_example_and_short(name: str) -> None:
    (block,) = python_blocks(name)
    assert block == NORM.read_text(encoding="utf-8")
    assert len(block.splitlines()) <= 25


@pytest.mark.slow
def test_the_bug_that_is_shown_is_found_and_minimised(tmp_path: Path) -> None:
    text = NORM.read_text(encoding="utf-8")
    assert text.count(" / D ") == 1
    (tmp_path / "norm.py").write_text(text.replace(" / D ", " / BLOCK "), encoding="utf-8")
    command = [sys.executable, "-m", "mhc.fuzz", "--cases", "20", "--seed", "1", "--impl", "norm.py:IMPL"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("MINIMAL")[1].splitlines()
    printed = done.stdout.split("MINIMAL")[1].splitlines()
    assert printed[:4] == shown[:4]


@pytest.mark.slow
def test_the_kernel_that_is_shown_passes_under_pytest(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM.read_text(encoding="utf-8"), encoding="utf-8")
    test = "from mhc.testing import check\nfrom norm import IMPL\ndef test_norm():\n    check(IMPL, cases=20)\n"
    (tmp_path / "test_norm.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**ENVIRONMENT, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_tour_runs_from_another_folder(tmp_path: Path) -> None:
    (block,) = python_blocks("docs/bring-your-own.md")
    assert len(code_lines(block)) <= 25
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_layout_page_has_each_folder_once_and_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)/` \| .* \| (.+) \|$", page, flags=re.MULTILINE)
    folders = [folder for folder, _ in rows]
    assert len(set(folders)) == len(folders)
    code = (path.parent for name in ("mhc", "oracles", "strategies", "tests") for path in (ROOT / name).rglob("*.py"))
    assert {folder.relative_to(ROOT).as_posix() for folder in code} <= set(folders)
    named = [f"{folder}/{file}" for folder, first in rows for file in re.findall(r"`([\w/.-]+)`", first)]
    named += [
        path for path in re.findall(r"`([\w/.-]+)`", page) if path.split("/")[0] in {"mhc", "oracles", "strategies", "tests"}
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_its_commands_and_links_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z]+)\b", text, flags=re.MULTILINE)
    assert {"test", "fuzz"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        assert (ROOT / link).exists(), link


def test_the_worked_example_of_an_outside_kernel_is_right() -> None:
    implementation = load(f"{ROOT / 'docs' / 'examples' / 'my_kernel.py'}:IMPL")
    judged = 0
    for seed, (n, D, dtype) in enumerate(((1, 1, "float32"), (2, 5, "bfloat16"), (4, 33, "float32"), (3, 8, "float16"))):
        case = with_tensor(default_case(B=2, S=3, n=n, D=D, dtype=dtype), "x", scale=0.1, seed=seed)
        verdicts = check(implementation, case, "cpu").verdicts
        assert not [verdict for verdict in verdicts if verdict.status is Status.FAIL]
        judged += sum(verdict.status is Status.PASS for verdict in verdicts)
    assert judged > 10
