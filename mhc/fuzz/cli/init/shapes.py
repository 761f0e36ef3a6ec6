"""The notation of an operator, guessed from calls of its reference (`trials`) and from what its text says (`hints`)."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mhc.fuzz.cli.init.hints import Hint
from mhc.fuzz.cli.init.trials import Start, Trials, divisor, groups, independent, largest_index, start

Part = list[tuple[str, int]]
"""Axes whose sizes agree, as names of tensors with positions."""
_FIRST, _LAST = ("T", "B", "M"), ("D", "N", "K")
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31)
_OTHERS = ("S", "H", "K", "N", "M", "E", "F", "G", "P", "Q", "R", "U", "V", "W")


class ShapesError(Exception):
    """Raised where no shapes are found; the message says what the last call raised."""


@dataclass(frozen=True)
class Guess:
    """The declaration of an operator.

    Attributes:
        tensors: notation by argument. keywords: further keywords of `operator`, such as tokens and derived sizes.
        notes: what was seen, by argument or keyword.
    """

    tensors: Mapping[str, str]
    keywords: Mapping[str, str]
    notes: Mapping[str, str]


def guess(function: Callable[..., Any], hints: Mapping[str, Hint], fixed: Mapping[str, Any]) -> Guess:
    """Return the notation of a reference's tensors.

    The function is called on one thread: a process that is forked from one whose OpenMP threads have run may hang.

    Args:
        hints: of its tensors, in order. fixed: values of its other arguments.

    Raises:
        ShapesError: it cannot be called in any of the shapes that were tried.
    """
    trials = Trials(function, {name: one.kind for name, one in hints.items()}, fixed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first = start(trials, hints)
        if first is None:
            raise ShapesError(trials.last)
        return _guess(trials, first, hints)
    finally:
        torch.set_num_threads(threads)


def _guess(trials: Trials, first: Start, hints: Mapping[str, Hint]) -> Guess:
    parts, repeated = _split(trials, first, groups(trials, first))
    names = _names(parts, first.ranks, hints)
    fresh = _Fresh({*hints, *names})
    keywords: dict[str, str] = {}
    notes: dict[str, str] = {}
    factors = dict.fromkeys(range(len(parts)), 1)
    quotients: dict[str, int] = {}
    for at, base in repeated.items():
        keywords[names[at]] = f"{names[base]}*{fresh.symbol('G')}"
        notes[names[at]] = f"multiples of {names[base]} work, other sizes do not"
    for at, name in enumerate(names):
        if name in keywords or any(axis in parts[at] for axis in first.factors):
            continue
        number = divisor(trials, first, parts, at)
        if number is None:
            notes[name] = "not all sizes work: give its range or a formula"
        elif number > 1:
            part_of = fresh.symbol(f"{name}_{number}")
            factors[at], keywords[name], quotients[part_of] = number, f"{number}*{part_of}", at
            notes[name] = f"only multiples of {number} work"
    symbols = {axis: names[at] for at, part in enumerate(parts) for axis in part}
    for axis, factor in first.factors.items():
        twice = fresh.symbol(f"{symbols[axis]}{factor}")
        keywords[twice], symbols[axis] = f"{factor}*{symbols[axis]}", twice
    sizes = {name: factors[at] * number for (at, name), number in zip(enumerate(names), _PRIMES, strict=False)}
    for at, base in repeated.items():
        sizes[names[at]] = 2 * sizes[names[base]]
    # each symbol has a size of its own, so that shapes of outputs and ends of indices tell which it is
    shapes = first.shapes({axis: sizes.get(names[at], 12) for at, part in enumerate(parts) for axis in part})
    ends = {}
    for name in [name for name, kind in trials.kinds.items() if kind == "index"]:
        size = largest_index(trials, shapes, name)
        fitting = [symbol for axis, symbol in symbols.items() if shapes[axis[0]][axis[1]] == size]
        ends[name] = fitting[0] if fitting else "2"
        notes[name] = "larger ones fail" if fitting else "no end of the range was found: give the right one"
    tokens = _tokens(trials, shapes, symbols, first.ranks, keywords)
    known = {symbol: shapes[name][at] for (name, at), symbol in symbols.items()}
    known |= {one: sizes[names[at]] // factors[at] for one, at in quotients.items()}
    keywords |= _outputs(trials, shapes, known, fresh)
    star = len(tokens) == 1 and _any_rank(trials, shapes, symbols, tokens[0], hints)
    if tokens:
        keywords["tokens"] = f"*{tokens[0]}" if star else ", ".join(tokens)
        notes["tokens"] = f"exchanged along {' and '.join(tokens)}, or left out, the others stay as they are"
    tensors = {}
    for name, rank in first.ranks.items():
        axes = [symbols[name, at] for at in range(rank)]
        shown = ", ".join(f"*{one}" if star and one == tokens[0] else one for one in axes)
        words = f"int64 in 0..{ends[name]}" if name in ends else "storage"
        tensors[name] = f"[{shown}] {words}{' optional' if hints[name].optional else ''}"
    return Guess(tensors, keywords, notes)


def _split(trials: Trials, first: Start, parts: Sequence[Part]) -> tuple[list[Part], dict[int, int]]:
    """Return the parts, and for each whose size may be any multiple of another's, the index of that other.

    Heads of queries and of keys are an example: equal sizes work, multiples work, others do not.
    """
    found: list[Part] = []
    repeated: dict[int, int] = {}
    base = first.grain
    for part in parts:
        alone = [[axis for axis in part if axis[0] == name] for name in dict.fromkeys(name for name, _ in part)]
        multiple = next(
            (
                some
                for some in alone
                if len(some) < len(part)
                and not first.factors
                and all(
                    trials.works(
                        first.shapes(
                            {
                                axis: times * base if axis in some else base if axis in part else 2 * base
                                for axis in first.axes
                            }
                        )
                    )
                    for times in (2, 3)
                )
            ),
            None,
        )
        found.append([axis for axis in part if not multiple or axis not in multiple])
        if multiple:
            repeated[len(found)] = len(found) - 1
            found.append(multiple)
    return found, repeated


def _names(parts: Sequence[Part], ranks: Mapping[str, int], hints: Mapping[str, Hint]) -> list[str]:
    """Return a name for each part: one from the text, or else a usual one."""

    def said(part: Part) -> list[str]:
        given = [hints[name].symbols.get(at, hints[name].symbols.get(at - ranks[name], "")) for name, at in part]
        return [one for one in given if one and one not in hints]

    names: dict[int, str] = {}
    for at, part in enumerate(parts):
        free = [one for one in said(part) if one not in names.values()]
        if free:
            names[at] = free[0]
    for at, part in enumerate(parts):
        name, position = part[0]
        last = position == ranks[name] - 1
        usual = (*(_LAST if last else _FIRST if position == 0 else ()), *_OTHERS)
        names.setdefault(at, next(one for one in (*usual, f"A{at}") if one not in names.values() and one not in hints))
    return [names[at] for at in range(len(parts))]


class _Fresh:
    """Names that are not taken."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def symbol(self, wanted: str) -> str:
        """Return a name like `wanted`, and take it."""
        numbered = (f"{wanted}{at}" for at in itertools.count(1))
        found = next(one for one in itertools.chain([wanted], numbered) if one not in self.taken)
        self.taken.add(found)
        return found


