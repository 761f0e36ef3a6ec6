"""A run's folder is one campaign's: whoever begins makes another, and whoever goes on waits for its end."""

import math
import shutil
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mhc.environment import gpu_memory
from mhc.files import Held, hold, new_folder
from mhc.fuzz import report
from mhc.fuzz.campaign.campaign import Budget
from mhc.fuzz.campaign.store import FILE, LOCK, Store, StoreError
from mhc.fuzz.cli import run
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.run import run_campaign
from mhc.fuzz.cli.settings import Settings, _gpu_share, _idle, settings_of
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.limits import Limits
from tests.fuzz.test_hostile_stores import made
from tests.support.fake_executor import MINE, WRONG, FakeExecutor, campaign, healthy


def settings(out: Path, **options: object) -> Settings:
    usual: dict[str, object] = dict.fromkeys(("hours", "minutes", "workers", "resume", "memory", "fixtures_folder"))
    given = {"case_limit": 1, "seed": 1, "run_limit": 60.0, "compile_limit": 0.0, "device": "cpu"}
    names = {"specs": ("manual",), "against": ()}
    return settings_of(**{**usual, **given, **names, "out": out, **options})  # type: ignore[arg-type]


def test_two_campaigns_of_one_second_and_seed_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def reached(*_: object, **__: object) -> None:
        raise Reached

    monkeypatch.setattr("time.strftime", lambda _: "20261121-021603")
    monkeypatch.setattr(run, "_describe", reached)
    for _ in range(3):
        with pytest.raises(Reached):
            run_campaign(settings(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "20261121-021603-seed1",
        "20261121-021603-seed1-2",
        "20261121-021603-seed1-3",
    ]


def test_a_folder_that_is_there_is_nobodys_new_one(tmp_path: Path) -> None:
    (tmp_path / "a" / "run").mkdir(parents=True)
    (tmp_path / "a" / "run-2").write_text("", encoding="utf-8")
    assert new_folder(tmp_path / "a" / "run") == tmp_path / "a" / "run-3"
    assert new_folder(tmp_path / "b" / "run") == tmp_path / "b" / "run"


def test_a_run_that_goes_on_is_reported_and_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    monkeypatch.setattr(run, "load_pairs", lambda *_, **__: ([], ()))
    with closing(Store(tmp_path / FILE)) as store:
        store.claim()
        for _ in range(2):
            again = CliRunner().invoke(main, ["--resume", str(tmp_path), "--trust"])
            assert again.exit_code == 2
            assert "its campaign is still running" in " ".join(again.stderr.split())
        assert CliRunner().invoke(main, ["report", str(tmp_path)]).exit_code == 1
        with closing(Store(tmp_path / FILE)) as other, pytest.raises(StoreError, match="still running"):
            other.claim()
    with closing(Store(tmp_path / FILE)) as other:
        other.claim()


@pytest.mark.parametrize("place", ["gone", "a file"])
def test_a_folder_that_is_removed_is_made_again_or_the_loss_is_told(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    on = LocalExecutor({"mine": ("mine.py:IMPL", MINE)}, "cpu", 1, Limits(), logs=folder / "logs")
    ran = campaign(FakeExecutor(partial(healthy, findings=(WRONG,))), folder, Budget(cases=5))
    report.write_finding(folder, WRONG)
    ran.run()
    shutil.rmtree(folder)
    if place == "a file":
        folder.write_text("", encoding="utf-8")
    assert on._log("mine-0.log") == folder / "logs" / "mine-0.log"
    status = run._finish(replace(settings(tmp_path), folder=folder), ran.store, ran, "budget spent")
    assert status == 3
    told = [message for _, message in ran.faults._known]
    lost = "run.db cannot be written (it was removed); "
    if place == "gone":
        names = ["report.html", "run.db", "summary.md", "junit.xml", "logs", f"{WRONG.fingerprint.id}.json"]
        assert sorted(path.name for path in folder.iterdir()) == sorted(names)
        assert told == [f"{lost}it was written again at the end"]
        shutil.rmtree(folder)
        report.write_finding(folder, WRONG)
        assert [path.name for path in folder.iterdir()] == [f"{WRONG.fingerprint.id}.json"]
    else:
        assert told == [
            f"{lost}the run cannot be resumed or reported again",
            f"the reports cannot be written to {folder}: File exists",
        ]


def holding(path: Path, connection: Connection) -> None:
    hold(path)
    connection.send("held")
    connection.recv()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    here, there = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=holding, args=(tmp_path / LOCK, there))
    process.start()
    assert here.recv() == "held"
    with pytest.raises(Held):
        hold(tmp_path / LOCK)
    process.kill()
    process.join()
    hold(tmp_path / LOCK)
    here.close()
    there.close()


def test_a_worker_has_its_part_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {0: 80 << 30, 1: 40 << 30}
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda gpu: SimpleNamespace(total_memory=sizes[gpu]))
    least = gpu_memory()
    assert least == 40 << 30
    assert _gpu_share(None, least, 4, 1) == pytest.approx(0.8 / 5)
    assert _gpu_share(None, least, 4, 2) == pytest.approx(0.8 / 10)
    assert _gpu_share(10.0, least, 4, 1) == pytest.approx(0.25)
    assert _gpu_share(100.0, least, 4, 1) == 1.0
    assert _gpu_share(100.0, math.inf, 4, 1) == pytest.approx(0.8 / 5), "without a GPU here"
    own = settings(tmp_path, device="cuda", workers=4).device_memory
    assert own == pytest.approx(0.8 / 3 * (40 << 30)), "two workers and a minimiser on each of two GPUs"
    assert settings(tmp_path, workers=1, memory=3.0).device_memory == 3 << 30


def test_workers_without_work_leave_a_gpu_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign over 34 implementations filled an H200 with idle processes, and then blamed kernels."""
    whole = 140 << 30
    assert _idle(whole, 0.05, 15, 1) == 21
    assert _idle(whole, 0.025, 15, 2) == 2
    assert _idle(24 << 30, 0.8 / 3, 2, 1) == 3
    assert _idle(24 << 30, 0.9, 2, 1) == 0, "--memory asks for more than there is"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda gpu: SimpleNamespace(total_memory=whole))
    assert settings(tmp_path, device="cuda", workers=15).idle == 21
    assert settings(tmp_path, workers=2).idle is None, "on the CPU they share most of theirs"
