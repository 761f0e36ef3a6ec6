"""The page in a real browser: it opens offline, shows what the store has, complains of nothing and asks for nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.report import Run, live, write_reports
from tests.fuzz.test_serve import served
from tests.support.browser import find_browser, open_browser, open_page
from tests.support.report_stores import document, hostile, located, night

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")

WIDER_THAN_THE_WINDOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OVER_ITS_EDGE = """[...document.querySelectorAll('.card, .verdict')].filter(card => {
    const box = card.getBoundingClientRect();
    return [...card.querySelectorAll('*')].some(
        one => !one.closest('.wide, svg') && one.getBoundingClientRect().right > box.right + 1);
}).length"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    with open_browser(BROWSER) as opened:
        yield opened


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    found = {}
    for name, make in (("night", night), ("hostile", hostile), ("empty", lambda folder: Store.create(folder / FILE))):
        folder = tmp_path_factory.mktemp(name)
        found[name] = write_reports(folder, make(folder))
    return found


@pytest.mark.parametrize("name", ["night", "hostile", "empty"])
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_it_opens_and_fits_and_asks_for_nothing(
    browser: Browser, runs: dict[str, Run], name: str, width: int, dark: bool
) -> None:
    path = runs[name].folder / "report.html"
    with open_page(browser, path, width=width, dark=dark) as opened:
        assert opened.complaints == []
        assert opened.requests == [path.as_uri()]
        assert opened.evaluate("document.querySelector('h1').innerText") == runs[name].outcome[1]
        assert opened.evaluate(WIDER_THAN_THE_WINDOW) == 0
        assert opened.evaluate(OVER_ITS_EDGE) == 0
        assert opened.evaluate("[...document.querySelectorAll('td.text')].every(one => one.clientWidth > 99)"), "words break"
        light, ink = opened.evaluate("['backgroundColor', 'color'].map(one => getComputedStyle(document.body)[one])")
        assert (brightness(light) < brightness(ink)) == dark
        assert opened.page.screenshot().startswith(b"\x89PNG")


def test_it_shows_what_the_store_has(browser: Browser, runs: dict[str, Run]) -> None:
    run = runs["night"]
    with open_page(browser, run.folder / "report.html", width=1280) as opened:
        shown = opened.evaluate("document.querySelector('#implementations table').innerText").splitlines()
        rows = {one.split()[0]: one.split()[1:3] for one in shown if one.strip()}
        for name in run.names:
            assert rows[name] == [f"{run.count(name, word):,}" for word in ("checked", "refused")]
        told = opened.evaluate("[...document.querySelectorAll('#implementations table')].map(one => one.innerText)")
        (pairs,) = (one.splitlines() for one in told if one.startswith("Compared with one another"))
        assert [one.split()[:3] for one in pairs[2:]] == [[one.name, one.against, f"{one.cases:,}"] for one in run.pairs]
        cards = opened.evaluate("[...document.querySelectorAll('article')].map(one => one.innerText)")
        assert len(cards) == len(run.findings)
        for found, card in zip(run.findings, cards, strict=True):
            assert found.message in card
            assert found.replay in card
            assert found.stability in card
        bars = opened.evaluate("[...document.querySelectorAll('.timeline rect')].every(one => one.getBBox().height > 0)")
        assert bars
        first = opened.evaluate("document.querySelector('article details pre').checkVisibility()")
        opened.evaluate("document.querySelector('article summary').click()")
        assert (first, opened.evaluate("document.querySelector('article details pre').checkVisibility()")) == (False, True)
        assert opened.evaluate("JSON.parse(document.querySelector('article details pre').innerText).D") == 3


def test_a_finding_shows_where_it_is_wrong_by_sight_by_keyboard_and_as_text(browser: Browser, runs: dict[str, Run]) -> None:
    with open_page(browser, runs["night"].folder / "report.html", width=400, dark=True) as opened:
        card = "document.querySelector('article:has(.where)')"
        fills = opened.evaluate(
            f"[...{card}.querySelectorAll('.where path:not(.tile,.frame,.stroke)')].map(one => getComputedStyle(one).fill)"
        )
        assert len(set(fills)) == len(fills) == 5, "each level has a colour of its own"
        sizes = f"['.where', '.strip'].map(one => {card}.querySelector(one).getBoundingClientRect().width)"
        assert all(250 < one < 376 for one in opened.evaluate(sizes))
        text = opened.evaluate(f"(window.summary = {card}.querySelector('figure summary')).innerText")
        for _ in range(100):
            opened.page.keyboard.press("Tab")
            if opened.evaluate("document.activeElement === window.summary"):
                break
        assert (text, opened.evaluate("getComputedStyle(document.activeElement).outlineStyle")) == ("map as text", "solid")
        opened.page.keyboard.press("Enter")
        rows = opened.evaluate("[...window.summary.parentNode.querySelectorAll('tbody tr')].map(one => one.innerText)")
        assert [one.split("\t")[0] for one in rows] == [".", "-", "4", "N", "?"]


def test_a_live_page_keeps_what_its_reader_has_opened(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FRESH", 0.0)
    store = night(tmp_path, cases=20)
    store.tell_leg(store.begin_leg(time.time()), 1.0)
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    with served(tmp_path) as server, open_page(browser, server.url, width=1400) as opened:
        line = opened.page.locator("#live")
        expect(line).to_have_text("Running; this page updates itself. ")
        opened.evaluate("(window.kept = document.querySelector('#findings article:last-child summary')).focus()")
        opened.page.keyboard.press("Enter")
        opened.evaluate("window.kept.scrollIntoView({block: 'center'})")
        title, place = opened.evaluate("[document.title, window.kept.getBoundingClientRect().top]")
        id_, found = document("golden", "dx", "value", "dx[0] = 1", drawn=located())
        store.keep(id_, found, "raw", 1.0)
        opened.evaluate(look)
        opened.page.wait_for_selector(f"#finding-{id_} .where")
        store.tell_leg(4, 2.0, "budget spent")
        opened.evaluate(look)
        expect(line).to_have_text("Ended: budget spent. ")
        assert opened.evaluate("[document.activeElement === window.kept, window.kept.parentNode.open]") == [True, True]
        assert opened.evaluate("window.kept.getBoundingClientRect().top") == pytest.approx(place, abs=2)
        assert opened.evaluate("document.title") == title.replace("5 ", "6 ", 1).replace("1 s", "2 s")
        texts = "[...document.querySelectorAll('h1, section')].map(one => one.textContent)"
        brought = opened.evaluate(texts)
        opened.page.reload()
        assert brought == opened.evaluate(texts), "as a page that is loaded anew"
        assert opened.complaints == []


def test_a_page_with_faults_is_seen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    body = '<div class="card"><div style="width: 2000px">x</div></div><img src="absent.png">'
    path.write_text(f"<!DOCTYPE html>{body}<script>console.error('no'); missing()</script>", encoding="utf-8")
    with open_page(browser, path, width=360) as opened:
        assert any("no" in one for one in opened.complaints)
        assert any("missing is not defined" in one for one in opened.complaints)
        assert any(one.endswith("absent.png") for one in opened.requests)
        assert opened.evaluate(WIDER_THAN_THE_WINDOW) > 0
        assert opened.evaluate(OVER_ITS_EDGE) == 1


def brightness(color: str) -> int:
    """The sum of the parts of "rgb(1, 2, 3)"."""
    return sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))
