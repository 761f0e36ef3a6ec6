"""The page in a real browser: it opens offline, shows what the store has, complains of nothing and asks for nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.report import Run, write_reports
from tests.support.browser import find_browser, open_browser, open_page
from tests.support.report_stores import hostile, night

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
