"""The pages: their commands and snippets work, their links lead somewhere, and they begin with what they are for."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from mhc.bench.cli import main as bench
from mhc.fuzz.cli.main import main as fuzz
from tests.support import pages
from tests.support.helpers import ROOT
from tests.support.pages import Block, Command

COMMANDS = [command for page in pages.current() for command in pages.commands(page)]
PYTHON = [block for page in pages.current() for block in pages.blocks(page) if block.language == "python"]
ELSEWHERE = {
    "docs/tilelang/": "tests/operators/test_tilelang_docs.py runs each snippet in a process of its own",
    "docs/tutorial.md": "tests/core/test_tutorial.py follows the page",
}
"""Pages whose Python is executed by another test."""
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|.*\.\.\..*|.*\b(RUN|DIR|SITE|VERSION|FILE|NAME|ADDRESS|FINDING|PLACE)\b.*")
"""A word that stands for another."""
DOCUMENTED = [
    ("README.md", 1),
    ("docs/campaigns.md", 4),
    ("docs/filing-upstream.md", 10),
]
"""Pages, and the least number of commands that must be found on them, lest the collector finds none."""


def named(item: Command | Block) -> str:
    return f"{pages.name_of(item.page)}:{item.line}"


def test_commands_are_found() -> None:
    for page, least in DOCUMENTED:
        assert sum(pages.name_of(command.page) == page for command in COMMANDS) >= least, page


@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in COMMANDS), ids=pages.name_of)
def test_the_commands_of_a_page_parse(page: Path, pytestconfig: pytest.Config) -> None:
    wrong = {str(command): problems(command, pytestconfig) for command in COMMANDS if command.page == page}
    assert {command: what for command, what in wrong.items() if what} == {}


def problems(command: Command, config: pytest.Config) -> list[str]:
    """Return what is wrong with a command line, without running it."""
    words = list(command.words)
    if words[0].endswith("make"):
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return [f"no target {word}" for word in words[1:] if "=" not in word and word not in targets]
    if words[0].endswith("pytest") or words[2] == "pytest":
        _, unknown = config._parser.parse_known_and_unknown_args(words[1 if words[0].endswith("pytest") else 3 :])
        return unknown
    group = bench if "mhc.bench" in words else fuzz
    return unusual(group, words[1:] if words[0].endswith("mhc-fuzz") else words[3:])


def unusual(command: click.Command, words: list[str]) -> list[str]:
    """Return what is wrong with the words of a command line, without looking for the files that it names."""
    if isinstance(command, click.Group):
        own = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
        at = 0
        while at < len(words) and words[at].startswith("-"):
            option = own.get(words[at])
            at += 1 if isinstance(option, click.Option) and option.is_flag else 2
        if at < len(words):
            verb = command.commands.get(words[at])
            return (
                [f"no verb {words[at]}"]
                if verb is None
                else [*unusual_options(command, words[:at]), *unusual(verb, words[at + 1 :])]
            )
    return unusual_options(command, words)


def unusual_options(command: click.Command, words: list[str]) -> list[str]:
    """Return what is wrong with options and arguments."""
    context = click.Context(command)
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return [error.format_message()]
    wrong = [f"unexpected {one}" for one in rest]
    for parameter in command.params:
        given = values.get(parameter.name or "")
        several = given if isinstance(given, (list, tuple)) else [given]
        texts = [one for one in several if isinstance(one, str) and not PLACEHOLDER.fullmatch(one)]
        if isinstance(parameter.type, (click.Path, click.File)):
            continue
        for text in texts:
            try:
                parameter.type.convert(text, parameter, context)
            except click.UsageError as error:
                wrong.append(error.format_message())
    return wrong


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--casse", "3"], "No such option"),
        (["--cases", "none"], "not a valid integer"),
        (["--device", "tpu"], "is not one of"),
        (["--cases", "3", "repaly", "x.json"], "no verb"),
        (["replay", "x.json", "y.json"], "unexpected"),
        (["replay", "x.json", "--hours", "2"], "No such option"),
    ],
)
def test_a_wrong_command_is_noticed(words: list[str], what: str) -> None:
    assert what in " ".join(unusual(fuzz, words))


@pytest.mark.parametrize("page", pages.current(), ids=pages.name_of)
def test_the_blocks_of_a_page_are_of_their_language(page: Path) -> None:
    for block in pages.blocks(page):
        match block.language:
            case "python":
                compile(block.text, named(block), "exec")
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case _:
                assert block.language in {"", "sh", "text", "yaml", "console"}, named(block)


def program_pages() -> list[Path]:
    there = dict.fromkeys(block.page for block in PYTHON)
    return [page for page in there if not pages.name_of(page).startswith(tuple(ELSEWHERE))]


@pytest.mark.slow
@pytest.mark.parametrize("page", program_pages(), ids=pages.name_of)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """The blocks of a page together, in order, beside the README's kernel as `norm.py` and what the blocks import."""
    for named_ in ("pages_files/my_kernels.py", "definitions/rope_d64.json"):
        shutil.copy2(ROOT / "tests" / "support" / named_, tmp_path)
    (tmp_path / "norm.py").write_text(
        (ROOT / "docs" / "examples" / "rms_norm.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    program = tmp_path / "snippets.py"
    program.write_text("\n\n".join(block.text for block in PYTHON if block.page == page), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def cheap() -> list[Command]:
    """Return the commands that take seconds and need nothing but the repository: `list`, replays, and up to 60 cases."""
    found = {}
    for command in COMMANDS:
        words = command.words[3:] if "mhc.fuzz" in command.words else ()
        placeholders = [word for word in words if PLACEHOLDER.fullmatch(word)]
        paths = [word.partition(":")[0] for word in words if re.search(r"\.(py|json)(:|$)", word)]
        if placeholders or not all((ROOT / path).is_file() for path in paths) or any("liger" in word for word in words):
            continue
        cases = int(words[words.index("--cases") + 1]) if "--cases" in words else 0
        if words[:1] == ("list",) or words[:1] == ("replay",) or 0 < cases <= 60:
            found[words] = command
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("command", cheap(), ids=named)
def test_a_cheap_command_runs(command: Command, tmp_path: Path) -> None:
    words = [sys.executable, *command.words[1:], *(["--out", str(tmp_path)] if "--cases" in command.words else [])]
    environment = {**os.environ, **dict(one.split("=", 1) for one in command.variables)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", pages.ALL, ids=pages.name_of)
def test_links_lead_somewhere_on_a_forge(page: Path) -> None:
    for link in pages.links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), link
        assert not anchor or place.suffix != ".md" or anchor in pages.anchors(place), link


WRITTEN = [page for page in pages.ALL if not pages.is_made(page)]


@pytest.mark.parametrize("page", WRITTEN, ids=pages.name_of)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    words = pages.first_words(page)
    assert sum(2 if ord(letter) > 0x2E80 else 1 for letter in words) > 60, (
        "the first paragraph must say what the page is for"
    )
    assert not re.match(r"20\d\d-", words), "the date comes after what the page is for"


def test_what_a_page_begins_with(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n[another language](x.md)\n\nWhat it is.\n\nMore.\n", encoding="utf-8")
    assert pages.first_words(page) == "What it is."
    other = tmp_path / "other.md"
    other.write_text("# Title\n\n    a command\n\nWhat it is.\n", encoding="utf-8")
    assert pages.first_words(other) == ""
