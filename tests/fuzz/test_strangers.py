"""What the files of somebody else may do: be shown. Nothing that they name is executed, written to or deleted unasked."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from mhc import default_case
from mhc.files import file_name, refuse_links, replace_text
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli import run as start
from mhc.fuzz.cli import trust
from mhc.fuzz.cli.main import main
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import Finding, Reduction, read_finding
from mhc.fuzz.report.words import replay_command
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import Process
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from tests.fuzz.test_minimise import WRONG, found

EXECUTED = """
from pathlib import Path
Path({told!r}).write_text("executed")
from dataclasses import replace
from mhc import load
IMPL = replace(load("manual"), name="theirs")
"""
THEIRS = replace(found(WRONG), spec="theirs.py:IMPL")


class Stranger:
    """A folder with a kernel that tells when it is executed, and files that name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"
        (folder / "theirs.py").write_text(EXECUTED.format(told=str(self.told)), encoding="utf-8")

    def finding(self, **fields: object) -> Path:
        path = self.folder / "finding.json"
        path.write_text(replace(THEIRS, **fields).to_json(), encoding="utf-8")  # type: ignore[arg-type]
        return path

    def run(self, spec: str, against: str | None = None) -> Path:
        """A run that began, and found something."""
        run = self.folder / "run"
        run.mkdir()
        store = Store.create(run / FILE)
        store.set_meta(
            implementations=[{"name": "theirs", "spec": spec}],
            against=[] if against is None else [against],
            device="cpu",
            seed=1,
            seconds=None,
            cases=1,
        )
        one = replace(THEIRS, spec=spec)
        store.keep(one.fingerprint.id, one.document, "minimal", 1.0)
        store.close()
        return run


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # as `python -m` does it
    for name in [name for name in sys.modules if name == "theirs"]:
        del sys.modules[name]
    return Stranger(tmp_path)


def fuzz(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=answer)


def entry_point(folder: Path) -> None:
    """Metadata in the current folder: a name that no colon gives away."""
    metadata = folder / "theirs-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[mhc.implementations]\npoint = theirs:IMPL\n", encoding="utf-8")


