"""A worker's process: what limit it is under, and when."""

import fcntl
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from mhc import default_case, load
from mhc.fuzz.check.level import Level
from mhc.fuzz.worker import forkserver as our_forkserver
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import HarnessError, Process
from mhc.fuzz.worker.protocol import Begun, Check, Done, Judged, Message, Ran, Ready, Round, Running
from mhc.oracles.verdict import Status, Verdict
from tests.support.helpers import sleeping


def test_work_that_is_handed_over_early_leaves_the_limit_of_starting_until_it_begins() -> None:
    process = Process("golden", load("golden").env, "cpu", Limits(), target=serve)
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
            assert process.exit_verdict() is None or ended
            time.sleep(0.01)
        assert told == ["starting", "drawing", "waiting"]
    finally:
        process.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say what a process does")
def test_a_server_that_was_stopped_is_woken() -> None:
    """A kernel may stop what its process was forked from; the next start would wait for good."""
    Process("golden", load("golden").env, "cpu", Limits(), target=serve).kill()  # there is a server from now on
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(server, signal.SIGSTOP)
    while our_forkserver.status(server)[0] != "T":  # it stops when it is next looked at
        time.sleep(0.01)
    process = Process("golden", load("golden").env, "cpu", Limits(), target=serve)
    try:
        answer, ended = process.answer(Ready)
        assert answer is not None, ended
    finally:
        process.kill()


def test_a_process_on_a_gpu_is_told_its_share_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tells.py"
    file.write_text("import os\nraise RuntimeError('configured: ' + os.environ.get('PYTORCH_CUDA_ALLOC_CONF', 'not'))\n")

    def told(device: str, share: float) -> str:
        process = Process(f"{file}:IMPL", {}, device, Limits(gpu_share=share), target=serve)
        try:
            with pytest.raises(HarnessError) as fault:
                process.answer(Ready)
            return str(fault.value)
        finally:
            process.kill()

    assert "configured: per_process_memory_fraction:0.2500" in told("cuda", 0.25)
    assert "configured: not" in told("cuda", 1.0)
    assert "configured: not" in told("cpu", 0.25)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert "configured: expandable_segments:True,per_process_memory_fraction:0.2500" in told("cuda", 0.25)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.9")
    assert "configured: per_process_memory_fraction:0.9" in told("cuda", 0.25)


@pytest.mark.parametrize(("visible", "number", "name"), [(None, 1, "1"), ("3,GPU-5b1a", 1, "GPU-5b1a"), ("2", 0, "2")])
def test_a_process_gets_one_of_the_gpus_that_this_one_may_use(
    visible: str | None, number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two campaigns on a GPU each, by CUDA_VISIBLE_DEVICES, both ran on the first one, and filled it."""
    file = tmp_path / "tells.py"
    file.write_text("import os\nraise RuntimeError('GPU ' + os.environ['CUDA_VISIBLE_DEVICES'] + '.')\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    process = Process(f"{file}:IMPL", {}, "cuda", Limits(), gpu=number, target=serve)
    try:
        with pytest.raises(HarnessError, match=f"GPU {name}[.]"):
            process.answer(Ready)
    finally:
        process.kill()


def test_an_implementation_that_is_never_loaded_is_at_the_end_of_the_limit_of_starting(tmp_path: Path) -> None:
    file = tmp_path / "sleeps.py"
    file.write_text("import time\nfrom mhc import load\nIMPL = load('golden')\ntime.sleep(600)\n")
    process = Process(f"{file}:IMPL", load("golden").env, "cpu", Limits(start=3.0, idle=600.0), target=serve)
    try:
        process.send(Round(seed=0, count=1))
        started = time.monotonic()
        while (ended := process.exit_verdict()) is None:
            list(process.receive())
            assert time.monotonic() - started < 30
            time.sleep(0.05)
        assert isinstance(ended, Verdict)
        assert ended.symptom == "hang"
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
    process = Process(f"{file}:IMPL", {}, "cpu", Limits(), target=serve)
    try:
        process.await_ready()
    finally:
        process.kill()


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="the system tells each who asks")
def test_two_threads_that_look_at_its_end_see_the_same_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to read the status from the pipe would find nothing: whoever starts a process polls all others."""
    process = FORKSERVER.Process(target=os._exit, args=(7,))
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
    process = Process(f"{file}:IMPL", {}, "cpu", Limits(run=600.0, idle=600.0, parting=1.5), target=serve)
    try:
        process.await_ready()
        started, spent = time.monotonic(), time.process_time()
        process.send(Round(seed=0, count=1))
        answer, ended = process.answer(Judged)
        assert answer is None
        assert ended is not None
        assert (ended.subject, ended.symptom) == ("process", "closes its pipe")
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
    worker = WorkerClient(spec, load(spec), "cpu", limits=Limits(memory=0.6 * 2**30))
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
    here, there = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_tell_method, args=(there,))
    process.start()
    assert here.poll(60)
    assert here.recv() is None, "semaphores of another method outlive a process that is killed"
    process.join()


