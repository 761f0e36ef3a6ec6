"""The findings of a campaign on minimal programs: which programs show one of them again.

Two programs show the same bug where they fail in the same way, go wrong in the same pass, and one has all operations of the
other. Programs with all operations of a finding are left out as often as they showed it before: a bug that all of them have
neither hides others nor takes the time, and one that few of them have hides no others.
"""

import random
from collections import Counter
from collections.abc import Callable

from mhc.fuzz.check.program_check import named_pass
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.verdict import Verdict
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.grammar import DTYPES
from mhc.programs.languages import AnyProgram, language_of

_MINIMISED = 2
"""Of so many programs that show a finding for the second time one is minimised again; of more, each time."""


class FoundPrograms:
    """Answers what was found before."""

    def __init__(self) -> None:
        self._found: dict[frozenset[str], dict[tuple[tuple[str, str], str], Finding]] = {}
        self._judged: Counter[frozenset[str]] = Counter()
        self._failed: Counter[frozenset[str]] = Counter()
        self._random = random.Random(0)

    def keep(self, found: Finding) -> None:
        """Remember a finding on a minimal program."""
        assert isinstance(found.case, DrawnProgram)
        operations = operations_of(found.case)
        if operations not in self._found:
            self._judged[operations] = self._failed[operations] = 1
        alike = self._found.setdefault(operations, {})
        alike.setdefault((kind_of(found.fingerprint), named_pass(found.message)), found)

    def left_out(self, program: AnyProgram) -> bool:
        """Return whether not to judge a program, by chance: the more programs with its operations showed a finding."""
        mine = _in_every_dtype(program)
        shares = [self._share(operations) for operations in self._found if operations <= mine]
        return self._random.random() >= (1 - max(shares, default=0.0)) ** 2

    def _share(self, operations: frozenset[str]) -> float:
        """Return about how many of the programs with all operations of a finding show it; at first most."""
        return (self._failed[operations] + 1) / (self._judged[operations] + 2)

    def judged(self, program: AnyProgram, kind: tuple[str, str] | None) -> None:
        """Count a program for the findings whose operations it has: how many fail as the finding does, and how many do not.

        Args:
            kind: of its failure; None where it does not fail.
        """
        mine = _in_every_dtype(program)
        for operations, alike in self._found.items():
            if operations <= mine:
                self._judged[operations] += 1
                self._failed[operations] += any(kind == other for other, _ in alike)

    def shown_again(self, program: AnyProgram, kind: tuple[str, str], wrong_pass: Callable[[], str]) -> Finding | None:
        """Return the finding that a failing program shows again, if there is one."""
        mine = _in_every_dtype(program)
        met = [alike for operations, alike in self._found.items() if operations <= mine]
        if not any(kind == other for alike in met for other, _ in alike):
            return None
        wrong = wrong_pass()
        return next((alike[kind, wrong] for alike in met if (kind, wrong) in alike), None)

    def in_pass(self, name: str) -> Finding | None:
        """Return the first finding that goes wrong in a pass; None where the pass is not known or has none."""
        each = (found for alike in self._found.values() for (_, wrong), found in alike.items() if name and wrong == name)
        return next(each, None)

    def reached(self, program: AnyProgram) -> bool:
        """Return whether a program has exactly the operations of a finding."""
        return operations_of(program) in self._found

    def taken_as_seen(self, found: Finding) -> bool:
        """Return whether a program that shows a finding again is not minimised. Some are all the same, by chance."""
        assert isinstance(found.case, DrawnProgram)
        return self._random.randrange(_MINIMISED * self._failed[operations_of(found.case)]) > 0


def _in_every_dtype(program: DrawnProgram) -> frozenset[str]:
    """Return a program's operations, and the same on int32, which a finding names that the dtype does not matter to."""
    operations = operations_of(program)
    apart = (one.rpartition(" ") for one in operations)
    return operations | {operation for operation, _, dtype in apart if dtype in DTYPES}


def kind_of(failure: Verdict | Fingerprint) -> tuple[str, str]:
    """Return which failures may be of one bug: those of one oracle with one symptom."""
    return failure.oracle, failure.symptom


def operations_of(program: DrawnProgram) -> frozenset[str]:
    """Return the operations that a program's signature names."""
    return frozenset(language_of(program).signature(program).split(", "))
