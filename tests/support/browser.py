"""A page in the system's Chromium, without a window, driven by Playwright."""

import functools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


@functools.cache
def find_browser() -> str | None:
    """The path of the system's Chromium; None without one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@dataclass
class Opened:
    """An open page.

    Attributes:
        complaints: what the console said, and exceptions. requests: the addresses that the page loaded, its own first.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.page.evaluate(expression)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    """A browser with a profile of its own, ended with the block."""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=executable) as browser:
        yield browser


@contextmanager
def open_page(browser: Browser, path: Path | str, *, width: int, dark: bool = False) -> Iterator[Opened]:
    """A file, or what is at an address, once all of it is loaded."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    opened = Opened(page)
    page.on("console", lambda message: opened.complaints.append(message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(path if isinstance(path, str) else path.resolve().as_uri())
    yield opened
    page.close()
