"""docs/bring-your-own.md: what it shows is what its commands print today. `...` stands for what differs from run to run."""

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc import Case, Implementation, default_case, load
from mhc.case import with_tensor
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.check.check import check
from mhc.fuzz.check.differential import Pair, Peer, PeerResult
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.replay_table import replay_table
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.report import describe, markdown, read
from mhc.fuzz.report.unjudged import summary, unjudged
from mhc.fuzz.worker.peer import run
from mhc.fuzz.worker.protocol import Checked, Message
from mhc.oracles.verdict import Status
from mhc.registry import built_in
from tests.support.helpers import ROOT, altered

PAGE = (ROOT / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
EXAMPLE = load(f"{ROOT / 'docs' / 'examples' / 'my_kernel.py'}:IMPL")


def block(first: str) -> list[str]:
    """The lines of the page's block that begins with `first`, up to one that is not indented."""
    lines = PAGE.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.strip().startswith(first)]
    end = next(number for number in range(at, len(lines)) if lines[number] and not lines[number].startswith("    "))
    return [line for line in textwrap.dedent("\n".join(lines[at:end])).splitlines() if line]


def shows(line: str, printed: str) -> bool:
    """Whether a line of the page is one that was printed."""
    pattern = ".*".join(re.escape(part) for part in line.split("..."))
    return any(re.fullmatch(pattern, one.strip()) for one in printed.splitlines())


def missing(lines: list[str], printed: str) -> list[str]:
    return [line for line in lines if not shows(line.strip(), printed)]


def smallest(**changes: str) -> Case:
    """The case that a finding on float32 is minimised to, where only `changes` matter."""
    case = default_case(dtype="float32", absent=frozenset({"gamma"}))
    for name in case.tensors:
        case = with_tensor(case, name, kind=changes.get(name, "zero"), seed=0)
    return case


@pytest.fixture(scope="module")
def mine() -> Implementation:
    """The example with its dx multiplied by 1.01."""
    return replace(altered(EXAMPLE, backward=lambda out, _: (out[0] * 1.01, *out[1:])), name="mine")


def test_the_summary_of_a_campaign(tmp_path: Path) -> None:
    store = Store.create(tmp_path / FILE)
    store.set_meta(implementations=[{"name": "chunked", "spec": ""}], device="cpu")
    for number in range(200):
        ratios = {"h_in": 0.996, "dx": 0.991, "h_pre": 0.9}
        store.end(
            0, "chunked", Checked(case=default_case().json, refused="float64" if number > 130 else "", ratios=ratios), 0.0
        )
    store.tell_leg(store.begin_leg(0.0), 19.0, "budget spent")
    printed = markdown(read(tmp_path, store))
    store.close()
    assert missing([line for line in block("checking chunked") if not line.startswith("checking")], printed) == []


def test_what_it_finds_where_dx_is_wrong(mine: Implementation) -> None:
    case = smallest(dh_in="constant")
    failure = next(one for one in check(mine, case, "cpu", Level.PLAIN).verdicts if one.status is Status.FAIL)
    found = finding("mine.py:IMPL", mine, case, failure)
    printed = describe(found, Path(f"fuzz_reports/now-seed1/{found.fingerprint.id}.json"), minimal=True)
    lines = block("MINIMAL mine: dx")
    assert len(lines) == 5
    assert missing(lines, printed) == []


def test_the_table_of_its_replay(mine: Implementation) -> None:
    case = smallest(dh_in="constant")
    printed = replay_table(case, "mine", check(mine, case, "cpu", Level.FULL, measure=True).verdicts)
    lines = block("mine on pre-")
    assert len(lines) > 12
    assert missing(lines, printed) == []


def test_the_smallest_case_fails_and_nothing_simpler(mine: Implementation) -> None:
    """It is what the minimiser ends at: without the 1 in dh_in, dx is right."""
    assert any(one.status is Status.FAIL for one in check(mine, smallest(dh_in="constant"), "cpu", Level.PLAIN).verdicts)
    assert not any(one.status is Status.FAIL for one in check(mine, smallest(), "cpu", Level.PLAIN).verdicts)


class Beside:
    """An implementation that another is compared with, in this process."""

    def __init__(self, implementation: Implementation) -> None:
        self.peer = Peer.of("off.py:IMPL", implementation)
        self._implementation = implementation

    def run(self, case: Case) -> PeerResult:
        said: list[Message] = []
        run(self._implementation, case.json, "cpu", said.append)
        (answer,) = [one for one in said if isinstance(one, PeerResult)]
        return answer