def _tokens(
    trials: Trials,
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[tuple[str, int], str],
    ranks: Mapping[str, int],
    derived: Mapping[str, str],
) -> list[str]:
    """Return the first axes of the first tensor whose positions are independent, all but its last axis at most."""
    lead, found = next(iter(ranks)), list[str]()
    for at in range(ranks[lead] - 1):
        symbol = symbols[lead, at]
        has = {name: where for (name, where), one in symbols.items() if one == symbol}
        alike = all([symbols[name, place] for place in range(where)] == found for name, where in has.items())
        once = list(symbols.values()).count(symbol) == len(has)
        others = [
            name for name in ranks if name not in has and any(symbols[name, place] in found for place in range(ranks[name]))
        ]
        if not alike or not once or others or symbol in derived or not independent(trials, shapes, has):
            break
        found.append(symbol)
    return found


def _any_rank(
    trials: Trials,
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[tuple[str, int], str],
    token: str,
    hints: Mapping[str, Hint],
) -> bool:
    """Return whether the axis of tokens may be none or several, as the text says by a view as rows."""
    with_it = [name for (name, _), one in symbols.items() if one == token]
    if not any(hints[name].flattened for name in with_it):
        return False
    variants = [
        {name: (*lead, *shape[1:]) if name in with_it else shape for name, shape in shapes.items()} for lead in ((), (2, 3))
    ]
    return all(trials.works(one) for one in variants)


def _outputs(trials: Trials, shapes: Mapping[str, tuple[int, ...]], known: dict[str, int], fresh: _Fresh) -> dict[str, str]:
    """Return formulas for sizes of outputs that no axis of an input has."""
    found: dict[str, str] = {}
    for size in [one for output in trials.call(trials.inputs(shapes)) or () for one in output.shape]:
        if size in known.values():
            continue
        pairs = itertools.combinations(known.items(), 2)
        options = [(number * one, f"{number}*{name}") for number in (2, 3, 4) for name, one in known.items()]
        options += [
            (one // number, f"{name}//{number}") for number in (2, 4) for name, one in known.items() if not one % number
        ]
        options += [text for (a, x), (b, y) in pairs for text in ((x * y, f"{a}*{b}"), (x + y, f"{a}+{b}"))]
        fitting = [text for value, text in options if value == size]
        if fitting:
            name = fresh.symbol("Out")
            found[name], known[name] = fitting[0], size
    return found
