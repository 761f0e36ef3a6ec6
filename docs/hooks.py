"""Hooks of the documentation site: mkdocs calls them by name, and mkdocs.yml says the rest.

The pages stay where they are in the repository, so that their links work on a forge too. `on_files` adds them to the site
under the same paths, with a page for each source file that one of them links to.
"""

import json
import logging
import posixpath
import re
from pathlib import Path

from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from mhc.fuzz.findings.json_schema import schemas

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "LICENSE", "docs/**/*", "fuzz_reports/README.md", "tests/regressions/README.md")
SCHEMAS = "<!-- here the site shows the schemas -->"

_OURS = ("docs/site/", "docs/mkdocs.yml", "docs/hooks.py")
_SHOWN_AS_THEY_ARE = {".md", ".html", ".png", ".svg"}
_LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml"}
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)]*)?\))")
_TAGS = re.compile(r"\](?=\[)")  # "[Bug][Fuzzer]", the title of an issue, is no link
_LINE_NUMBERS = re.compile(r'<table class="highlighttable">.*?</table>', re.DOTALL)
_LOG = logging.getLogger("mkdocs.hooks")
_FENCE = "`" * 8  # longer than any in a file


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the repository's pages, the source files that they link to, and the JSON Schemas."""
    linked = set[str]()
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern) if path.is_file()}):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_OURS) or path.suffix not in _SHOWN_AS_THEY_ARE:
            continue
        files.append(File.generated(config, name, abs_src_path=str(path)))
        if path.suffix == ".md":
            linked |= {target for link in _LINK.finditer(path.read_text("utf-8")) if (target := source(name, link[2]))}
    for name in sorted(linked):
        text = _source_page(name, (ROOT / name).read_text("utf-8"))
        files.append(File.generated(config, f"{name}.md", content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    for name, schema in schemas().items():
        files.append(File.generated(config, _schema_file(name), content=json.dumps(schema, indent=2)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with links to source files and folders that lead to pages, and with the schemas."""
    here = page.file.src_uri

    def led(link: re.Match[str]) -> str:
        if source(here, link[2]):
            return f"{link[1]}{link[2]}.md{link[3]}"
        if (ROOT / posixpath.dirname(here) / link[2] / "README.md").is_file():
            return f"{link[1]}{link[2].rstrip('/')}/README.md{link[3]}"
        return link[0]

    if here.endswith("/issue.md"):
        markdown = _TAGS.sub(r"\\]", markdown)
    return _LINK.sub(led, as_python_markdown(markdown)).replace(SCHEMAS, "\n".join(map(_schema_section, schemas())))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Warn, which fails a strict build, where the site shows other blocks than a forge does."""
    path = ROOT / page.file.src_uri
    if not path.is_file() or ":::" in (text := path.read_text("utf-8")) or SCHEMAS in text:
        return
    forge = MarkdownIt("commonmark").enable("table").render(text)
    here = _LINE_NUMBERS.sub("<pre>", html)
    for tag in ("h2", "h3", "li", "pre", "tr"):
        counts = [len(re.findall(f"<{tag}[ >]", one)) for one in (forge, here)]
        if counts[0] != counts[1]:
            _LOG.warning("%s: %d <%s> on a forge, %d on the site", page.file.src_uri, counts[0], tag, counts[1])


def as_python_markdown(markdown: str) -> str:
    """Return CommonMark, which forges show, in the form that this site's parser reads in the same way.

    A block of code in a list is indented by four columns for each level, and a fence names its language alone.
    """
    lines = markdown.split("\n")
    depth = 0
    for token in MarkdownIt("commonmark").parse(markdown):
        depth += token.nesting if token.type.endswith(("list_item_open", "list_item_close")) else 0
        if token.type == "code_block" and depth and token.map:
            indent = "    " * (depth + 1)
            for number, line in enumerate(token.content.rstrip("\n").split("\n"), token.map[0]):
                lines[number] = indent + line if line else ""
        if token.type == "fence" and token.map:
            opening = lines[token.map[0]]
            lines[token.map[0]] = re.sub(r"^(\s*[`~]{3,}\w+) .*", r"\1", opening)
    return "\n".join(lines)


def source(page: str, target: str) -> str | None:
    """Return the path in the repository of a file that is shown as text; None where the target is something else."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    path = ROOT / name
    return name if not name.startswith("..") and path.is_file() and path.suffix not in _SHOWN_AS_THEY_ARE else None


def _source_page(name: str, text: str) -> str:
    """Return a page that shows a source file and that the search leaves out."""
    language = _LANGUAGES.get(Path(name).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# `{name}`\n\n{_FENCE}{language}\n{text}\n{_FENCE}\n"


def _schema_file(name: str) -> str:
    return f"docs/reference/{name}.schema.json"


def _schema_section(name: str) -> str:
    """Return a section with one schema, folded."""
    text = json.dumps(schemas()[name], indent=2).replace("\n", "\n    ")
    file = posixpath.basename(_schema_file(name))
    return f'## {name.capitalize()}\n\n[{file}]({file})\n\n??? note "The schema"\n\n    ```json\n    {text}\n    ```\n'
