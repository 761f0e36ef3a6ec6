"""The pages of documentation, and what is on them: commands, blocks of code, links and headings."""

import functools
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.helpers import ROOT

ALL = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "fuzz_reports/README.md", "tests/regressions/README.md")
    for path in ROOT.glob(pattern)
)
"""Every page."""
RECORDS = ("docs/results/", "CHANGELOG.md")
"""Dated pages: what they show was true once."""

MADE = ("issue.md", "attribution.md", "duplicates.md", "matrix.md", "summary.md")
"""Names of pages as `export` and a campaign write them."""

_COMMAND = re.compile(
    r"^(?:\$ )?((?:[A-Z_]+=\S+ +)*)((?:\S*/)?(?:python3? -m (?:mhc\.fuzz|mhc\.bench|pytest)|mhc-fuzz|pytest|make)(?:\s.*)?)$"
)
_REST = re.compile(r"\s{2,}#\s.*$|\s#\s.*$")
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A block of code on a page; `language` is empty for an indented one."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command line on a page: its environment variables, and its words."""

    page: Path
    line: int
    variables: tuple[str, ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}: {shlex.join(self.words)}"


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def is_made(page: Path) -> bool:
    """Return whether a command wrote the page, and nobody edits it."""
    return page.name in MADE and len(page.relative_to(ROOT).parts) > len(("docs", "results", "attribution.md"))


def current() -> list[Path]:
    """Return the pages that say what is true now."""
    return [page for page in ALL if not name_of(page).startswith(RECORDS)]


@functools.cache
def tokens(page: Path) -> list[Token]:
    """Return a page as CommonMark's tokens."""
    return _MARKDOWN.parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[Block]:
    """Return the blocks of code on a page."""
    found = [one for one in tokens(page) if one.type in {"fence", "code_block"}]
    return [Block(page, (one.map or [0])[0] + 1, (one.info.split() or [""])[0], one.content) for one in found]


def commands(page: Path) -> Iterator[Command]:
    """Return the command lines in blocks of code on a page that begin with one of this project's programs."""
    for block in blocks(page):
        if block.language in {"python", "json", "toml", "yaml"}:
            continue
        text = re.sub(r"\\\n\s*", " ", block.text)
        for number, line in enumerate(text.splitlines()):
            if match := _COMMAND.match(line.strip()):
                words = shlex.split(_REST.sub("", match[2]))
                yield Command(page, block.line + number, tuple(match[1].split()), tuple(words))


def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures on a page."""
    inline = [child for one in tokens(page) for child in one.children or ()]
    return [
        str(one.attrs["href" if one.type == "link_open" else "src"]) for one in inline if one.type in {"link_open", "image"}
    ]


@functools.cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as a forge makes them."""
    seen: Counter[str] = Counter()
    found = set[str]()
    for heading, text in zip(tokens(page), tokens(page)[1:], strict=False):
        if heading.type != "heading_open":
            continue
        plain = "".join(child.content for child in text.children or () if child.type in {"text", "code_inline"})
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def first_words(page: Path) -> str:
    """Return the first paragraph below a page's title; empty where something else comes first."""
    below = [one for one in tokens(page) if one.level == 0]
    at = next((number for number, one in enumerate(below) if one.type == "heading_close"), -1) + 1
    while at < len(below) and below[at].type == "paragraph_open":
        text = tokens(page)[tokens(page).index(below[at]) + 1]
        words = "".join(child.content or " " for child in text.children or () if child.type != "image")
        if not _is_link(text):
            return words
        at += 2
    return ""


def _is_link(text: Token) -> bool:
    """Return whether a paragraph is one link, as to the page in another language."""
    children = text.children or []
    return len(children) == 3 and children[0].type == "link_open"
