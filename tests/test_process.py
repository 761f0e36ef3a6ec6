"""A worker's process: what limit it is under, and when."""

import multiprocessing
import multiprocessing.connection
import os
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from mhc import default_case, load
from mhc.fuzz.fresh import FRESH
from mhc.fuzz.messages import Done, Judged, Ready, Round
from mhc.fuzz.process import Limits, Process
from mhc.fuzz.worker import Worker


def test_work_that_is_handed_over_early_leaves_the_limit_of_starting_until_it_begins() -> None:
    process = Process("golden", load("golden").env, "cpu", Limits())
    try:
        process.send(Round(seed=0, count=1))
        assert process.doing == "starting"
        told = [process.doing]
        ended = False
        while not ended:
            for message in process.receive():
                ended |= isinstance(message, Done)
                if isinstance(message, (Ready, Done)):
                    told.append(process.doing)
            assert process.fate() is None or ended
            time.sleep(0.01)
        assert told == ["starting", "drawing", "waiting"]
    finally:
        process.kill()


def test_an_implementation_that_is_never_loaded_is_at_the_end_of_the_limit_of_starting(tmp_path: Path) -> None:
    file = tmp_path / "sleeps.py"
    file.write_text("import time\nfrom mhc import load\nIMPL = load('golden')\ntime.sleep(600)\n")
    process = Process(f"{file}:IMPL", load("golden").env, "cpu", Limits(start=3.0, idle=600.0))
    try:
        process.send(Round(seed=0, count=1))
        started = time.monotonic()
        while (fate := process.fate()) is None:
            list(process.receive())
            assert time.monotonic() - started < 30
            time.sleep(0.05)
        assert fate.symptom == "hang"
    finally:
        process.kill()


LOOKS = """
import gc, sys
from mhc import load

if {"triton", "tilelang", "tvm"} & set(sys.modules) or "sympy" not in sys.modules or not gc.get_freeze_count():
    raise RuntimeError("not what it should be forked from")
IMPL = load("golden")
"""


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="each process imports for itself")
def test_it_begins_with_all_that_every_case_needs_and_nothing_of_a_dsl(tmp_path: Path) -> None:
    """A module that cannot be imported beforehand is passed over without a word, and each process imports it anew."""
    file = tmp_path / "looks.py"
    file.write_text(LOOKS, encoding="utf-8")
    process = Process(f"{file}:IMPL", {}, "cpu", Limits())
    try:
        process.await_ready()
    finally:
        process.kill()


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="the system tells each who asks")
def test_two_threads_that_look_at_its_end_see_the_same_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to read the status from the pipe would find nothing: whoever starts a process polls all others."""
    process = FRESH.Process(target=os._exit, args=(7,))
    process.start()
    assert multiprocessing.connection.wait([process.sentinel], 60)
    read = forkserver.read_signed

    def slowly(pipe: int) -> Any:
        time.sleep(0.2)
        return read(pipe)

    monkeypatch.setattr(forkserver, "read_signed", slowly)
    with ThreadPoolExecutor(2) as threads:
        seen = list(threads.map(lambda _: process.exitcode, range(2)))
    assert seen == [7, 7]
    assert process.exitcode == 7


CLOSES = """
import ctypes, os
from dataclasses import replace
from mhc import load

def forward(*args, **kwargs):
    os.closerange(3, 4096)
    ctypes.PyDLL(None).sleep(600)  # no other thread runs meanwhile: nobody in there sees that it is useless

IMPL = replace(load("manual"), name="closes", forward=forward, backward=None)
"""


def test_a_process_that_closes_its_pipe_and_lives_on_is_at_its_end_before_any_limit_of_a_call(tmp_path: Path) -> None:
    """And whoever waits for it sleeps meanwhile: a closed pipe is always ready to be read."""
    file = tmp_path / "closes.py"
    file.write_text(CLOSES, encoding="utf-8")
    process = Process(f"{file}:IMPL", {}, "cpu", Limits(run=600.0, idle=600.0, parting=1.5))
    try:
        process.await_ready()
        started, spent = time.monotonic(), time.process_time()
        process.send(Round(seed=0, count=1))
        answer, fate = process.answer(Judged)
        assert answer is None
        assert fate is not None
        assert (fate.subject, fate.symptom) == ("process", "closes its pipe")
        assert 1.5 < time.monotonic() - started < 30
        assert time.process_time() - spent < 0.5
    finally:
        process.kill()


GREEDY = """
import torch
from dataclasses import replace
from mhc import load

held = []

def forward(*args, **kwargs):
    while len(held) < 200:
        held.append(torch.ones(1 << 23))  # 32 MiB each

IMPL = replace(load("manual"), name="greedy", forward=forward, backward=None)
"""


def test_a_worker_of_its_own_has_a_limit_of_memory_too(tmp_path: Path) -> None:
    """What is minimised must meet the limit that it was found by."""
    file = tmp_path / "greedy.py"
    file.write_text(GREEDY, encoding="utf-8")
    spec = f"{file}:IMPL"
    worker = Worker(spec, load(spec), "cpu", memory=0.6 * 2**30)
    try:
        worker.start(default_case(B=1, S=1, n=1, D=1))
        (verdict,) = worker.finish()
    finally:
        worker.stop()
    assert (verdict.subject, verdict.symptom) == ("process", "out of memory")
    assert worker.retired


def _tell_method(connection: multiprocessing.connection.Connection) -> None:
    connection.send(multiprocessing.get_start_method(allow_none=True))


def test_a_fresh_process_makes_locks_as_a_script_would() -> None:
    here, there = FRESH.Pipe()
    process = FRESH.Process(target=_tell_method, args=(there,))
    process.start()
    assert here.poll(60)
    assert here.recv() is None, "semaphores of another method outlive a process that is killed"
    process.join()