def test_what_it_finds_against_another(mine: Implementation) -> None:
    off = replace(altered(EXAMPLE, forward=lambda out, _: (out[0], out[1] + 0.001, *out[2:])), name="off")
    right = replace(EXAMPLE, name="mine")
    verdicts = check(right, smallest(), "cpu", Level.PLAIN, peers=[Beside(off)]).verdicts
    failure = next(one for one in verdicts if one.status is Status.FAIL)
    printed = describe(finding("mine.py:IMPL", right, smallest(), failure), Path("here"), minimal=True)
    assert missing(block("MINIMAL mine: h_post"), printed) == []


def test_the_lines_that_count() -> None:
    pair = Pair(name="manual", against="liger-wide-interpreted", cases=11, missing={"refused": 29})
    assert f"    - {pair}\n" in PAGE
    told = summary(unjudged({"not returned: dphi": 812, "not returned: dbias": 812}))
    assert f"`Not judged: mine: {told}.`" in " ".join(PAGE.split())


def test_the_names_of_built_in_ones() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.endswith("| a built-in one |")]
    assert re.findall(r"`([\w-]+)`", row) == [one.name for one in built_in("mhc_pre").values()]


FILES = {
    "syntax.py": "def (",
    "raises.py": "import not_installed_anywhere",
    "other.py": "from mhc import load\nM = load('manual')\nMINE = load('golden')",
    "none.py": "x = 1",
    "notimpl.py": "IMPL = len",
    "badfield.py": "from mhc import Implementation\nIMPL = Implementation(name='mine', devices='cpu')",
    "nothing.py": "from mhc import Implementation\nIMPL = Implementation(name='mine')",
    "arity.py": "from mhc import Implementation\n"
    "def f(x, phi, alpha, bias): ...\n"
    "IMPL = Implementation(name='mine', forward=f)",
    "gpu.py": "from dataclasses import replace\nfrom mhc import load\nM = load('manual')\n"
    "IMPL = replace(M, name='chunked', devices=('cuda',), forward=lambda *a, **k: M.forward(*a, **k))",
    "x/gpu.py": "from dataclasses import replace\nfrom mhc import load\nM = load('manual')\n"
    "IMPL = replace(M, name='chunked', devices=('cuda',), forward=lambda *a, **k: M.forward(*a, **k))",
    "ret.py": "from dataclasses import replace\nfrom mhc import load\nM = load('manual')\n"
    "IMPL = replace(M, name='mine', forward=lambda *a, **k: M.forward(*a, **k)[:5])",
    "shape.py": "from dataclasses import replace\nfrom mhc import load\nM = load('manual')\n"
    "def f(*a, **k):\n"
    "    out = M.forward(*a, **k)\n"
    "    return (*out[:2], out[2].flatten(2), *out[3:])\n"
    "IMPL = replace(M, name='mine', forward=f)",
    "supp.py": "from dataclasses import replace\nfrom mhc import load\n"
    "IMPL = replace(load('manual'), name='mine', supports=lambda case: False)",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def joined(lines: list[str]) -> list[str]:
    """Messages of the page, those on two lines put together."""
    return re.sub(r"\n\s+", " ", "\n".join(lines)).splitlines()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("message", joined(block("--impl nosuch.py: no")))
def test_a_usage_error(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    option, value = message.split(": ", maxsplit=1)[0].split(" ")
    spec = f"{value}:IMPL" if value.endswith(".py") else value
    more = ["--impl", "golden"] if message.startswith("--against golden") else []
    result = CliRunner().invoke(main, [option, spec, *more])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: {message}"


@pytest.mark.usefixtures("files")
def test_findings_about_the_interface() -> None:
    messages = joined(block("forward raised ContractError: ret.py"))
    printed = []
    for name in ("ret", "shape", "supp"):
        verdicts = check(load(f"{name}.py:IMPL"), default_case(), "cpu", Level.PLAIN).verdicts
        printed += [one.message for one in verdicts if one.status is Status.FAIL]
    assert messages[:3] == printed
    assert messages[3:] == [
        "forward raised Refused: n must be 4",  # tests/oracles/test_refusal.py
        "its process ended in the middle of the case: SIGABRT (abort.py, line 8)",  # tests/fuzz/test_process.py
    ]
