"""Export of a function with a declared symptom."""

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc.fuzz.cli.main import main
from mhc.upstream import declared
from mhc.upstream.declared import Symptom, text
from mhc.upstream.verify import ExportError, run
from tests.support.exports import repro

PROGRAM = '''
import json
import math

VALUES = (0.5, 0.25)
COUNT: int = 2


def total(values):
    return math.fsum(values)


def wrong():
    """A sum of two."""
    return total(VALUES) * COUNT


def right():
    """A sum of two, the other way round."""
    return total(VALUES[::-1])


def worse():
    return total(VALUES) * COUNT * COUNT


def refuses():
    raise RuntimeError("no room") from json.JSONDecodeError("no object\\n  line 7: too small (12 < 16)", "", 0)


def accepts():
    return None


def imports_ours():
    import mhc
    return mhc.__name__
'''


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "limits.py"
    path.write_text(PROGRAM)
    return str(path)


def export(program: str, name: str, *arguments: str, out: Path | None = None) -> Result:
    folder = out or Path(program).with_name("out")
    given = ["--program", f"{program}:{name}", "--title", "a sum", "--to", "torch", "--out", str(folder), *arguments]
    return CliRunner().invoke(main, ["export", *given])


def judged(program: str, name: str, symptom: Symptom, folder: Path) -> str:
    outcome = run(repro(folder, declared.text(f"{program}:{name}", symptom, "a sum")))
    return f"{outcome.status} {outcome.said}"


VALUE = Symptom(expected="0.75", found="1.5")


@pytest.mark.parametrize(
    ("name", "symptom", "said"),
    [
        ("wrong", VALUE, "1 REPRODUCED"),
        ("right", VALUE, "0 NOT REPRODUCED"),
        ("worse", VALUE, "2 OTHER: 3.0"),
        ("worse", Symptom(expected="0.75"), "1 REPRODUCED"),
        ("refuses", VALUE, "2 OTHER: RuntimeError: no room"),
    ],
)
def test_values(name: str, symptom: Symptom, said: str, program: str, tmp_path: Path) -> None:
    assert judged(program, name, symptom, tmp_path).startswith(said)


@pytest.mark.parametrize(
    ("name", "raises", "said"),
    [
        ("refuses", r"JSONDecodeError: too small \(\d+", "1 REPRODUCED"),
        ("refuses", "JSONDecodeError: too large", "2 OTHER: RuntimeError: no room"),
        ("refuses", "RuntimeError: too small", "2 OTHER: RuntimeError: no room"),
        ("accepts", "RuntimeError: no room", "0 NOT REPRODUCED"),
    ],
)
def test_exceptions_are_judged_by_their_root_cause(name: str, raises: str, said: str, program: str, tmp_path: Path) -> None:
    assert judged(program, name, Symptom(raises=raises), tmp_path).startswith(said)


def test_a_line_of_the_message_is_enough_and_is_shown(program: str, tmp_path: Path) -> None:
    outcome = run(
        repro(tmp_path, declared.text(f"{program}:refuses", Symptom(raises="JSONDecodeError: too small"), "a sum"))
    )
    assert outcome.reproduced
    assert outcome.values.startswith("a sum: expected no exception, actual JSONDecodeError: line 7: too small (12 < 16)")


def test_a_folder_is_written(program: str) -> None:
    beside = [f"--beside={program}:{name}" for name in ("right", "worse")]
    done = export(program, "wrong", "--expected", "0.75", "--found", "1.5", *beside)
    assert done.exit_code == 0, done.output
    assert "reproduced 3 times by itself" in done.output
    folder = Path(program).with_name("out")
    document = json.loads((folder / "export.json").read_text())
    assert (document["needs"], document["symptom"], document["to"]) == ("cpu", "value", "torch")
    assert document["program"] == {"file": "limits.py", "function": "wrong", "expected": "0.75", "found": "1.5"}
    source = (folder / "repro.py").read_text()
    assert "def total(values):" in source
    assert "COUNT = 2" in source
    assert "import json" not in source
    assert "def worse" not in source
    issue = (folder / "issue.md").read_text()
    assert issue.startswith("# wrong value: a sum\n")
    for part in (
        "- What: a sum: expected 0.75, actual 1.5\n",
        "- Control: A sum of two, the other way round.: passes.",
        "| A sum of two. | **fails** | 1.5 |",
        "| A sum of two, the other way round. | passes | 0.75 |",
        "| worse | **fails** | 3.0 |",
        "gh issue create --repo pytorch/pytorch --title 'wrong value: a sum' --body-file issue.md",
    ):
        assert part in issue


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("right", ["--expected", "0.75"], "run 1 of 3 of its program by itself: exit 0, NOT REPRODUCED"),
        ("worse", ["--expected", "0.75", "--found", "1.5"], "run 1 of 3 of its program by itself: exit 2, OTHER: 3.0"),
        ("nothing", ["--expected", "0.75"], "has no definition of nothing"),
        ("imports_ours", ["--expected", "'mhc'"], "imports mhc inside of itself"),
    ],
)
def test_what_is_refused(name: str, arguments: list[str], said: str, program: str) -> None:
    done = export(program, name, *arguments)
    assert done.exit_code == 1, done.output
    assert said in done.output
    assert not Path(program).with_name("out").exists()


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ([], "no function beside it passes"),
        (["worse"], "no function beside it passes"),
        (["right", "refuses"], "limits.py:refuses: exit 2, OTHER: RuntimeError"),
    ],
)
def test_a_control_case_must_pass(beside: list[str], said: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "confirmed", lambda path: [run(path)])
    done = export(program, "wrong", "--expected", "0.75", *(f"--beside={program}:{name}" for name in beside))
    assert done.exit_code == 1
    assert said in done.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "either what it raises or what it should return"),
        (["--raises", "E: x", "--expected", "1"], "either what it raises or what it should return"),
        (["--raises", "no colon"], "must be 'Type: pattern'"),
        (["--expected", "1", "--found", "1"], "must differ from what it should"),
        (["--expected", "1", "--needs", "c"], "--needs must be one of cpu, cuda for torch, was 'c'"),
        (["--expected", "1", "--impl", "golden"], "--program goes with --title and --out, and without --impl"),
    ],
)
def test_usage(given: list[str], said: str, program: str) -> None:
    done = export(program, "wrong", *given)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.replace("│", " ").split())


def test_options_of_a_program_need_one(program: str, tmp_path: Path) -> None:
    finding = tmp_path / "finding.json"
    finding.write_text("{}")
    for arguments, said in (
        ([], "give either FINDING.json or --program"),
        ([str(finding), "--title", "x"], "go with --program"),
    ):
        done = CliRunner().invoke(main, ["export", "--to", "torch", *arguments])
        assert done.exit_code == 2
        assert said in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("program_", ["limits.py", "nowhere.py:wrong", "{}:not a name"])
def test_a_program_is_a_function_in_a_file(program_: str, program: str) -> None:
    with pytest.raises(ExportError, match=r"a program must be FILE\.py:FUNCTION, was "):
        text(program_.format(program), VALUE, "a sum")


def test_what_another_file_of_the_same_name_has_is_not_taken(tmp_path: Path) -> None:
    made = []
    for value in ("1", "2"):
        folder = tmp_path / value
        folder.mkdir()
        (folder / "limits.py").write_text(textwrap.dedent(f"VALUE = {value}\n\ndef wrong():\n    return VALUE\n"))
        made.append(text(f"{folder / 'limits.py'}:wrong", VALUE, "a sum"))
    assert [f"VALUE = {value}" in one for value, one in zip("12", made, strict=True)] == [True, True]
