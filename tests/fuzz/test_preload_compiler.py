"""The compiler that processes are forked with: when it is, and that it is."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mhc import load
from mhc.fuzz.worker import preload_compiler as preload
from mhc.fuzz.worker.preload_compiler import VARIABLE, preload_compiler
from mhc.programs.targets import TARGETS
from mhc.registry import Tested
from tests.support.needs import needs_tilelang

C, LOWERED, TRITON = (TARGETS[name] for name in ("tilelang-to-c", "tilelang-for-sm_90", "triton-for-sm_90"))
ELSEWHERE = replace(C, site=Path("elsewhere"))
SCRIPT = """\
import sys
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.preload_compiler import preload_compiler
from mhc.programs.targets import TARGETS

def look(there):
    there.send("tilelang" in sys.modules)

if __name__ == "__main__":
    preload_compiler({"tilelang-to-c": TARGETS["tilelang-to-c"]}, "cpu")
    here, there = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=look, args=(there,))
    process.start()
    print(here.recv())
    process.join()
"""


@pytest.mark.parametrize(
    ("tested", "device", "wanted"),
    [
        ([C], "cpu", True),
        ([C, LOWERED], "cpu", True),
        ([ELSEWHERE], "cpu", True),
        ([C], "cuda", False),
        ([C, ELSEWHERE], "cpu", False),
        ([TRITON], "cpu", False),
        ([replace(C, env={"A": "1"})], "cpu", False),
        ([load("manual")], "cpu", False),
        ([C, load("manual")], "cpu", False),
    ],
    ids=["one", "two", "of a folder", "on a GPU", "two releases", "triton", "a variable", "a kernel", "both"],
)
def test_it_is_imported_where_all_processes_use_the_same_one(
    monkeypatch: pytest.MonkeyPatch, tested: list[Tested], device: str, wanted: bool
) -> None:
    started = list[str | None]()
    monkeypatch.setattr(preload, "start_server", lambda: started.append(os.environ.get(VARIABLE)))
    preload_compiler({f"spec {number}": one for number, one in enumerate(tested)}, device)
    assert started == (["spec 0"] if wanted else [])
    assert VARIABLE not in os.environ, "another server would import it too"


@pytest.mark.slow
@needs_tilelang
def test_a_process_begins_with_the_compiler(tmp_path: Path) -> None:
    file = tmp_path / "begins.py"
    file.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
