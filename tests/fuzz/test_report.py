"""A campaign's reports: they say what its store has, whatever text is in it, and however it ended."""

import json
import math
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from torch import Tensor

from mhc import Implementation, Layout, Recipe, default_case, operator
from mhc.case import with_tensor
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from mhc.fuzz.cli.replay_table import replay_table
from mhc.fuzz.findings.finding import UNKNOWN_CAUSE, Reduction, finding, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.report import Run, describe, markdown, read, write_reports
from mhc.fuzz.report.junit import junit
from mhc.fuzz.report.page import page
from mhc.fuzz.report.words import details, has_special
from mhc.fuzz.worker.protocol import Checked
from mhc.oracles.verdict import failed
from mhc.programs.grammar import Buffer, Const, Program
from mhc.programs.grammar import Store as Put
from mhc.programs.targets import TARGETS
from tests.support.report_stores import HOSTILE, NAMES, document, hostile, night

WRITTEN = ("junit.xml", "report.html", "summary.md")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("night")
    return read(folder, night(folder, cases=300))


def parsed(run: Run) -> ET.Element:
    """The page, which is XML too."""
    return ET.fromstring(page(run))


def test_outputs_of_integers_were_judged_and_have_no_number(tmp_path: Path) -> None:
    with closing(Store.create(tmp_path / FILE)) as store:
        store.set_meta(device="cpu", implementations=[{"name": one, "spec": one} for one in ("exact", "nothing", "mixed")])
        for name, outcomes, ratios in (
            ("exact", {"y1": "judged", "y0": "judged", "y2": "not returned"}, {}),
            ("nothing", {"y0": "nothing to judge"}, {}),
            ("mixed", {"y0": "judged", "y1": "judged"}, {"y1": 0.5}),
        ):
            store.end(0, name, Checked(case=default_case().json, outcomes=outcomes, ratios=ratios), 1.0)
        store.tell_leg(store.begin_leg(0.0), 2.0, "budget spent")
        lines = markdown(read(tmp_path, store)).splitlines()
    last = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in lines if line.startswith("| ")}
    assert last["exact"] == "y0, y1: judged by equality"
    assert (last["nothing"], last["mixed"]) == ("nothing judged", "y1 0.5")


def test_what_a_minimal_case_has_is_told_everywhere_in_the_words_of_the_page_on_cases(tmp_path: Path) -> None:
    case = default_case(operator=str(WINDOW.operator), T=4, K=2, dtype="float32", scalars={"window": 1})
    marks = (*(((at, 0), float(at)) for at in range(1, 4)), ((0, 1), float("nan")), ((0, 0), float("-inf")))
    recipes = {
        "x": Recipe(kind="zero", literals=marks),
        "lens": Recipe(kind="ends", seed=3),
        "dy": Recipe(kind="sparse", scale=2.0, period=4, layout=Layout(order=(1, 0), expand=(0,), step=2, pad=1, offset=3)),
    }
    case = replace(case, tensors=recipes, schedules={"one": {"BLOCK": 8}})
    told = (
        "x: [1, 0] = 1, [2, 0] = 2, [3, 0] = 3, 2 other literals; lens: ends [0, 2, 0, 0]; "
        "dy: sparse, scale 2, period 4, order (1, 0), expand (0), step 2, pad 1, offset 3; one: BLOCK = 8; window = 1"
    )
    assert details(case) == told
    stepped = Recipe(kind="zero", layout=Layout(step=2))
    zeros = dict.fromkeys(("x", "lens"), Recipe(kind="zero"))
    assert details(replace(case, tensors={**zeros, "dy": stepped}, schedules={})) == "dy: step 2; window = 1"
    many = replace(
        case,
        sizes={"T": 40, "K": 2},
        tensors={**zeros, "dy": zeros["x"], "lens": Recipe(kind="blocks", seed=9)},
        schedules={},
    )
    assert details(many) == "lens: blocks [6 of 1, 6 of 2, 28 of 0]; window = 1"
    assert details(replace(many, tensors={**many.tensors, "lens": Recipe(kind="uniform")})) == "lens: uniform; window = 1"
    large = Recipe(kind="zero", literals=(((0, 0), 1e39), ((0, 1), 1.0)))
    beyond = replace(case, tensors={**zeros, "dy": Recipe(kind="zero"), "x": large}, schedules={})
    assert details(beyond) == "x: [0, 0] = 1e+39, rounded to infinity, [0, 1] = 1; window = 1"

    found = finding("one", WINDOW, case, failed("bound", "y", "value", "y[0, 0] = 1"))
    shown = describe(found, tmp_path / "one.json", minimal=True).splitlines()
    assert shown[2:4] == [f"    {case.id}", f"    {told}"]
    assert told not in describe(found, tmp_path / "one.json"), "a drawn case has too much"
    assert " ".join(replay_table(case, "one", []).split()).endswith(told)
    with closing(Store.create(tmp_path / FILE)) as store:
        store.keep(found.fingerprint.id, found.document, "minimal", 1.0)
        run = read(tmp_path, store)
    assert f"      {told}\n" in markdown(run)
    assert told in {one.text for one in parsed(run).iter("dd")}


