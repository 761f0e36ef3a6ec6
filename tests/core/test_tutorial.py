"""docs/tutorial.md: a bug found, minimised, saved, fixed and tested, in an empty folder with the commands that it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.helpers import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "examples" / "norm_with_bug.py"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [text for its, text in found if its == language]


def commands() -> list[str]:
    return [line[2:] for block in blocks("") for line in block.splitlines() if line.startswith("$ ")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the page in a folder, with this Python."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    if not (bin_ / "python").exists():
        (bin_ / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
        (bin_ / "python").chmod(0o755)
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, "PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def not_printed(block: str, printed: str) -> list[str]:
    """Return the lines of a block that were not printed; `...` stands for what differs, and for lines left out."""
    lines = [one.strip() for one in printed.splitlines()]
    wanted = [one.strip() for one in block.splitlines()[1:] if one.strip() != "..."]
    patterns = [".*".join(map(re.escape, one.split("..."))) for one in wanted]
    return [one for one, pattern in zip(wanted, patterns, strict=True) if not any(map(re.compile(pattern).search, lines))]


def test_the_kernel_of_the_page_is_the_example() -> None:
    kernel, test = blocks("python")
    assert kernel == EXAMPLE.read_text(encoding="utf-8")
    assert "check(IMPL" in test
    assert len(PAGE.splitlines()) <= 120
    assert PAGE.count("mask=at <= N") == 2, "in the kernel, and where it is fixed"


@pytest.mark.slow
def test_the_bug_of_the_page_is_found_minimised_saved_fixed_and_kept_out(tmp_path: Path) -> None:
    kernel, test = blocks("python")
    shown = [block for block in blocks("") if block.startswith("$ ")]
    init, replay, pytest_ = commands()
    (tmp_path / "norm.py").write_text(kernel, encoding="utf-8")
    (tmp_path / "test_norm.py").write_text(test, encoding="utf-8")
    found = run(init, tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr
    assert not_printed(shown[0], found.stdout) == [], found.stdout
    fixtures = sorted((tmp_path / "tests" / "regressions").glob("*.json"))
    assert len(fixtures) >= 1
    assert run(replay, tmp_path).returncode == 1, "the bug is still there"
    assert run(pytest_, tmp_path).returncode == 1
    (tmp_path / "norm.py").write_text(kernel.replace("mask=at <= N", "mask=at < N"), encoding="utf-8")
    for path in fixtures:
        again = run(f"python -m mhc.fuzz replay {path} --impl norm_fuzz.py:IMPL", tmp_path)
        assert again.returncode == 0, again.stdout + again.stderr
    fixed = run(replay, tmp_path)
    assert (fixed.returncode, not_printed(shown[1], fixed.stdout)) == (0, []), fixed.stdout
    green = run(pytest_, tmp_path)
    assert (green.returncode, not_printed(shown[2], green.stdout)) == (0, []), green.stdout
