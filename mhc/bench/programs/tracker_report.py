"""The page on the bugs of TileLang's tracker: which the grammar can express, and which the fuzzer finds."""

from collections.abc import Mapping, Sequence

from mhc.bench import verbs
from mhc.bench.markdown import table
from mhc.bench.programs.tracker import ROUNDS, Found, Tracked
from mhc.bench.programs.tracker_bugs import REPORTED, Reported
from mhc.bench.programs.tracker_others import ELSEWHERE, OTHERS
from mhc.programs.grammar import Program
from mhc.programs.tilelang_text import render

_ISSUES = "https://github.com/tile-ai/tilelang/issues"


def render_page(tracked: Tracked, releases: Mapping[str, Mapping[int, bool]], seed: int, command: str) -> str:
    """Return the page.

    Args:
        releases: of each, which bugs it has, by the number of the issue. The hunt was in the first.
    """
    first, has = next(iter(releases.items()))
    there = [one for one in REPORTED if has[one.number]]
    missing = [one for one in there if one.number not in tracked.found]
    most = max((one.seconds for one in tracked.found.values()), default=0.0)
    parts = [
        "# The tracker's fuzzer bugs",
        "Which integer and index bugs of TileLang's tracker, of its series `[BUG][Fuzzer]`, drawn programs find, how soon.",
        f"{verbs.today()}, TileLang {first}, seed {seed}, two cores that also ran other work.",
        f"    {command}",
        f"**{len(REPORTED)} of the issues can be expressed in the grammar, and {first} has {len(there)} of them. "
        f"{len(there) - len(missing)} were found among {tracked.programs:,} drawn programs in {tracked.seconds:.0f} s, the "
        f"last after {most:.0f} s; {len(missing)} were not.** {tracked.failures:,} programs failed, for whatever reason.",
        _method(),
        "## Issues that the grammar can express",
        table(
            ("issue", "what is wrong", "smallest program", *releases, "found after", "programs"),
            [_row(one, releases, tracked.found.get(one.number)) for one in REPORTED],
            ("---", "---", "---", *["---"] * len(releases), "---:", "---:"),
        ),
    ]
    if missing:
        parts.append("Not found:\n\n" + "\n".join(f"- {_link(one.number)}: {one.why or 'rare.'}" for one in missing))
    parts += [
        "## Other issues of integers, indices, dtypes and folding",
        "Not expressible, or nothing here shows them. The releases were tried by hand, with programs in TileLang's own "
        "words; empty: not tried, for it takes a GPU or another target.",
        table(
            ("issue", "what is wrong", "0.1.8", "0.1.15", "why not"),
            [(_link(one.number), one.what, one.old, one.new, one.why) for one in OTHERS],
            ("---", "---", "---", "---", "---"),
        ),
        "## The rest of the series",
        "What drawn programs for the CPU cannot show, since it needs a GPU or is about other things:",
        "\n".join(f"- {about}: {', '.join(map(_link, numbers))}" for about, numbers in ELSEWHERE.items()),
        "Issues were looked up in a copy of the tracker whose newest entry is of 2026-09-23: later ones are missing.",
    ]
    return "\n\n".join(parts) + "\n"


def _method() -> str:
    targets = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in ROUNDS))
    return (
        f"One hunt serves all. Rounds of ten programs are drawn as in a campaign, for {targets} in turn; programs that may "
        "show a reported bug are judged too. A failure counts as an issue where its symptom is that of the issue, and the "
        "minimal program that keeps what the issue is about has no other operation. The time is that of the drawn program's "
        "verdict. For nvcc, which takes seconds for a program, only those are compiled that may show an issue that is not "
        "found yet. The grammar was widened with this table in hand, so it says what the fuzzer finds now, and not what "
        "it would have found before."
    )


def _row(bug: Reported, releases: Mapping[str, Mapping[int, bool]], found: Found | None) -> Sequence[str]:
    has = ["yes" if one[bug.number] else "no" for one in releases.values()]
    after = (f"{found.seconds:.0f} s", f"{found.programs:,}") if found else ("not", "")
    return (_link(bug.number), bug.what, _body(bug.example), *has, *after)


def _body(program: Program) -> str:
    """Return the lines of a program's body in one cell."""
    lines = render(program).splitlines()[3:]
    return "<br>".join(f"`{line[8:]}`".replace("|", "\\|") for line in lines)


def _link(number: int) -> str:
    return f"[{number}]({_ISSUES}/{number})"