KERNEL = """
import os, signal, subprocess, time
from contextlib import suppress
from dataclasses import replace
from mhc import load

def quietly(fd):
    with suppress(OSError):
        os.write(fd, b"garbage")

def forward(*args, **kwargs):
    {work}
    return load("manual").forward(*args, **kwargs)

IMPL = replace(load("manual"), name="mine", forward=forward, backward=None)
"""


def running(tmp_path: Path, work: str, **limits: Any) -> Process:
    """A process that was handed one case for a kernel that does `work` first."""
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL.format(work=work), encoding="utf-8")
    process = Process(f"{file}:IMPL", {}, "cpu", Limits(**limits), target=serve)
    process.await_ready()
    process.send(Check(case=default_case(B=1, S=1, n=1, D=1).json, depth=Level.PLAIN))
    return process


@pytest.mark.parametrize(
    ("work", "symptom"),
    [
        ("os.kill(os.getpid(), 40)", "signal 40"),
        ("[quietly(fd) for fd in range(3, 64)]", "writes to its pipe"),
    ],
)
def test_each_end_has_a_symptom(tmp_path: Path, work: str, symptom: str) -> None:
    process = running(tmp_path, work)
    try:
        answer, ended = process.answer(Judged)
        assert answer is None
        assert ended is not None
        assert ended.symptom == symptom
    finally:
        process.kill()


@pytest.mark.parametrize("lasting", [3, 70])
def test_processes_that_run_are_told_from_those_that_have_ended(tmp_path: Path, lasting: int) -> None:
    start = f"kept = [subprocess.Popen(one.split()) for one in {lasting} * ['sleep 60'] + {70 - lasting} * ['true']]"
    process = running(tmp_path, f"{start}; time.sleep(60)")
    try:
        _, ended = process.answer(Judged)
    finally:
        process.kill()
    assert ended is not None
    assert ended.symptom == "leaves processes"
    runs, *over = ended.message.split("; ")
    running_count = int(runs.removeprefix("had ").removesuffix(" processes running that it had started"))
    if lasting == 70:
        assert running_count > 64
        assert not over
    else:  # it may be looked at while the last ones still run
        assert running_count < 35
        assert over[0].endswith(" processes that had ended and that it had not waited for")


def test_a_call_that_never_ends_is_told_after_its_limit_where_no_compiler_runs(tmp_path: Path) -> None:
    process = running(tmp_path, "time.sleep(600)", run=1.0, compile=600.0)
    try:
        started = time.monotonic()
        _, ended = process.answer(Judged)
        assert ended is not None
        assert (ended.symptom, ended.message) == ("hang", "no answer within 1 s")
        assert time.monotonic() - started < 20
    finally:
        process.kill()


def test_judging_is_not_the_kernel_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tolerance may take minutes, and a run no more than `--run-limit`."""
    process = Process("manual", load("manual").env, "cpu", Limits(run=60.0, compile=0.0, judge=600.0), target=serve)
    now = {"seconds": 0.0}

    def hangs_after(seconds: int, *messages: Message) -> bool:
        for message in messages:
            process._note(message)
        found = None
        for _ in range(seconds):
            now["seconds"] += 1.0
            found = found or process._hung(now["seconds"])
        return found is not None

    try:
        process.await_ready()
        with monkeypatch.context() as clock:  # `kill` waits by it
            clock.setattr("mhc.fuzz.worker.process.time.monotonic", lambda: now["seconds"])
            assert hangs_after(70, Running(nth=1))
            assert not hangs_after(500, Running(nth=2), Ran())
            assert not hangs_after(500, Begun(case="", number=1))
            assert hangs_after(610, Ran())
    finally:
        process.kill()


def test_time_in_which_nobody_watched_is_not_the_process_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z: the watcher sees a clock that has moved on, and a process that has said nothing."""
    process = running(tmp_path, "time.sleep(600)", run=60.0, compile=0.0)
    try:
        while process.doing != "running":
            list(process.receive())
        clock, away = time.monotonic, {"seconds": 0.0}
        monkeypatch.setattr("mhc.fuzz.worker.process.time.monotonic", lambda: clock() + away["seconds"])
        assert process.exit_verdict() is None
        away["seconds"] = 3600.0
        assert process.exit_verdict() is None
        for _ in range(100):  # with somebody who watches it is a hang
            away["seconds"] += 0.9
            ended = process.exit_verdict()
        assert isinstance(ended, Verdict)
        assert ended.symptom == "hang"
    finally:
        process.kill()


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="nobody adopts orphans")
@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen([{0}])",
        "subprocess.Popen([{0}], start_new_session=True)",
        "subprocess.run('setsid sleep {1} &', shell=True)",
    ],
    ids=["a child", "a session of its own", "a daemon"],
)
@pytest.mark.parametrize("crashes", [False, True])
def test_what_a_kernel_starts_does_not_outlive_its_process(tmp_path: Path, start: str, crashes: bool) -> None:
    mark = str(10**6 + random.randrange(10**6))
    started = start.format(f"'sleep', '{mark}'", mark)
    process = running(
        tmp_path,
        f"{started}; time.sleep(0.3); "
        + ("os.abort()" if crashes else "open('begun', 'w'); time.sleep(60)").replace(
            "'begun'", repr(str(tmp_path / "begun"))
        ),
    )
    try:
        if crashes:
            _, ended = process.answer(Judged)
            assert ended is not None
            assert ended.symptom == "SIGABRT"
        while not crashes and not (tmp_path / "begun").exists():
            time.sleep(0.05)
            assert process.exit_verdict() is None
        if not crashes:
            assert sleeping(mark), "or nothing is tested here"
    finally:
        process.kill()
    assert not sleeping(mark)