SPECS = ("theirs.py:IMPL", "theirs:IMPL", "point")
ON_FINDINGS = {
    "replay": ("replay",),
    "minimise": ("minimise",),
    "promote": ("promote", "--fixtures", "kept"),
    "export": ("export", "--to", "tilelang", "--out", "exported"),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("verb", ON_FINDINGS)
def test_what_a_finding_names_is_not_executed_unasked(verb: str, spec: str, stranger: Stranger) -> None:
    entry_point(stranger.folder)
    path = stranger.finding(spec=spec)
    done = fuzz(*ON_FINDINGS[verb], path)
    assert done.exit_code == 2, done.output
    assert not stranger.told.exists()
    assert f"names {spec}" in done.stderr
    assert done.stderr.rstrip().endswith(f"if you trust it, give --impl {spec} or --trust")


@pytest.mark.parametrize("verb", ON_FINDINGS)
def test_what_a_finding_was_compared_with_is_not_either(verb: str, stranger: Stranger) -> None:
    path = stranger.finding(spec="manual", against="theirs.py:IMPL")
    done = fuzz(*ON_FINDINGS[verb], path)
    assert done.exit_code == 2, done.output
    assert not stranger.told.exists()
    assert done.stderr.rstrip().endswith(f"give {'--against theirs.py:IMPL or ' if verb == 'replay' else ''}--trust")


def test_what_a_run_names_is_not_executed_by_going_on_with_it(stranger: Stranger) -> None:
    for number, (spec, against) in enumerate((("theirs.py:IMPL", None), ("manual", "theirs.py:IMPL"))):
        run = stranger.run(spec, against).rename(stranger.folder / f"run{number}")
        done = fuzz("--resume", run)
        assert done.exit_code == 2, done.output
        assert not stranger.told.exists()
        assert done.stderr.rstrip().endswith("if you trust it, give --trust")


def test_a_report_executes_nothing(stranger: Stranger) -> None:
    """And its command names what a replay of it would execute."""
    run = stranger.run("theirs.py:IMPL")
    done = fuzz("report", run)
    assert done.exit_code == 1, done.output
    assert not stranger.told.exists()
    command = f"python -m mhc.fuzz replay {run}/{THEIRS.fingerprint.id}.json --impl theirs.py:IMPL"
    for name in ("summary.md", "report.html", "junit.xml"):
        assert command in (run / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("how", ["--impl", "--trust", "yes"])
def test_what_is_agreed_to_is_executed(how: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a worker process, which is not started here."""
    path = stranger.finding()
    monkeypatch.setattr("mhc.fuzz.cli.trust._asks", lambda: how == "yes")
    monkeypatch.setattr("mhc.fuzz.cli.main._check_once", lambda *_: [])
    options = {"--impl": ["--impl", "theirs.py:IMPL"], "--trust": ["--trust"], "yes": []}[how]
    fuzz("replay", path, *options, answer="y\n")
    assert stranger.told.exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_whoever_does_not_agree_executes_nothing(answer: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhc.fuzz.cli.trust._asks", lambda: True)
    done = fuzz("replay", stranger.finding(spec="theirs.py:\x1b]52;c;QQ\x07IMPL"), answer=answer)
    assert done.exit_code == 2
    assert f"names what would be executed, with your rights: theirs.py:IMPL ({stranger.folder / 'theirs.py'})" in done.stdout
    assert "\x1b" not in done.output
    assert not stranger.told.exists()


def test_what_is_built_in_needs_no_trust(tmp_path: Path) -> None:
    trust.require_trust((("--impl", "manual"), ("--against", None)), tmp_path)
    assert not trust.has_outside(["manual", "golden"])
    assert trust.has_outside(["manual", "mine.py:IMPL"])


def test_the_printed_command_is_one_line_of_words_that_a_shell_reads_back() -> None:
    hostile = "a'; touch X; '\x1b['\n\x1b]0;.py:IMPL"
    command = replay_command(Path("a b.json"), "cuda", hostile, "manual")
    assert command.isprintable()
    words = shlex.split(command)
    assert words[:-1] == ["python", "-m", "mhc.fuzz", "replay", "a b.json", "--device", "cuda", "--impl"]
    assert "touch X" in words[-1]


# Paths

NAMES = ("../../../ESCAPED", "a/b", "", "\0", ".", "..", "x" * 300, "é", "a~b", "\ud800", "-rf", "a\nb", "/etc/passwd")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_file_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{file_name(name)}-0.log").write_text("", encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 1
    assert len(file_name(name)) < 100
    assert file_name(name).isascii()


def test_ordinary_names_are_what_they_were() -> None:
    for name in ("manual", "triton-interpreted", "liger_wide.v2+cpu", "A", "_x"):
        assert file_name(name) == name


@given(names=st.sets(st.text(max_size=90), min_size=2, max_size=4))
def test_two_names_are_two_files(names: set[str]) -> None:
    again = {file_name(name) for name in names}
    assert len(again) == len(names)
    assert len({file_name(name) for name in again | names}) == len(again | names), "nor is one the other's"


def test_the_log_of_a_worker_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[Path | None] = []

    def process(*_: object, log: Path | None, **__: object) -> None:
        logs.append(log)

    monkeypatch.setattr("mhc.fuzz.executors.local.Process", process)
    folder = tmp_path / "logs"
    for name in NAMES:
        LocalExecutor({name: ("x", MANUAL)}, "cpu", 1, Limits(), logs=folder, target=serve).start(0, name)
    assert [log.parent if log is not None else None for log in logs] == [folder] * len(NAMES)


def test_a_log_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_text("mine", encoding="utf-8")
    log = tmp_path / "manual-0.log"
    log.symlink_to(aim)
    process = Process("manual", {}, "cpu", Limits(), log=log, target=serve)
    try:
        process.await_ready()  # what it prints goes nowhere
    finally:
        process.kill()
    assert aim.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("what", ["logs", "logs/manual-0.log", FILE, f"{FILE}-wal", "campaign.lock"])
def test_a_run_whose_files_are_links_is_not_gone_on_with(
    what: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stranger.run("manual")
    aim = stranger.folder / "aim"
    if what == FILE:
        (run / FILE).rename(aim)
    elif what == "logs":
        aim.mkdir()
    else:
        aim.write_text("", encoding="utf-8")
        (run / what).parent.mkdir(exist_ok=True)
    (run / what).unlink(missing_ok=True)
    (run / what).symlink_to(aim)
    before = aim.read_bytes() if aim.is_file() else None
    monkeypatch.setattr(start, "Campaign", None)
    done = fuzz("--resume", run)
    assert done.exit_code == 2, done.output
    assert "link" in done.stderr or "symbolic" in done.stderr
    assert (list(aim.iterdir()) == []) if before is None else (aim.read_bytes() == before)


def test_a_report_is_not_written_through_a_link(stranger: Stranger) -> None:
    run = stranger.run("manual")
    aim = stranger.folder / "aim"
    aim.write_text("mine", encoding="utf-8")
    for name in ("summary.md", "report.html", "junit.xml"):
        (run / name).symlink_to(aim)
    assert fuzz("report", run).exit_code == 1
    assert aim.read_text(encoding="utf-8") == "mine"
    assert not (run / "summary.md").is_symlink()


def test_a_file_is_replaced_beside_whatever_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is written first has a name that nobody can foresee, and is new."""
    aim = tmp_path / "aim"
    aim.write_text("mine", encoding="utf-8")
    (tmp_path / f".a.json.{os.getpid()}").symlink_to(aim)
    (tmp_path / ".a.json.00").symlink_to(aim)
    replace_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "new"
    monkeypatch.setattr("secrets.token_hex", lambda _: "00")
    with pytest.raises(FileExistsError):
        replace_text(tmp_path / "a.json", "newer")
    assert aim.read_text(encoding="utf-8") == "mine"


def test_links_are_refused_wherever_they_lead(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    refuse_links(tmp_path, tmp_path / "absent")
    with pytest.raises(OSError, match="is a link to"):
        refuse_links(tmp_path, link)


def test_a_store_names_no_file_to_delete(tmp_path: Path) -> None:
    """Only the finding's own fixture, in the folder of now, goes when its smaller one is written."""
    one = found(WRONG)
    folder, other = tmp_path / "fixtures", tmp_path / "other"
    other.mkdir()
    id_ = one.fingerprint.id
    spared = [tmp_path / "precious", other / f"{id_}.json", folder / "0123abcd.json", folder / f"{id_}-x.json"]
    for path in spared:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine", encoding="utf-8")
        fixtures.write(one, folder, replacing=path)
    own = folder / f"{id_}-01234567.json"
    own.write_text("old", encoding="utf-8")
    fixtures.write(one, folder, replacing=own)
    assert [path.exists() for path in (*spared, own)] == [True] * len(spared) + [False]


def test_a_small_finding_is_not_written_through_a_link(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    aim = stranger.folder / "aim"
    (stranger.folder / "finding-small.json").symlink_to(aim)

    def small(one: Finding, *_: object, **__: object) -> Finding:
        return replace(one, reduction=Reduction(elements_before=1, elements=1, checks=1, seconds=1, reproduced=3, runs=3))

    monkeypatch.setattr("mhc.fuzz.cli.minimise.make_small", small)
    assert fuzz("minimise", stranger.finding(spec="manual")).exit_code == 1
    assert not aim.exists()
    assert read_finding(stranger.folder / "finding-small.json").spec == "manual"


def test_a_case_is_no_trust_matter(stranger: Stranger) -> None:
    path = stranger.folder / "case.json"
    path.write_text(default_case(n=2).to_json(), encoding="utf-8")
    done = fuzz("replay", path, "--impl", "absent.py:IMPL")
    assert "absent.py: no such file" in done.stderr
