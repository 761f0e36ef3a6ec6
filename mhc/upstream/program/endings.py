"""How a repro tells its finding from what is right, and from anything else: its lines from the launches to `wrong`."""

from collections.abc import Sequence

LIMIT = 20
"""Seconds after which a process counts as hung."""


def by_value(where: str, limit: float) -> list[str]:
    """Further from float64 than `limit`, and finite."""
    return [
        f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}, bound {limit!r}")',
        "if not math.isfinite(actual):",
        '    raise ArithmeticError("not finite")',
        f"wrong = abs(actual - expected) > {limit!r}",
    ]


def by_class(where: str, found: float) -> list[str]:
    """Of the class of `found`, where another is right: finite, an infinity of one sign, or NaN."""
    name = "finite" if abs(found) < float("inf") else str(found)
    return [
        f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}")',
        'classes = [str(one) if not math.isfinite(one) else "finite" for one in (expected, actual)]',
        f"if classes[1] not in (classes[0], {name!r}):",
        "    raise ArithmeticError(classes[1])",
        "wrong = classes[1] != classes[0]",
    ]


def by_bits(where: str) -> list[str]:
    """Another number, or NaN where the other is none."""
    return [f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}")', "wrong = repr(actual) != repr(expected)"]


def by_exception(where: str, found: str) -> list[str]:
    """Raises what `found` says, "Type: first line", numbers and paths aside; the launches stand in a `try`."""
    return [
        '    raised = ""',
        "except Exception as error:",
        "    while error.__cause__ is not None:",
        "        error = error.__cause__",
        "    raised = f\"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}\"",
        *_parted("    if steady(raised) != steady(", found, "):"),
        "        raise",
        f"print(f\"{where}: expected no exception, actual {{raised or 'none'}}\")",
        'wrong = raised != ""',
    ]


STEADY = r'''
def steady(text):
    """Without numbers, addresses and paths, which differ from run to run."""
    return re.sub(r"0x[0-9a-f]+|/[\w./-]+|\d+", "#", text)
'''.strip()


def by_process(found: str) -> list[str]:
    """Its process ends as `found` says, a signal's name or `exit 3`, or does not end: `hang`. The launches are `run()`."""
    return [
        'if sys.argv[1:] == ["run"]:',
        '    print("running", flush=True)',
        "    run()",
        "    os._exit(0)",
        'process = subprocess.Popen([sys.executable, __file__, "run"], stdout=subprocess.PIPE)',
        "process.stdout.readline()  # imports and compilers take as long as they take",
        "try:",
        f"    status = process.wait({LIMIT})",
        '    actual = signal.Signals(-status).name if status < 0 else f"exit {status}"',
        "except subprocess.TimeoutExpired:",
        "    process.kill()",
        '    actual = "hang"',
        'print(f"process: expected exit 0, actual {actual}")',
        f'if actual not in ("exit 0", {found!r}):',
        "    raise RuntimeError(actual)",
        'wrong = actual != "exit 0"',
    ]


def _parted(before: str, text: str, after: str, width: int = 80) -> Sequence[str]:
    """A long string literal over several lines."""
    if len(text) <= width:
        return [f"{before}{text!r}{after}"]
    inner = " " * (len(before) - len(before.lstrip()) + 4)
    parts = [text[at : at + width] for at in range(0, len(text), width)]
    return [before, *(f"{inner}{part!r}" for part in parts), f"{inner[4:]}{after}"]