@operator(x="[T, K] float32", lens="[T] int32 in 0..K+1", window=(3, 1))
def windowed(x: Tensor, lens: Tensor, *, window: int) -> Tensor:
    return x * (lens[:, None] > window)


WINDOW = Implementation(name="one", operator=windowed, function=windowed.function, dtypes=("float32",))


def table(root: ET.Element, caption: str) -> dict[str, list[str]]:
    """The rows of a table, by their first cell."""
    (found,) = (one for one in root.iter("table") if one.findtext("caption") == caption)
    return {"".join(row[0].itertext()): ["".join(cell.itertext()) for cell in row[1:]] for row in found.iter("tr")}


def report(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def killed(folder: Path) -> Store:
    """A store as a kill leaves it: a leg that never ended, a finding that no file has, a case in hand."""
    store = Store.create(folder / FILE)
    store.set_meta(device="cpu", seed=1, implementations=[{"name": "manual", "spec": "manual"}])
    store.tell_leg(store.begin_leg(0.0), 12.0)
    id_, found = document("manual", "dx", "value", "dx[0] = 1, float64 0, bound 0")
    store.keep(id_, found, "raw", 5.0)
    store.begin(0, "manual", default_case().json, 11.0)
    return store


@pytest.mark.parametrize(
    ("workers", "seconds", "words"),
    [
        (1, 2.3, ""),
        (1, 2.5, "The worker was starting for 2 s of 12 s; no case ran meanwhile."),
        (4, 9.0, ""),
        (4, 24.0, "Each worker was starting for 6 s of 12 s; no case ran meanwhile."),
    ],
)
def test_how_long_workers_were_starting_is_told_where_it_is_much(
    tmp_path: Path, workers: int, seconds: float, words: str
) -> None:
    with closing(killed(tmp_path)) as store:
        store.set_meta(workers=workers)
        store.count("manual", "starting", seconds)
        shown = markdown(read(tmp_path, store))
    assert words in shown
    assert ("starting" in shown) == bool(words)


def test_the_text_of_a_program_is_shown(tmp_path: Path) -> None:
    program = Program(buffers=(Buffer("y", (1,), "int32", written=True),), body=(Put("y", (Const(0),), Const(7)),))
    wrong = failed("evaluator", "+", "wrong value", "y[0] = 1, evaluator 7")
    store = killed(tmp_path)
    found = finding("c", TARGETS["tilelang-to-c"], program, wrong)
    store.keep(found.fingerprint.id, found.document, "raw", 6.0)
    run = read(tmp_path, store)
    text = '@T.prim_func\ndef f(y: T.Tensor((1,), "int32")):\n    with T.Kernel(1) as bx:\n        y[0] = 7\n'
    shown = [one.text for one in parsed(run).iter("pre") if one.get("title") == "program"]
    assert shown == [text], "and none for the case of an operator"
    assert "".join(f"      {line}\n" for line in text.splitlines()) in markdown(run)


def test_the_pairs_are_counted_in_all_three_alike(ran: Run) -> None:
    told = {(one.name, one.against): one for one in ran.pairs}
    assert set(told) == {(name, other) for name in NAMES for other in ("liger", "never")}
    shown = [
        ["".join(cell.itertext()) for cell in row]
        for found in parsed(ran).iter("table")
        if found.findtext("caption") == "Compared with one another"
        for row in found.iterfind("tbody/tr")
    ]
    tests = {(one.get("classname"), one.get("name")): one.find("skipped") for one in ci(junit(ran)).iter("testcase")}
    for (name, other), one in told.items():
        whole = one.cases + sum(one.missing.values())
        assert whole == (ran.count(name, "checked") if other == "liger" else 0)
        why = ", ".join(f"{reason} {n}" for reason, n in one.missing.items())
        assert [name, other, str(one.cases), str(sum(one.missing.values())), why] in shown
        assert f"\n- {name} compared with {other} on {one.cases} cases" in markdown(ran)
        assert (tests[f"mhc.fuzz.{name}", f"was compared with {other}"] is None) == (one.cases > 0)
    assert len(shown) == len(told)
    assert "Compared with one another" not in page(replace(ran, pairs=()))


def test_the_page_has_the_numbers_of_the_store(ran: Run) -> None:
    root = parsed(ran)
    cases = table(root, "Cases")
    for name in NAMES:
        words = ("checked", "refused", "failing")
        assert cases[name][:3] == [str(ran.count(name, word)) for word in words], name
        assert cases[name][-1] == str(ran.restarted(name))
    worst = table(root, "Largest |error| / bound")
    assert worst["dx"] == [f"{ran.worst['dx'][name][0]:.3g}" for name in NAMES]
    heat = table(root, "dtype")
    assert heat["float64"] == [str(ran.regions[name].get("dtype: float64", 0)) for name in NAMES]
    assert heat["float64"][NAMES.index("tir")] == "0", "a hole is told"
    cards = {card.get("id"): "".join(card.itertext()) for card in root.iter("article")}
    assert set(cards) == {f"finding-{found.id}" for found in ran.findings}
    for found in ran.findings:
        text = cards[f"finding-{found.id}"]
        for told in (found.message, found.replay, found.stability, found.shape, found.fixture or ""):
            assert told in text
    assert sum(".json" in text.partition("replay")[0] for text in cards.values()) == 2, "fixtures"


def test_the_pictures_have_a_mark_for_all_there_is(ran: Run) -> None:
    root = parsed(ran)
    (timeline,) = (one for one in root.iter("svg") if one.get("class") == "timeline")
    drawn = [int(title.split(": ")[1].split(" ")[0]) for box in timeline.iter("rect") if (title := box.findtext("title"))]
    assert sum(drawn) == ran.cases
    assert sum(one.get("class") == "found" for one in timeline.iter("path")) == len(ran.findings)
    assert sum(one.get("class") == "leg" for one in timeline.iter("line")) == len(ran.legs) - 1
    pictures = [one for one in root.iter("svg") if one.get("class") == "distribution"]
    assert len(pictures) == len(ran.ratios)
    for picture, by_name in zip(pictures, ran.ratios.values(), strict=True):
        over = sum(bin_ > 0 for bins in by_name.values() for bin_ in bins)
        assert sum(box.get("class") == "bad" for box in picture.iter("rect")) == over


def test_the_page_loads_nothing_and_runs_nothing(ran: Run, tmp_path: Path) -> None:
    for root in (parsed(ran), parsed(read(tmp_path, hostile(tmp_path)))):
        assert not {one.tag for one in root.iter()} & {"script", "link", "img", "iframe", "object", "image", "use"}
        for one in root.iter():
            for name, value in one.attrib.items():
                assert not name.startswith("on"), (one.tag, name)
                assert name not in {"src", "data", "action"}
                assert name != "href" or value.startswith("#")
        (style,) = (one.text or "" for one in root.iter("style"))
        assert "url(" not in style
        assert "@import" not in style


def test_hostile_text_is_text(tmp_path: Path) -> None:
    run = read(tmp_path, hostile(tmp_path))
    shown = "".join(parsed(run).itertext())
    assert "<script>alert('1')</script> \"quoted\" & red \\x00" in shown, "as it is, without what a terminal obeys"
    told = markdown(run)
    for text in (shown, told, junit(run)):
        assert text.replace("\n", "").isprintable()
        assert len(text) < 10 * len(HOSTILE), "long text is cut"
    rows = [line for line in told.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def test_the_summary_has_a_row_for_each_and_each_finding(ran: Run) -> None:
    text = markdown(ran)
    assert text.startswith(f"# {ran.cases} cases in 7200 s on cpu, 5 findings\n")
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in text.splitlines() if "|" in line}
    for name in NAMES:
        found = sum(one.implementation == name for one in ran.findings)
        assert rows[name][1:4] == [str(ran.count(name, "checked")), str(ran.count(name, "refused")), str(found)]
        largest = max((by[name][0], subject) for subject, by in ran.worst.items() if name in by)
        assert rows[name][-1].startswith(f"{largest[1]} {largest[0]:.3g}")
    for one in ran.findings:
        assert f"**{one.id}** {one.title}" in text
        assert f"      {one.message}\n" in text
        assert f"      {one.replay}\n" in text
    assert text.count("      fixture tests/regressions/") == 2
    assert "flaky, 2 of 3" in text
    assert "Legs: 36 min, killed; 12 min, interrupted; 1 h 12 min, budget spent; 1 case begun and not counted." in text


def ci(text: str) -> ET.Element:
    """A suite that readers of JUnit's XML take: what is where, and sums that are right."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuite"
    assert [one.tag for one in root] == ["properties", *["testcase"] * (len(root) - 1)], "in this order"
    assert all(set(one.keys()) == {"name", "value"} for one in root[0])
    tests = list(root.iter("testcase"))
    for one in tests:
        assert set(one.keys()) == {"classname", "name", "time"}
        assert float(one.attrib["time"]) >= 0
        inside = [child.tag for child in one]
        assert inside in (["skipped"], ["skipped", "system-out"], ["system-out"], ["failure"], ["error"])
        assert all(child.get("message") for child in one if child.tag != "system-out")
        values = [value for element in one.iter() for value in element.attrib.values()]
        assert all("\n" not in value and len(value) < 600 for value in values)
    named = [(one.get("classname"), one.get("name")) for one in tests]
    assert len(set(named)) == len(named)
    assert int(root.attrib["tests"]) == len(tests)
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(root.attrib[kind]) == len(list(root.iter(tag)))
    assert root.get("name")
    assert float(root.attrib["time"]) >= 0
    return root


def test_junit_has_a_test_for_each_implementation_and_a_failure_for_each_finding(ran: Run) -> None:
    root = ci(junit(ran))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == (str(3 * len(NAMES) + 5), "5", "0")
    judged = {one.get("classname") for one in root.iter("testcase") if one.get("name") == "was judged"}
    assert judged == {f"mhc.fuzz.{name}" for name in NAMES}
    failed = {one.attrib["name"].split()[0]: one.find("failure") for one in root.iter("testcase")}
    for found in ran.findings:
        failure = failed[found.id]
        assert failure is not None
        assert failure.get("message") == found.message
        assert failure.text is not None
        assert found.replay in failure.text


def test_junit_of_any_text_and_of_nothing(tmp_path: Path) -> None:
    root = ci(junit(read(tmp_path, hostile(tmp_path))))
    assert root.get("failures") == "1"
    (tmp_path / "empty").mkdir()
    assert ci(junit(read(tmp_path / "empty", Store.create(tmp_path / "empty" / FILE)))).get("tests") == "0"


def test_an_implementation_of_which_nothing_was_judged_does_not_pass(tmp_path: Path) -> None:
    store = killed(tmp_path)
    (test,) = (one for one in ci(junit(read(tmp_path, store))).iter("testcase") if one.get("name") == "was judged")
    skipped = test.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "nothing was judged: no case ran"


def test_what_the_ledger_knows_is_known_and_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = killed(tmp_path)
    store.count("manual", "checked", 3)
    ((id_, row),) = store.findings().items()
    entry = KnownIssue(
        fingerprint=Fingerprint(**row["document"]["fingerprint"]),
        fixture=f"{id_}.json",
        issue="#12",
        reason="waits for a release",
    )
    assert read(tmp_path, store).status == 1
    monkeypatch.setattr("mhc.fuzz.findings.known_issues.KNOWN_ISSUES", (entry,))
    run = read(tmp_path, store)
    assert run.status == 0
    root = ci(junit(run))
    assert (root.get("failures"), root.get("skipped")) == ("0", "1")
    assert "waits for a release (#12)" in junit(run)
    assert "waits for a release (#12)" in markdown(run)
    assert "waits for a release (#12)" in page(run)
    assert run.outcome == ("known", "Nothing new: 1 known finding in 3 cases in 12 s")


@pytest.mark.parametrize("seen", [4, 5, 1234])
def test_what_is_not_reproduced_and_was_met_often_is_no_chance(seen: int, tmp_path: Path) -> None:
    case = default_case(operator=str(WINDOW.operator), T=4, K=2, dtype="float32", scalars={"window": 1})
    message = f"y[0, 0] = 1\nnot reproduced in a new process: {UNKNOWN_CAUSE}"
    reduction = Reduction(elements_before=1, elements=1, checks=1, seconds=1.0, reproduced=0, runs=3)
    found = replace(finding("one", WINDOW, case, failed("bound", "y", "value", message)), reduction=reduction)
    with closing(Store.create(tmp_path / FILE)) as store:
        store.keep(found.fingerprint.id, found.document, "minimal", 1.0)
        for _ in range(seen - 1):
            store.seen(found.fingerprint.id)
        run = read(tmp_path, store)
    kept = (
        f"not reproduced in a new process: met {seen:,} times, so not by chance: wrong only after other calls, which leave "
        "something behind: a stale cache, or one whose key leaves out an argument"
    )
    for text in (markdown(run), junit(run), page(run)):
        assert (kept in text) == (seen >= 5)
        assert ("may be the cause, or chance" in text) == (seen < 5)
    (stored,) = run.findings
    hang = replace(found, fingerprint=replace(found.fingerprint, oracle="liveness", symptom="hang"))
    assert replace(stored, finding=hang).message == message, "a slow machine may be the cause each time"


def test_it_says_how_to_leave_out_nan_and_infinities_where_findings_have_them(tmp_path: Path) -> None:
    def advice(*changes: dict[str, Any]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with closing(Store.create(folder / FILE)) as store:
            for at, change in enumerate(changes):
                case = default_case(operator=str(WINDOW.operator), T=4, K=2, dtype="float32")
                verdict = failed("bound", f"y{at}", "value", "wrong")
                found = finding("one", WINDOW, with_tensor(case, "x", **change), verdict)
                store.keep(found.fingerprint.id, found.document, "raw", 1.0)
            run = read(folder, store)
        assert not run.advice or all(run.advice in text for text in (markdown(run), page(run)))
        return run.advice

    out = "NaN or infinities among the inputs: @operator(..., finite=True) leaves them out, if your kernels never get them"
    assert advice({}, {"scale": 1024.0}) == ""
    assert advice({"literals": (((0, 0), math.nan),)}) == f"1 of 1 finding has {out}"
    assert advice({"literals": (((0, 0), 1e39),)}, {"scale": 1e39}, {}) == f"2 of 3 findings have {out}"
    assert advice({"kind": "masked"}, {}) == f"1 of 2 findings has {out}"
    upstream = with_tensor(
        default_case(operator=str(WINDOW.operator), T=4, K=2, dtype="float32"), "dy", literals=(((0, 0), math.nan),)
    )
    assert has_special(upstream, "dx")
    assert not has_special(upstream, "y"), "an output does not depend on upstream gradients"
    mine = default_case(dtype="float16")
    assert not has_special(with_tensor(mine, "x", literals=(((0, 0, 0, 0), math.nan),))), "its contract says what they do"


def test_a_finding_that_did_not_fail_again_is_not_called_minimal(tmp_path: Path) -> None:
    case = default_case(operator=str(WINDOW.operator), T=4, K=2, dtype="float32", scalars={"window": 1})
    found = finding("one", WINDOW, case, failed("bound", "y", "value", "y[0, 0] = 1"))
    assert describe(found, tmp_path / "one.json").startswith("FOUND ")
    for again, heading, told in (
        ((0, 3), "NOT REPRODUCED", "as drawn, not reproduced in 3 new processes, seen 0 times"),
        ((0, 1), "NOT REPRODUCED", "as drawn, not reproduced in 1 new process, seen 0 times"),
        ((1, 10), "MINIMAL", "minimal, flaky, 1 of 10, seen 0 times"),
        ((3, 3), "MINIMAL", "minimal, stable, 3 of 3, seen 0 times"),
    ):
        reduction = Reduction(elements_before=1, elements=1, checks=1, seconds=1.0, reproduced=again[0], runs=again[1])
        small = replace(found, reduction=reduction)
        assert describe(small, tmp_path / "one.json", minimal=True).startswith(f"{heading} {found.fingerprint}")
        path = tmp_path / "-".join(map(str, again))
        path.mkdir()
        with closing(Store.create(path / FILE)) as store:
            store.keep(found.fingerprint.id, small.document, "minimal", 1.0)
            run = read(path, store)
        assert told.partition(", seen")[0] in markdown(run)
        assert told.split(", ")[0] in {one.text for one in parsed(run).iter("span")}


def test_the_report_of_a_killed_run(tmp_path: Path) -> None:
    killed(tmp_path).close()
    result = report(tmp_path)
    assert result.exit_code == 1, result.output
    (id_,) = (path.stem for path in tmp_path.glob("*.json"))
    found = read_finding(tmp_path / f"{id_}.json")
    assert found.fingerprint.id == id_, "its file, which the campaign did not come to write, replays"
    assert "Legs: 12 s, killed; 1 case begun and not counted." in result.output
    assert "as drawn, not run again in a new process yet" in result.output
    root = ET.fromstring((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "The last leg was killed, or still runs; 1 case in hand." in "".join(root.itertext())


def test_report_writes_all_three_and_leaves_the_store_as_it_is(tmp_path: Path) -> None:
    store = night(tmp_path, cases=20)
    before = read(tmp_path, store)
    store.close()
    assert report(tmp_path).exit_code == 1
    texts = {name: (tmp_path / name).read_text(encoding="utf-8") for name in WRITTEN}
    files = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / "summary.md").write_text("old", encoding="utf-8")
    again = report(tmp_path)
    assert again.stdout == texts["summary.md"]
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in WRITTEN} == texts
    assert sorted(path.name for path in tmp_path.iterdir()) == files, "and nothing beside it"
    with closing(Store(tmp_path / FILE)) as store:
        assert read(tmp_path, store) == before


@pytest.mark.parametrize(("ended", "status"), [("budget spent", 0), ("SIGINT", 0), ("fault", 3)])
def test_report_ends_as_its_campaign_did(tmp_path: Path, ended: str, status: int) -> None:
    store = Store.create(tmp_path / FILE)
    store.set_meta(fault="out of paper")
    store.end(0, "manual", Checked(case=default_case().json, outcomes={"dx": "judged"}), 0.5)
    store.tell_leg(store.begin_leg(0.0), 1.0, ended)
    store.close()
    result = report(tmp_path)
    assert result.exit_code == status, result.output
    root = ci((tmp_path / "junit.xml").read_text(encoding="utf-8"))
    assert root.get("errors") == ("1" if status else "0")
    assert ("out of paper" in (tmp_path / "report.html").read_text(encoding="utf-8")) == bool(status)


def test_what_is_no_run_exits_2(tmp_path: Path) -> None:
    assert "it has no campaign.sqlite" in " ".join(report(tmp_path).output.split())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / FILE).write_text(json.dumps({"no": "database"}) * 100, encoding="utf-8")
    result = report(tmp_path)
    assert result.exit_code == 2
    assert "is not a campaign's file" in " ".join(result.output.split())
    assert report(tmp_path / "absent").exit_code == 2


def test_a_running_campaign_can_be_read(tmp_path: Path) -> None:
    """Its own connection stays open, with rows that are not in the file yet."""
    store = killed(tmp_path)
    assert report(tmp_path).exit_code == 1
    store.seen(next(iter(store.findings())))
    assert "seen 2 times" in report(tmp_path).output


def test_reports_that_a_campaign_writes_are_those_of_the_verb(tmp_path: Path) -> None:
    store = night(tmp_path, cases=20)
    run = write_reports(tmp_path, store)
    written = {name: (tmp_path / name).read_text(encoding="utf-8") for name in WRITTEN}
    assert written == {"summary.md": markdown(run), "junit.xml": junit(run), "report.html": page(run)}
    files = {found.id: read_finding(tmp_path / f"{found.id}.json").message for found in run.findings}
    assert files == {found.id: found.message for found in run.findings}