@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="the folder is that of TMPDIR")
def test_folders_for_sockets_that_killed_processes_left_are_removed() -> None:
    our_forkserver.start_server()
    own: Any = multiprocessing.current_process()
    assert own._config["tempdir"].startswith("/dev/shm/mhc-")
    number = os.open(own._config["tempdir"], os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(number)
    with (
        tempfile.TemporaryDirectory(prefix="m") as name,
        ExitStack() as stack,
    ):  # a short path: a socket's name has 107 letters
        place = Path(name)
        kinds = ("left", "empty", "locked", "listen", "young", "a_file")
        folders = {kind: place / f"mhc-{kind:_<8}" for kind in kinds}
        for kind, folder in folders.items():
            folder.mkdir()
            if kind in {"left", "listen", "locked"}:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.bind(str(folder / "listener"))
                one.listen()
                if kind != "listen":
                    one.close()
        (folders["a_file"] / "mine").write_text("", encoding="utf-8")
        (place / "mhc-long-and-not-ours").mkdir()
        lock = os.open(folders["locked"], os.O_RDONLY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        for folder in place.iterdir():
            if folder != folders["young"]:
                os.utime(folder, (0, 0))
        our_forkserver._remove_left(place)
        kept = {"locked", "listen", "young", "a_file"}
        assert {path.name for path in place.iterdir()} == {*(folders[one].name for one in kept), "mhc-long-and-not-ours"}


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no server")
def test_an_end_with_the_server_blames_no_case(tmp_path: Path) -> None:
    """As where the system kills the server, short of memory: nobody knows how its processes have ended."""
    work = f"open({str(tmp_path / 'begun')!r}, 'w'); time.sleep(60)"
    process = running(tmp_path, work)
    try:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(HarnessError, match="the server that its process was forked from has ended"):
            process.answer(Judged)
    finally:
        process.kill()
    again = Process("manual", {}, "cpu", Limits(), target=serve)
    try:
        again.await_ready()
    finally:
        again.kill()


def test_a_crash_ends_a_process_by_its_own_signal_whatever_a_library_has_installed_for_that(tmp_path: Path) -> None:
    """TVM's handler allocates memory, and often ends the process by SIGABRT instead."""
    file = tmp_path / "handles.py"
    file.write_text(
        "import os\nimport signal\n\nfrom dataclasses import replace\n\nfrom mhc import load\n\n\n"
        "signal.signal(signal.SIGSEGV, lambda *_: os.abort())\n\n\n"
        "def crash(*_, **__):\n    os.kill(os.getpid(), signal.SIGSEGV)\n\n\n"
        'IMPL = replace(load("manual"), name="mine", forward=crash, backward=None)\n'
    )
    before = signal.getsignal(signal.SIGSEGV)
    implementation = load(f"{file}:IMPL")
    signal.signal(signal.SIGSEGV, before)  # the worker loads it for itself
    log = tmp_path / "log"
    client = WorkerClient(f"{file}:IMPL", implementation, "cpu", log=log)
    try:
        client.start(default_case(), Level.PLAIN)
        (verdict,) = client.finish()
        assert verdict.symptom == "SIGSEGV"
        assert verdict.message.endswith("SIGSEGV (handles.py, line 13)")
    finally:
        client.stop()
    assert "Segmentation fault" in log.read_text(encoding="utf-8")


def test_the_end_of_a_reference_is_no_finding_of_a_kernel_that_was_never_called(tmp_path: Path) -> None:
    file = tmp_path / "ends.py"
    file.write_text(
        "import os\n\nfrom mhc import Implementation, operator\n\n\n"
        '@operator(x="[D] storage")\ndef twice(x):\n    if len(x) > 7:\n        os._exit(3)\n    return x * 2\n\n\n'
        'IMPL = Implementation(name="mine", operator=twice, forward=lambda x: x * 2)\n'
    )
    load(f"{file}:IMPL")
    small, large = (default_case(operator="twice", D=size) for size in (4, 9))
    client = WorkerClient(f"{file}:IMPL", load(f"{file}:IMPL"), "cpu")
    try:
        client.start(small)
        assert {one.status for one in client.finish()} <= {Status.PASS, Status.NOT_APPLICABLE}
        client.start(large)
        (verdict,) = client.finish()
        assert verdict.symptom == "exit 3"
        assert verdict.message == (
            "its process ended in the reference, before the implementation was called in this case: exit 3"
        )
        client.start(large)  # in another process
        with pytest.raises(HarnessError, match="ended in the reference, before it called the implementation: exit 3"):
            client.finish()
    finally:
        client.stop()
